"""Distributed against serial: losses, every gradient, embeddings."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..graph import Graph, Store
from .config import RunConfig
from .trainer import Trainer

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
"""How far apart two runs may be: sums are taken in another order, and 20 epochs of it add up."""


@dataclass
class Trace:
    """What a run computed on its way."""

    losses: list[float] = field(default_factory=list)
    gradients: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """After the first and the last epoch, by parameter."""
    embedding: Tensor = field(default_factory=lambda: torch.empty(0, device="cpu"))
    """[n, hidden], by vertex, with the weights of the last epoch."""


def trace(source: Graph | Store, config: RunConfig, comm: Communicator) -> Trace:
    """Train for the config's epochs and keep what is compared."""
    trainer, out = Trainer(source, config, comm), Trace()
    for epoch in range(1, config.train.epochs + 1):
        out.losses.append(trainer.step(epoch))
        if epoch in (1, config.train.epochs):
            out.gradients[epoch] = trainer.gradients()
    out.embedding = trainer.A.layout.collect(trainer.embed())
    return out


def serial(source: Graph | Store, config: RunConfig) -> Trace:
    """The same run in one process, vertices in their own order."""
    alone = copy.deepcopy(config)
    alone.given = set()  # what was asked of the ranks' partition is not asked of this one
    alone.parallel = type(config.parallel)(ranks=1, partition="block")
    if alone.batch.batch_size:
        alone.batch.feed, alone.batch.memory_budget = "pull", ""
    return trace(source, alone, single())


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest magnitude in the tensors.

    >>> relative_difference(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 5.0]))
    0.2
    """
    if a.numel() == 0:
        return 0.0
    scale = max(float(a.abs().max()), float(b.abs().max()))
    return float((a - b).abs().max()) / scale if scale else 0.0


def compare(a: Trace, b: Trace) -> dict[str, float]:
    """The largest relative difference of every compared thing, by name: `loss`, `gradient …`, `embedding`."""
    rows = {
        "loss": relative_difference(
            *(torch.tensor(t.losses, dtype=torch.float64, device="cpu") for t in (a, b))
        )
    }
    for epoch, gradients in a.gradients.items():
        for name, g in gradients.items():
            rows[f"gradient of {name}, epoch {epoch}"] = relative_difference(g, b.gradients[epoch][name])
    rows["embedding"] = relative_difference(a.embedding, b.embedding)
    return rows

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


def relative_difference(a: Tensor, b: Tensor, least: float = 0.0) -> float:
    """The largest difference, relative to the largest magnitude in the tensors, and to `least` at least.

    >>> relative_difference(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 5.0]))
    0.2
    """
    if a.numel() == 0:
        return 0.0
    scale = max(float(a.abs().max()), float(b.abs().max()), least)
    return float((a - b).abs().max()) / scale if scale else 0.0


def _rounding(gradients: dict[str, Tensor]) -> float:
    """The magnitude below which a gradient is rounding: a sum that is 0 but for ten last digits of its terms.

    Such is that of a decoder's last bias, where true and false pairs pull alike.
    """
    found = [g for g in gradients.values() if g.numel()]
    if not found:
        return 0.0
    largest = max(float(g.abs().max()) for g in found)
    kind = str(found[0].dtype).removeprefix("torch.")
    return 10 * torch.finfo(found[0].dtype).eps / TOLERANCE[kind] * largest


def compare(a: Trace, b: Trace) -> dict[str, float]:
    """The largest relative difference of every compared thing, by name: `loss`, `gradient …`, `embedding`."""
    ours, theirs = (torch.tensor(t.losses, dtype=torch.float64, device="cpu") for t in (a, b))
    rows = {"loss": relative_difference(ours, theirs)}
    for epoch, gradients in a.gradients.items():
        least = _rounding(gradients)
        for name, g in gradients.items():
            other = b.gradients[epoch][name]
            rows[f"gradient of {name}, epoch {epoch}"] = relative_difference(g, other, least)
    rows["embedding"] = relative_difference(a.embedding, b.embedding)
    return rows

"""Distributed against serial: losses, every gradient, embeddings."""

from __future__ import annotations

import copy
from collections.abc import Mapping
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
    """Train for the config's epochs and keep what is compared.

    Numbers that are not finite are an error: they would differ even from themselves.
    """
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
    alone.batch.memory_budget = ""
    if alone.batch.batch_size and alone.batch.batching == "neighbours":
        alone.batch.feed, alone.batch.cache = "pull", ""
    return trace(source, alone, single())


def relative_difference(a: Tensor, b: Tensor, least: float = 0.0) -> float:
    """The largest difference, relative to the largest magnitude in the tensors; to `least` if that is more.

    >>> relative_difference(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 5.0]))
    0.2
    """
    if a.numel() == 0:
        return 0.0
    scale = max(float(a.abs().max()), float(b.abs().max()), least)
    return float((a - b).abs().max()) / scale if scale else 0.0


def gradient_differences(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, float]:
    """The relative difference of each gradient, by name.

    A gradient may be 0 but for rounding (a number that is added to all scores of a softmax): it is compared
    with a thousandth of the step's largest; in float32 with more, as that rounds more.

    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> gradient_differences({"w": one, "b": zero + 2**-50}, {"w": one, "b": zero})["b"] < 1e-12
    True
    """
    found = [g for g in b.values() if g.numel()]
    if not found:
        return dict.fromkeys(b, 0.0)
    most, kind = max(float(g.abs().max()) for g in found), found[0].dtype
    rounds = 10 * torch.finfo(kind).eps / TOLERANCE[str(kind).removeprefix("torch.")]
    return {name: relative_difference(a[name], g, max(1e-3, rounds) * most) for name, g in b.items()}


def _losses(trace: Trace) -> Tensor:
    return torch.tensor(trace.losses, dtype=torch.float64, device="cpu")


def compare(a: Trace, b: Trace) -> dict[str, float]:
    """The largest relative difference of every compared thing, by name: `loss`, `gradient …`, `embedding`."""
    rows = {"loss": relative_difference(_losses(a), _losses(b))}
    for epoch, gradients in a.gradients.items():
        for name, difference in gradient_differences(gradients, b.gradients[epoch]).items():
            rows[f"gradient of {name}, epoch {epoch}"] = difference
    rows["embedding"] = relative_difference(a.embedding, b.embedding)
    return rows

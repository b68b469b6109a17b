"""A module on virtual ranks against one process: outputs, gradients of weights and of inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from weft.comm import Communicator, run_ranks
from weft.pyg import ranks

from .graphs import directed

RANKS, TOLERANCE = 3, 1e-10


def objective(out: Tensor) -> Tensor:
    """A loss that no two rows enter alike."""
    out = out.double()
    return (out * out.detach().sin()).sum() / 7 + (out**2).mean()


def difference(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    a, b = a.detach().double(), b.detach().double()
    where = ~(a.isnan() & b.isnan())
    gap = (a - b)[where].abs()
    return float(gap.max()) / max(1.0, float(b[where].abs().max())) if gap.numel() else 0.0


def alone(model: Any, call: Callable[[Any, Data], Any], data: Data) -> list[Tensor | None]:
    data = copy.copy(data)
    data.x = data.x.clone().requires_grad_()
    out = call(model, data)
    if out.requires_grad:
        objective(out).backward()
    return [out.detach(), data.x.grad, *(p.grad for p in model.parameters()), *model.buffers()]


def shared(
    comm: Communicator, models: list[Any], call: Callable[[Any, Data], Any], data: Data, partition: str,
    grid: str = "",
) -> list[Tensor | None]:  # fmt: skip
    with ranks(comm) as job:
        how = {"strategy": "grid", "grid": grid} if grid else {}
        mine = job.share(data, partition, **how)
        model = job.wrap(models[comm.rank])
        mine.x.requires_grad_()
        out = call(model, mine)
        if out.requires_grad:
            objective(out).backward()
        grad = mine.x.grad
        return [
            job.collect(out), None if grad is None else job.collect(grad),
            *(p.grad for p in model.parameters()), *model.buffers(),
        ]  # fmt: skip


def worst(
    model: Any,
    call: Callable[[Any, Data], Any],
    data: Data | None = None,
    partition: str = "random",
    count: int = RANKS,
    grid: str = "",
) -> float:
    """The largest difference between ranks and one process; what ranks refuse is raised."""
    data = directed() if data is None else data
    model = model.double()
    models = [copy.deepcopy(model) for _ in range(count)]
    want = alone(model, call, data)
    found = run_ranks(shared, count, "threads", models, call, data, partition, grid)
    return max(difference(a, b) for got in found for a, b in zip(got, want, strict=True))

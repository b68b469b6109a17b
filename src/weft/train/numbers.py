"""Numbers that are not finite: where the first of them stands, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import UserError
from .gradients import finite

if TYPE_CHECKING:
    from .result import Result
    from .trainer import Trainer


class BadNumbers(UserError):
    """Training met a number that is not finite. `result` is what was learned before it, if anything was."""

    result: Result | None = None


def first_odd(rows: Tensor) -> int:
    """The first row with a number that is not finite; −1: there is none.

    >>> first_odd(torch.tensor([[1.0], [float("inf")]])), first_odd(torch.ones(3, 2))
    (1, -1)
    """
    if not rows.numel() or finite(rows):
        return -1
    return int((~torch.isfinite(rows.reshape(len(rows), -1)).all(1)).nonzero()[0])


@torch.no_grad()
def find(trainer: Trainer) -> str:
    """Where the first number stands that is not finite, of all ranks; every rank calls it.

    Looked for in this order: weights, features, the layers' results with the weights as they are, gradients.
    """
    ids = trainer.A.layout.ids
    found: list[tuple[int, int, str]] = []

    def note(order: int, rows: Tensor, what: str) -> None:
        row = first_odd(rows)
        if row >= 0:
            found.append((order, int(ids[row]), f"{what} at vertex {int(ids[row])}"))

    for name, p in trainer.encoder.live.named_parameters():
        if not finite(p):
            found.append((0, 0, f"the weight {name}"))
        if p.grad is not None and not finite(p.grad):
            found.append((9999, 0, f"the gradient of {name}"))
    trainer.encoder.settle()
    x = trainer.inputs()
    note(1, x, "the features")
    layers = trainer.model.layers
    trainer.model.seen = lambda depth, z: note(
        2 + depth, z, f"the result of layer {depth + 1}, {type(layers[depth]).__name__},"
    )
    try:
        trainer.model.eval()
        trainer.model(trainer.A, x)
    finally:
        trainer.model.seen = None
    told: list[Any] = [tuple(entry) for entries in trainer.comm.all_gather_json(found) for entry in entries]
    return str(min(told)[2]) if told else ""


def line(trainer: Trainer, what: str, epoch: int, step: int) -> str:
    """The one line that a run ends with; every rank calls it. `step` counts the epoch's updates, from 1."""
    where, options = find(trainer), trainer.config.train
    batch = f", batch {step} of {trainer.task.steps}" if trainer.task.steps > 1 else ""
    named = f", first {where}" if where else ""
    if epoch == 1 and step <= 1 and what != "an evaluation":
        remedy = "Nothing was learned yet: scale the features (--feature-norm row), or use --dtype float64."
    else:
        remedy = f"Lower --lr, now {options.lr:g}, or use --clip-norm 1."
    return f"{what} is not finite in epoch {epoch}{batch}{named}. {remedy}"

"""A memory budget for training on the whole graph: what it has no room for lies in files (`weft.paged`).

    in memory        A and its transpose; activations, as far as half of what is left goes
    in files         features and A X, where not all fits; activations beyond
    brought together for one product, the other half: rows of what lies in files (`weft.kernels.walked`)

The results are those of the run without a budget, to the bit.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import UserError
from ..memory import pool
from ..minibatch import parse_bytes
from ..parallel import Rows
from ..units import spell_bytes
from .config import RunConfig

if TYPE_CHECKING:
    from .trainer import Trainer

MODELS = ("gcn", "sage", "sgc")
"""Those whose layers are products with A and with weights: both can be walked."""
_BUFFERS = 4
"""Buffers of the activations' size that a step holds at its peak, beside them."""


def check_budget(config: RunConfig) -> None:
    """Refuse what cannot be walked in files.

    >>> config = RunConfig()
    >>> config.model.residual, config.batch.memory_budget = True, "2GB"
    >>> check_budget(config)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: --memory-budget has no files for what --residual holds. Leave one of the two out.
    """
    if config.batch.batch_size or not config.batch.memory_budget:
        return
    parse_bytes(config.batch.memory_budget)
    model, kinds = config.model, "gcn, sage (mean), sgc"
    if model.name not in MODELS:
        raise UserError(f"--memory-budget is for {kinds}; {model.name} reads rows in no order. Leave it out.")
    if model.name == "sage" and model.settings()["aggregate"] != "mean":
        raise UserError(f"--memory-budget is for {kinds}; a maximum reads rows in no order. Leave it out.")
    for name in ("layer_norm", "residual"):
        if getattr(model, name):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"--memory-budget has no files for what {flag} holds. Leave one of the two out.")
    if config.train.task != "node":
        raise UserError(f"--memory-budget is for --task node, not {config.train.task}. Leave it out.")
    if config.train.device != "cpu":
        raise UserError("--memory-budget is for --device cpu. Leave one of the two out.")


@dataclass
class Budget:
    """What this rank may hold beside A."""

    asked: int
    """Bytes of `--memory-budget`."""
    arcs: int
    """Bytes of A and its transpose on the largest rank."""
    short: bool
    """Whether not all of this rank fits."""

    @classmethod
    def take(cls, trainer: Trainer, layout: Rows) -> Budget | None:
        """The budget of a run on the whole graph, None where it has none; every rank calls it."""
        config, A = trainer.config, trainer.A
        if config.batch.batch_size or not config.batch.memory_budget:
            return None
        asked = parse_bytes(config.batch.memory_budget)
        size = getattr(torch, config.train.dtype).itemsize
        index = 4 if layout.count < 2**31 else 8
        held = (index + size) * sum(A.plan.arcs) + 8 * sum(sum(a.shape) for a in A.plan.matrices)
        told = torch.tensor([2 * held], device="cpu")
        arcs = int(trainer.comm.all_reduce(told, "max", phase="plan"))
        if arcs >= asked:
            raise UserError(
                f"a memory budget of {spell_bytes(asked)} is too small: the arcs of a rank take "
                f"{spell_bytes(arcs)}. Use --memory-budget {2 * arcs}, or more ranks."
            )
        widths = trainer.model.widths
        own = layout.ids.numel() * size
        needed = own * (2 * widths[0] + (1 + _BUFFERS) * sum(widths[1:]))
        out = cls(asked, arcs, needed > asked - arcs)
        if out.short:
            pool.allow(asked - arcs)
            weakref.finalize(trainer, pool.disallow, asked - arcs).atexit = False
        return out

    def facts(self) -> dict[str, Any]:
        """For the summary: bytes of this process that lie in files, now."""
        return {"file_bytes": pool.filed}

    def note(self) -> str:
        """For people."""
        left = spell_bytes(self.asked - self.arcs)
        if not self.short:
            return f"budget    {spell_bytes(self.asked)} a rank: all fits, nothing lies in files"
        return f"budget    {left} a rank beside its arcs; what does not fit lies in files of TMPDIR"

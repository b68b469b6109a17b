"""What a run gave, and how the work lay on the ranks."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..memory import pool
from ..parallel import Volume
from .classes import SPLITS
from .watch import StepWatch

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass
class Result:
    """What a run gave; `as_dict` is what `--json` prints."""

    loss: list[float] = field(default_factory=list)
    """Of each epoch, over all ranks."""
    scores: dict[str, float] = field(default_factory=dict)
    """The task's metrics of the kept weights, by the name that `--json` prints."""
    epoch_seconds: float = float("nan")
    """Median seconds of a training step, the first (which warms up) left out."""
    best_epoch: int = 0
    """The epoch whose weights were kept."""
    interrupted: bool = False
    """Whether somebody asked to stop before the end."""
    stopped_by: int = 0
    """The signal that asked to stop; 0: none did."""
    at_step: int = 0
    """Updates of an unfinished epoch that were done when it stopped."""
    resumed: list[int] | None = None
    """The epoch and the updates of it from which it went on; None: from the beginning."""
    checkpoint: str = ""
    """The newest checkpoint, where one was written."""
    stalls: list[float] = field(default_factory=list)
    """Seconds that training waited for each checkpoint's copy."""
    moved: Volume = field(default_factory=Volume)
    """What this rank received in one steady epoch."""
    foretold: Volume = field(default_factory=Volume)
    """The same, foretold before that epoch."""
    not_foretold: str = ""
    """Why nothing was: a layer that looks at numbers."""
    watch: StepWatch | None = None
    """Where that epoch's time went."""
    measured: dict[str, Any] = field(default_factory=dict)
    """The same of all ranks, as a run folder keeps it: `measured.gather`."""
    details: dict[str, Any] = field(default_factory=dict)
    """What the task tells beside its scores: who was taken for whom, how pairs rank."""

    @property
    def accuracy(self) -> dict[str, float]:
        """Of each split; micro-F1 where vertices have several labels."""
        return {s: self.scores[f"{s}_accuracy"] for s in SPLITS if f"{s}_accuracy" in self.scores}

    def as_dict(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            **(self.scores or {f"{split}_accuracy": float("nan") for split in SPLITS}),
            "epoch_seconds": self.epoch_seconds,
            "epochs": len(self.loss),
            "best_epoch": self.best_epoch,
            "interrupted": self.interrupted,
            "resumed": self.resumed,
            "checkpoint_stalls": self.stalls,
        }

    def gather(self, trainer: Trainer) -> dict[str, Any]:
        """How the work lay and what moved, of all ranks; every rank calls it."""
        comm, grid = trainer.comm, trainer.A.grid
        mine = {
            "words": self.moved.words, "messages": self.moved.messages,
            "predicted_words": self.foretold.words,
            "peak_rss_bytes": peak_rss_bytes(), "arcs": trainer.A.arcs,
            "in_order": trainer.arcs_in_order, "buffer_bytes": pool.bytes,
            "activation_bytes": trainer.activation_bytes,
            "idle_rss_bytes": trainer.idle_rss_bytes,
            "received_bytes": trainer.bytes_of(self.moved.words),
            "time": self.watch.seconds() if self.watch else {},
        }  # fmt: skip
        ranks = comm.all_gather_json(mine)

        def phases(key: str) -> list[str]:
            return list(dict.fromkeys(p for rank in ranks for p in rank[key]))

        by_phase = {
            key: {phase: [rank[key].get(phase, 0) for rank in ranks] for phase in phases(key)}
            for key in ("words", "messages", "predicted_words")
        }

        def slabs(arcs: list[int]) -> list[int]:
            """Of ranks (i, ·, 0) together: the ranks of one feature line hold the same arcs."""
            return [sum(arcs[grid.rank(i, k, 0)] for k in range(grid.inner)) for i in range(grid.row)]

        def each(key: str) -> list[Any]:
            return [rank[key] for rank in ranks]

        return {
            "version": __version__, "strategy": trainer.config.parallel.strategy, "grid": list(grid.shape),
            "exchange": trainer.shared.exchange, "ranks": comm.size, "widths": trainer.model.widths,
            "feature_norm": trainer.feature_norm, **by_phase,
            **({"not_foretold": self.not_foretold} if self.not_foretold else {}),
            "arcs_per_row_slab": slabs(each("arcs")),
            "arcs_per_row_slab_in_vertex_order": [
                ranks[grid.rank(i, 0, 0)]["in_order"] for i in range(grid.row)
            ],
            "arcs_per_rank": each("arcs"),
            **{key: each(key) for key in ("peak_rss_bytes", "idle_rss_bytes", "buffer_bytes",
                                          "activation_bytes", "received_bytes")},
            "time": {kind: [rank["time"].get(kind, 0.0) for rank in ranks] for kind in phases("time")},
            **trainer.facts(),
        }  # fmt: skip


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def rss_bytes() -> int:
    """The memory that this process holds now; where nobody tells, the most that it has held."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return peak_rss_bytes()


def agrees(words: dict[str, Any], foretold: dict[str, Any]) -> bool:
    """Whether what moved is what was foretold: to the word, and of errors behind a ReLU at most that much.

    >>> agrees({"pull": 5, "errors": 3}, {"pull": 5, "errors": 4}), agrees({"pull": 5}, {"pull": 6})
    (True, False)
    """
    if words.keys() - {"errors"} != foretold.keys() - {"errors"}:
        return False

    def fits(phase: str) -> bool:
        a, b = words[phase], foretold.get(phase, 0)
        if phase != "errors" or a == b:
            return bool(a == b)
        pairs = zip(a, b, strict=True) if isinstance(a, list) and isinstance(b, list) else [(a, b)]
        return all(x <= y for x, y in pairs)

    return all(fits(phase) for phase in words)

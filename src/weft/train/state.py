"""What of a run must survive: every tensor with its place in the global one, and how far the loop is.

    weights/NAME              a weight, or `embeddings`: the learned features
    optimiser/NAME/KEY        what the optimiser keeps of it
    best/NAME                 the best weights so far
    flight/K/NAME             weights of the K-th batch under way, where batches are pipelined; under the name
                              of the learned features, these as that batch has read them
    history/loss, /seconds    of every epoch that has passed
    layout/order              who owns which vertex, where a partitioner said so

A replicated tensor is written by rank 0, one that is placed by those who have it, by global index.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import memory
from ..errors import UserError
from ..parallel import Blocks, Grid
from ..parallel.numbering import Listed
from .checkpoint import Checkpoint, Piece
from .encoders import Encoder
from .optimise import kept_shapes

if TYPE_CHECKING:
    from .trainer import Trainer

EMBEDDINGS = "embeddings"
"""The learned features' name among the weights."""
_BY_SEED = ("block", "random", "hash")
"""Partitions that follow from the seed: they need not be kept."""


@dataclass
class Progress:
    """How far the loop is: what it knows beside weights."""

    epoch: int = 1
    """The epoch under way, from 1."""
    step: int = 0
    """Updates of it that are done."""
    share: float = 0.0
    """This rank's share of their loss."""
    elapsed: float = 0.0
    """Seconds that they took."""
    loss: list[float] = field(default_factory=list)
    """Of every epoch that has passed."""
    seconds: list[float] = field(default_factory=list)
    best: tuple[float, float] = (-math.inf, -math.inf)
    """What the best epoch had most of."""
    best_epoch: int = 0
    best_weights: dict[str, Tensor] | None = None
    waited: int = 0
    """Evaluations since."""
    skipped: int = 0
    """Updates left out for numbers that were not finite."""


@dataclass(frozen=True)
class _Place:
    """Where this rank's part of a parameter stands in the whole one."""

    shape: tuple[int, ...]
    rows: np.ndarray | tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    writes: bool = True
    """Whether this rank writes it: of ranks that have the same part, one does."""

    @property
    def whole(self) -> bool:
        return self.rows is None and self.columns is None

    def piece(self, name: str, tensor: Tensor) -> Piece:
        array, live = _array(tensor)
        return Piece(name, array, self.shape, self.rows, self.columns, live)

    def read(self, found: Checkpoint, name: str, like: Tensor) -> Tensor:
        """This rank's part of what a checkpoint has under a name, as `like` is."""
        if found.shape(name) != self.shape:
            raise UserError(
                f"{name} is {'x'.join(map(str, found.shape(name)))} in {found.path}, "
                f"{'x'.join(map(str, self.shape))} here. Resume with the run's own model and graph."
            )
        return _read(found, name, self.rows, self.columns).to(like)


def _read(
    found: Checkpoint,
    name: str,
    rows: np.ndarray | tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
) -> Tensor:
    wanted = np.arange(*rows) if isinstance(rows, tuple) else rows
    return torch.from_numpy(found.read(name, wanted, columns))


def _array(tensor: Tensor) -> tuple[np.ndarray, bool]:
    """(what a tensor holds, whether it is the tensor's own memory)."""
    tensor = tensor.detach()
    return tensor.cpu().numpy(), tensor.device.type == "cpu"


def copied(piece: Piece) -> Piece:
    """A piece that nobody writes to. Its memory is that of an earlier checkpoint, once written.

    By numpy, on the calling thread alone: torch would take the cores from the step that runs meanwhile.
    """
    if not piece.live:
        return piece
    source = torch.from_numpy(piece.array)
    array = memory.empty(*source.shape, like=source).numpy()
    np.copyto(array, piece.array)
    return dataclasses.replace(piece, array=array, live=False)


class State:
    """The state of a trainer: taken for a checkpoint, or put back from one."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.encoder = trainer, trainer.encoder
        self.first = trainer.comm.rank == 0
        self._ids = trainer.A.layout.ids.numpy()
        self._config = trainer.config.as_dict()  # once: it is most of what `facts` would take
        self.places = dict(self._places())

    def _places(self) -> Iterator[tuple[str, _Place]]:
        encoder, placed = self.encoder, self.encoder.placed
        columns = placed.columns
        leads = columns is None or self.trainer.comm.rank < columns.group.size
        for name, p in encoder.live.named_parameters():
            if columns is not None and name in placed.cut:
                shape = (columns.width, *p.shape[1:])
                yield name, _Place(shape, (columns.begin, columns.end), None, leads)
            else:
                yield name, _Place(tuple(p.shape), writes=self.first)
        learned, count = encoder.features.learned, self.trainer.A.layout.count
        if learned is None:
            return
        if columns is None:
            yield EMBEDDINGS, _Place((count, learned.shape[1]), self._ids)
        else:
            width = self.trainer.task.learned_width
            first = max(columns.begin - (columns.width - width), 0)
            yield EMBEDDINGS, _Place((count, width), None, (first, first + learned.shape[1]), leads)

    @property
    def shared_out(self) -> bool:
        """Whether ranks other than the first have something to write."""
        return any(not place.whole for place in self.places.values())

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        found = dict(self.encoder.live.named_parameters())
        learned = self.encoder.features.learned
        return found if learned is None else found | {EMBEDDINGS: learned}

    # Taking.

    def take(self, progress: Progress) -> list[Piece]:
        """All that this rank writes, as it is now: what is `live` in it, the next update changes.

        No message is sent.
        """
        found = list(self._take_weights())
        best = progress.best_weights or {}
        rows = best.get(EMBEDDINGS)
        if rows is not None:  # not copied: the best weights are replaced, never written to
            shape = (self.trainer.A.layout.count, rows.shape[1])
            found.append(Piece(f"best/{EMBEDDINGS}", rows.cpu().numpy(), shape, self._ids))
        for number, model in enumerate(self.encoder.under_way()):
            for name, p in model.named_parameters():
                if self.places[name].writes:
                    found.append(self.places[name].piece(f"flight/{number}/{name}", p))
        for number, rows in enumerate(self.encoder.rows_read()):
            place = self.places[EMBEDDINGS]
            if place.writes:
                found.append(
                    dataclasses.replace(place.piece(f"flight/{number}/{EMBEDDINGS}", rows), live=False)
                )
        if not self.first:
            return found
        found += [
            Piece.whole(f"best/{name}", w.cpu().numpy()) for name, w in best.items() if name != EMBEDDINGS
        ]
        found.append(Piece.whole("history/loss", np.array(progress.loss, dtype=np.float64)))
        found.append(Piece.whole("history/seconds", np.array(progress.seconds, dtype=np.float64)))
        if self.trainer.config.parallel.partition not in _BY_SEED and self.trainer.comm.size > 1:
            found.append(Piece.whole("layout/order", self.trainer.A.layout.blocks.order.numpy()))
        return found

    def _take_weights(self) -> Iterator[Piece]:
        parameters = self._parameters()
        for name, p in parameters.items():
            place = self.places[name]
            if place.writes:
                yield place.piece(f"weights/{name}", p)
            for key, value in self.trainer.optimiser.state.get(p, {}).items():
                if not isinstance(value, Tensor):
                    continue
                if value.shape == p.shape and not place.whole:
                    if place.writes:
                        yield place.piece(f"optimiser/{name}/{key}", value)
                elif self.first:
                    yield Piece.whole(f"optimiser/{name}/{key}", *_array(value))
        if self.first:
            for name, buffer in self.encoder.live.named_buffers():
                # Copied now: a forward pass may write to it.
                yield Piece.whole(f"buffers/{name}", buffer.detach().cpu().numpy().copy())

    def facts(self, progress: Progress, shares: list[float]) -> dict[str, Any]:
        """What is no tensor, as plain data; `shares` are those of all ranks."""
        trainer = self.trainer
        return {
            "epoch": progress.epoch, "step": progress.step, "shares": shares, "elapsed": progress.elapsed,
            "best": progress.best, "best_epoch": progress.best_epoch, "waited": progress.waited,
            "skipped": progress.skipped, "flights": len(self.encoder.under_way()),
            "schedule": trainer.schedule.state(),
            "optimiser": {name: self._plain(p) for name, p in self._parameters().items()},
            "config": self._config, "widths": trainer.model.widths,
            "feature_norm": trainer.feature_norm,
            "grid": list(trainer.A.grid.shape), "sizes": trainer.A.layout.blocks.sizes,
        }  # fmt: skip

    def _plain(self, p: Tensor) -> dict[str, Any]:
        """What the optimiser keeps of a parameter and is no tensor."""
        kept = self.trainer.optimiser.state.get(p, {})
        return {key: value for key, value in kept.items() if not isinstance(value, Tensor)}

    # Putting back.

    @torch.no_grad()
    def put(self, found: Checkpoint) -> Progress:
        """Take what a checkpoint has; every rank calls it."""
        trainer, facts = self.trainer, found.facts
        try:
            for name, p in self._parameters().items():
                p.copy_(self.places[name].read(found, f"weights/{name}", p))
                trainer.optimiser.state[p] = self._moments(found, name, p)
            for name, buffer in self.encoder.live.named_buffers():
                buffer.copy_(_read(found, f"buffers/{name}"))
            trainer.schedule.load(facts["schedule"])
            trainer.encoder.settle()
            progress = self._progress(found)
            self._put_flights(found, int(facts["flights"]))
        except (
            KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError, OverflowError,
        ) as error:  # fmt: skip
            if isinstance(error, UserError):
                raise
            raise UserError(f"{found.path} does not fit this run ({error}). Use the run's own.") from None
        return progress

    def _moments(self, found: Checkpoint, name: str, p: Tensor) -> dict[str, Any]:
        place, kept = self.places[name], dict(found.facts["optimiser"].get(name, {}))
        prefix = f"optimiser/{name}/"
        given = {full.removeprefix(prefix) for full in found.names(prefix)}
        wanted = kept_shapes(self.trainer.optimiser, torch.Size(place.shape))
        if given and given != wanted.keys():  # none: a parameter that no step has reached
            raise ValueError(f"{prefix} has {sorted(given)}")
        for key in given:
            if found.shape(prefix + key) != wanted[key]:
                raise ValueError(f"{prefix}{key} is {found.shape(prefix + key)}")
            whole = wanted[key] != place.shape
            kept[key] = _read(found, prefix + key) if whole else place.read(found, prefix + key, p)
        return kept

    def _put_flights(self, found: Checkpoint, count: int) -> None:
        weights = [
            {name: self.places[name].read(found, f"flight/{k}/{name}", p)
             for name, p in self.encoder.live.named_parameters()}
            for k in range(count)
        ]  # fmt: skip
        names = [f"flight/{k}/{EMBEDDINGS}" for k in range(count)]
        learned = self.encoder.features.learned
        rows = [
            self.places[EMBEDDINGS].read(found, name, learned)
            for name in names
            if learned is not None and name in found.names()
        ]
        self.encoder.resume(weights, rows)

    def _progress(self, found: Checkpoint) -> Progress:
        facts, comm = found.facts, self.trainer.comm
        shares = [float(share) for share in facts["shares"]]
        if len(shares) == comm.size:
            share = shares[comm.rank]
        else:
            share = sum(shares) if self.first else 0.0
        a, b = facts["best"]
        return Progress(
            int(facts["epoch"]), int(facts["step"]), share, float(facts["elapsed"]),
            found.read("history/loss").tolist(), found.read("history/seconds").tolist(),
            (float(a), float(b)), int(facts["best_epoch"]), self._best(found), int(facts["waited"]),
            int(facts["skipped"]),
        )  # fmt: skip

    def _best(self, found: Checkpoint) -> dict[str, Tensor] | None:
        names = [name.removeprefix("best/") for name in found.names("best/")]
        if not names:
            return None
        now = self.trainer.model.state_dict()
        rows = [name for name in names if name == EMBEDDINGS]
        best = {name: _read(found, f"best/{name}").to(now[name]) for name in names if name not in rows}
        for name in rows:
            best[name] = _read(found, f"best/{name}", self._ids).to(next(iter(now.values())))
        return best


def kept_blocks(found: Checkpoint, n: int, grid: Grid) -> Blocks | None:
    """Who owned which vertex, where the checkpoint says so and the grid is the same one."""
    if "layout/order" not in found.names() or found.facts.get("grid") != list(grid.shape):
        return None
    order = torch.from_numpy(found.read("layout/order"))
    sizes = [int(size) for size in found.facts["sizes"]]
    if len(sizes) != grid.size or min(sizes) < 0 or sum(sizes) != n or order.numel() != n:
        return None
    if not torch.equal(order.sort().values, torch.arange(n, device="cpu")):
        return None
    return Blocks(grid, Listed(order), sizes)


def savable(encoder: Encoder) -> bool:
    """Whether the state between two updates can be kept now; else the encoder gets ready, in two updates.

    Batches of a pipeline have read learned features that are older than the present ones. Nobody keeps these,
    unless a checkpoint is wanted.
    """
    if encoder.features.learned is None:
        return True
    return encoder.recorded()

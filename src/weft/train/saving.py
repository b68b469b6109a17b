"""When a checkpoint is due, and the thread that writes it while training goes on.

Rank 0 decides, and its wish travels with the gradients: all ranks keep the state after the same update. Only
the next update changes it: so a rank's thread copies it while the next step runs forward and back, and that
step's update waits for the copy where it must. Then the thread, at low priority, writes and syncs the rank's
files, and rank 0's puts the checkpoint together when all are there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .checkpoint import Piece, complete, folder_name, missing_shards, part_of, prune, write_shard
from .every import Every
from .state import Progress, State, copied

if TYPE_CHECKING:
    from .trainer import Trainer

_REST = 100
"""An improvement is kept at most every so many times what the last one stalled: it costs 1 % of the time."""
_REST_WRITING = 20
"""The same for what writing took, beside the training."""
_PAUSE = 1.0
"""Seconds between improvements that are kept, at least."""
_NICE = 10
"""How much the thread that writes steps back: it has time until the next checkpoint."""
_LOOK_SECONDS = 0.02


class Writer:
    """One thread that writes one checkpoint at a time, and keeps what went wrong."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.error = ""

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Do `work` beside everything else; the one before has ended by then."""
        self.wait()

        def run() -> None:
            try:
                work()
                self.error = ""
            except OSError as error:
                self.error = error.strerror or str(error)
            except UserError as error:
                self.error = str(error)

        self._thread = threading.Thread(target=run, name="weft checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until it is idle."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Saver:
    """The checkpoints of one run, on one rank.

    due     rank 0: whether the update that comes should be kept
    save    every rank: copies now, files later
    close   every rank: wait for the files
    """

    def __init__(self, trainer: Trainer, run: Path, checksum: Callable[[], str]):
        options = trainer.config.train
        self.every, self.keep = Every.parse(options.checkpoint_every, "checkpoint_every"), options.keep
        self.trainer, self.run, self.state = trainer, run, State(trainer)
        self.comm, self.writer = trainer.comm, Writer()
        self.ranks = trainer.comm.size if self.state.shared_out else 1
        self._checksum, self._sum = checksum, ""
        self._last = time.monotonic()
        self._improved = False
        self.stalls: list[float] = []
        """Seconds that training waited for each checkpoint: for the one before, and for its copy."""
        self.writing = 0.0
        """Seconds that the last one took beside the training."""
        self._copied = threading.Event()
        self._copied.set()
        self.saved: Path | None = None
        """The newest that is complete."""
        self._said = self._lost = ""
        self._give_up = threading.Event()

    @property
    def off(self) -> bool:
        return self.every.unit == "never"

    def improve(self) -> None:
        """There are better weights than those of the last checkpoint."""
        self._improved = True

    def due(self, progress: Progress, steps: int) -> bool:
        """Whether to keep the state after the update that comes. Rank 0's answer counts."""
        step = progress.step + 1
        if self.off:
            return False
        if self.every.unit == "epochs":
            asked = step == steps and progress.epoch % self.every.number == 0
        elif self.every.unit == "batches":
            asked = ((progress.epoch - 1) * steps + step) % self.every.number == 0
        else:
            asked = self._passed > self.every.seconds and not self.writer.busy
        rest = max(_PAUSE, _REST * (self.stalls[-1] if self.stalls else 0.0), _REST_WRITING * self.writing)
        return asked or (self._improved and not self.writer.busy and self._passed > rest)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._last

    def save(self, progress: Progress) -> None:
        """Keep the state as it is now, and go on; every rank calls it after the same update."""
        started = time.perf_counter()
        shares = [float(share) for share in self._meet(progress.share)]
        pieces, facts = self.state.take(progress), self.state.facts(progress, shares)
        self._last, self._improved = time.monotonic(), False
        folder = self.run / "checkpoints" / folder_name(progress.epoch, progress.step)
        rank = self.comm.rank
        if rank < self.ranks:
            self._copied.clear()
            self.writer.start(lambda: self._write(folder, rank, pieces, facts))
        self.stalls.append(time.perf_counter() - started)

    def await_copies(self) -> None:
        """Before an update: until the state before it is copied."""
        if not self._copied.is_set():
            started = time.perf_counter()
            self._copied.wait()
            self.stalls[-1] += time.perf_counter() - started

    def _meet(self, mine: Any) -> list[Any]:
        """What every rank tells, when the files of the last checkpoint are written or given up."""
        if self.comm.rank:
            self.writer.wait()
        told = self.comm.all_gather_json([mine, self.writer.error if self.comm.rank else ""])
        lost = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(told) if error]
        if lost:
            self._lost = lost[0]
            self._give_up.set()
        self.writer.wait()
        self._give_up.clear()
        self._complain()
        return [value for value, _ in told]

    def _write(self, folder: Path, rank: int, pieces: list[Piece], facts: dict[str, Any]) -> None:
        started = time.perf_counter()
        try:
            try:
                pieces = [copied(piece) for piece in pieces]
            except (MemoryError, RuntimeError):  # torch's word for it
                raise UserError("there is no memory for a copy") from None
            finally:
                self._copied.set()
            _step_back()
            write_shard(folder, rank, pieces)
            if rank:
                return
            self._sum = self._sum or self._checksum()
            while missing_shards(folder, self.ranks):
                if self._give_up.wait(_LOOK_SECONDS):
                    raise UserError(self._lost)
            complete(folder, self.ranks, facts | {"graph": self._sum})
        except (OSError, UserError):
            if not rank:
                shutil.rmtree(part_of(folder), ignore_errors=True)
            raise
        self.saved = folder
        prune(self.run, self.keep)
        self.writing = time.perf_counter() - started

    def _complain(self) -> None:
        """A checkpoint that could not be written is a line, once a cause; training goes on."""
        error = self.writer.error
        if error and error != self._said:
            kept = f"{self.saved} is the last good one" if self.saved else "there is none yet"
            print(
                f"weft: no checkpoint was written: {error}; training goes on, {kept}.",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        self._said = error

    def close(self) -> None:
        """Wait for what is being written, and tell what could not be; every rank calls it."""
        self._meet(None)

    def abandon(self) -> None:
        """The run failed: leave nothing half written, wait for nobody."""
        self._lost = "the run failed"
        self._give_up.set()
        self.writer.wait()


def _step_back() -> None:
    """This thread works when others leave it time. Linux alone has that by thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)

"""The loop: epochs, evaluations, early stopping, checkpoints, and being asked to stop.

What a rank decides alone (it was asked to stop; a checkpoint is due) travels with the gradients, so that all
ranks act on it after the same update.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..comm import Ledger
from ..comm.clock import align
from ..graph.store import checksum
from ..parallel import Volume
from ..signals import Asked, listening
from .checkpoint import Checkpoint
from .encoders import Passed, not_foretold
from .gradients import Told
from .measured import MOST_EVENTS, gather
from .numbers import BadNumbers, line
from .result import Result, rss_bytes
from .run import RunFolder
from .saving import Saver
from .state import Progress, State, savable
from .task import Step
from .watch import StepWatch

if TYPE_CHECKING:
    from .trainer import Trainer

OnEpoch = Callable[[dict[str, Any]], None]


def fit(
    trainer: Trainer,
    folder: RunFolder | None = None,
    on_epoch: OnEpoch | None = None,
    resume: Checkpoint | None = None,
) -> Result:
    """Train to the end, to early stopping, or until somebody asks to stop; see `Trainer.fit`."""
    with listening() as asked:
        loop = Loop(trainer, folder, on_epoch, asked, resume)
        try:
            return loop.run()
        except BaseException:
            loop.abandon()
            raise


class Loop:
    """One run of a trainer. `folder` is rank 0's alone."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder | None, on_epoch: OnEpoch | None, asked: Asked,
        resume: Checkpoint | None,
    ):  # fmt: skip
        self.trainer, self.folder, self.on_epoch, self.asked = trainer, folder, on_epoch, asked
        self.options, self.comm = trainer.config.train, trainer.comm
        self.progress = Progress() if resume is None else State(trainer).put(resume)
        run = self.comm.all_gather_json(None if folder is None else str(folder.path))[0]
        self.saver: Saver | None = None
        if run is not None:
            self.saver = Saver(trainer, Path(run), lambda: checksum(trainer.source))
        self.result = Result(resumed=[self.progress.epoch, self.progress.step] if resume else None)
        # An epoch after the first is steady, A·X is kept by then: it is the one that is reported.
        first = self.progress.epoch
        self._first = first
        self._reported = min(first + 1, self.options.epochs)
        if self._reported == first and self.progress.step:
            self._reported = 0  # half an epoch tells nothing
        self._save = self._stop = self._left = False
        self._broken = ""
        self._skipped = 0

    def run(self) -> Result:
        interrupted = False
        try:
            while not self._over():
                self._epoch()
        except KeyboardInterrupt:
            interrupted = True
        except BadNumbers as error:
            self._broken = str(error)
        return self._end(interrupted)

    def abandon(self) -> None:
        if self.saver is not None:
            self.saver.abandon()

    def _over(self) -> bool:
        done = self.progress.epoch > self.options.epochs
        patient = not self.options.patience or self.progress.waited < self.options.patience
        return done or not patient or self._stop

    # An epoch.

    def _epoch(self) -> None:
        trainer, p, result = self.trainer, self.progress, self.result
        reported = p.epoch == self._reported
        if reported and self.comm.size > 1:
            self._foretell()
        watch: StepWatch | None = self._watch() if reported else None
        with watch or nullcontext(), Ledger(self.comm) if self.comm.size > 1 else nullcontext() as moved:
            started = time.perf_counter()
            self._steps()
            loss = math.nan if self._left else trainer.close_epoch(p.share)
            p.elapsed += time.perf_counter() - started
        if self._broken:
            raise BadNumbers(self._broken)
        if self._left:
            return
        if watch is not None:
            result.moved, result.watch = watch.received(), watch
            if self.saver is not None:
                self._measure(p.epoch)
        self._close(loss, 0 if moved is None else moved.words())

    def _foretell(self) -> None:
        """What the epoch will move, where the layers can be run without numbers; every rank calls it."""
        result = self.result
        with not_foretold(self.comm) as why:
            epoch = self.progress.epoch
            result.foretold = self.trainer.predict(epoch, steady=epoch > self._first)
        if why:
            result.foretold, result.not_foretold = Volume(), why[0]

    def _watch(self) -> StepWatch:
        """For the epoch that is reported; every rank calls it."""
        kept = bool(self.options.trace) or self.saver is not None
        watch = StepWatch(self.comm, kept, None if self.options.trace else MOST_EVENTS)
        watch.offsets = align(self.comm) if kept else watch.offsets
        return watch

    def _measure(self, epoch: int) -> None:
        self.result.measured = gather(self.trainer, self.result, epoch)
        if self.folder is not None:
            self.folder.measured(self.result.measured)

    def _steps(self) -> None:
        """The updates of the epoch that are left, or those up to a stop."""
        trainer, p = self.trainer, self.progress
        steps = trainer.task.steps

        def wanted() -> Iterator[Step]:
            for step in trainer.task.epoch(p.epoch, first=p.step):
                if self._left:
                    return
                yield step

        def update(passed: Passed) -> None:
            if self._left:  # a batch that was under way when we stopped: it is run again later
                return
            if self.saver is not None:
                self.saver.await_copies()
            told = trainer.update(passed, self._wish(steps))
            p.step += 1
            if told.finite:
                p.share += float(passed.loss.double()) * passed.step.share
            else:
                self._meet_odd(steps)
            self._heed(told, steps)

        trainer.encoder.run(wanted(), update)

    def _wish(self, steps: int) -> int:
        """What this rank asks of all: 1 to stop; rank 0, size + 1 more to save."""
        save = self.comm.rank == 0 and self.saver is not None and self.saver.due(self.progress, steps)
        return int(self.asked.number > 0) + save * (self.comm.size + 1)

    def _heed(self, told: Told, steps: int) -> None:
        save, stop = divmod(told.wish, self.comm.size + 1)
        self._save, self._stop = self._save or save > 0, self._stop or stop > 0
        p = self.progress
        if p.step == steps or self._left or not (self._save or self._stop):
            return  # at the end of an epoch it is done after the evaluation
        if savable(self.trainer.encoder):
            self._left = self._stop
            self._keep()

    def _keep(self) -> None:
        self._save = False
        if self.saver is not None and not self.saver.off:
            self.saver.save(self.progress)

    def _meet_odd(self, steps: int) -> None:
        """An update that was left out, because a loss or a gradient was not finite."""
        p = self.progress
        p.skipped += 1
        self._skipped += 1
        if self.options.on_nan == "skip" and self._skipped < steps + (p.epoch > 1):
            return
        what = "the loss or a gradient"
        if self.options.on_nan == "skip":
            what = f"{self._skipped} updates in turn were skipped: {what}"
        self._broken, self._left = line(self.trainer, what, p.epoch, p.step), True

    def _close(self, loss: float, words: int) -> None:
        """The epoch's updates are done: evaluate, record, decide."""
        trainer, options, p = self.trainer, self.options, self.progress
        p.loss.append(loss)
        p.seconds.append(p.elapsed)
        record: dict[str, Any] = {"epoch": p.epoch, "loss": loss, "seconds": p.elapsed}
        watched = None
        if p.epoch % options.evaluate_every == 0 or p.epoch == options.epochs:
            metrics = trainer.evaluate(p.epoch)
            record |= metrics
            watched = metrics["val_loss"] if trainer.task.judges else loss
            merit = trainer.task.merit(metrics)
            p.waited += 1
            if merit > p.best:
                p.best, p.best_epoch, p.waited = merit, p.epoch, 0
                if options.keep_weights == "best":
                    p.best_weights = trainer.weights()
                if self.saver is not None:
                    self.saver.improve()
        record |= {
            "words": words, "rss_bytes": rss_bytes(), "lr": trainer.schedule.lr, "at": round(time.time(), 3),
        }  # fmt: skip
        if p.skipped:
            record["skipped"] = p.skipped
        if self.folder is not None:
            self.folder.record(record)
        if self.on_epoch is not None:
            self.on_epoch(record)
        trainer.schedule.step(watched)
        p.epoch, p.step, p.share, p.elapsed = p.epoch + 1, 0, 0.0, 0.0
        if (self._save or self._stop) and p.epoch <= options.epochs:
            self._keep()

    # The end.

    def _end(self, interrupted: bool) -> Result:
        trainer, p, result = self.trainer, self.progress, self.result
        if self.saver is not None:
            self.saver.abandon() if interrupted else self.saver.close()
            result.checkpoint = "" if self.saver.saved is None else str(self.saver.saved)
        if p.best_weights is not None:
            trainer.restore(p.best_weights)
            result.best_epoch = p.best_epoch
        else:
            result.best_epoch = len(p.loss)
        result.loss = p.loss
        result.stalls = [] if self.saver is None else self.saver.stalls
        result.epoch_seconds = statistics.median(p.seconds[1:] or p.seconds or [float("nan")])
        result.interrupted = interrupted or (self._stop and p.epoch <= self.options.epochs)
        if result.interrupted and not interrupted:
            result.stopped_by = max(self.comm.all_gather_json(self.asked.number))
            result.at_step = p.step
        if self._broken:
            self._fail()
        try:
            if self.saver is None:
                metrics = trainer.evaluate(result.best_epoch)
            else:
                metrics, result.details = trainer.judge(result.best_epoch)
            result.scores = trainer.task.scores(metrics)
        except KeyboardInterrupt:  # an impatient one: the weights matter more than their score
            result.interrupted = True
        return result

    def _fail(self) -> None:
        error = BadNumbers(self._broken)
        if self.progress.best_weights is not None:
            error.result = self.result
            self.result.scores = self.trainer.task.scores(self.trainer.evaluate(self.result.best_epoch))
        raise error

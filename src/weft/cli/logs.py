"""What is told of every epoch: lines for `tail -f`, a log of each rank, TensorBoard, Weights & Biases."""

from __future__ import annotations

import datetime
import importlib.util
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, unknown
from ..report.units import told
from ..train.every import Every

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..train import RunConfig, Trainer

Record = dict[str, Any]
OnEpoch = Callable[[Record], None]
SINKS = {"tensorboard": "tensorboard", "wandb": "wandb"}
"""Who can be told by `--log`, and the package that this needs."""
_ASIDE = ("epoch", "at")


def check_logs(config: RunConfig) -> None:
    """Refuse what `--log` and `--log-every` cannot be, before any work is done."""
    Every.parse(config.train.log_every, "log_every", batches=False)
    for name in sinks(config):
        if name not in SINKS:
            raise unknown("log", name, SINKS)
        if importlib.util.find_spec(SINKS[name]) is None:
            raise UserError(f"--log {name} needs the package {SINKS[name]}. Use: pip install {SINKS[name]}.")


def sinks(config: RunConfig) -> list[str]:
    """The names in `--log`."""
    return [name.strip() for name in config.train.log.split(",") if name.strip()]


def line(record: Record, epochs: int, watched: str = "") -> str:
    """One epoch for people: loss, score, seconds, words, memory.

    >>> line({"epoch": 7, "loss": 0.25, "val_accuracy": 0.9, "seconds": 0.0123, "words": 1200}, 200,
    ...      "val_accuracy")
    'epoch       7/200   loss 0.2500   val 0.9000   12.3 ms   1,200 words'
    """
    parts = [f"epoch     {record['epoch']:>{len(str(epochs))}}/{epochs}", f"loss {record['loss']:.4f}"]
    if record.get(watched) is not None and record[watched] == record[watched]:
        parts.append(f"val {record[watched]:.4f}")
    parts.append(told(record["seconds"], "seconds"))
    if record.get("words"):
        parts.append(f"{record['words']:,} words")
    if record.get("rss_bytes"):
        parts.append(told(record["rss_bytes"], "bytes"))
    return "   ".join(parts)


class Lines:
    """Says a line every so many epochs or seconds, the first epoch and the last among them.

    >>> says = Lines(print, 5, "val_accuracy", Every.parse("2"))
    >>> for epoch in range(1, 6):
    ...     says({"epoch": epoch, "loss": 1 / epoch, "seconds": 0.5})
    epoch     1/5   loss 1.0000   500 ms
    epoch     2/5   loss 0.5000   500 ms
    epoch     4/5   loss 0.2500   500 ms
    epoch     5/5   loss 0.2000   500 ms
    """

    def __init__(
        self, say: Callable[[str], None], epochs: int, watched: str, every: Every,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self.say, self.epochs, self.watched, self.every, self.clock = say, epochs, watched, every, clock
        self._said: float | None = None
        self._score: float | None = None

    def __call__(self, record: Record) -> None:
        if self.watched in record:
            self._score = record[self.watched]
        if not self._due(record["epoch"]):
            return
        self._said = self.clock()
        self.say(line({self.watched: self._score} | record, self.epochs, self.watched))

    def _due(self, epoch: int) -> bool:
        if self.every.unit == "never":
            return False
        if self._said is None or epoch == self.epochs:
            return True
        if self.every.unit == "epochs":
            return epoch % int(self.every.number) == 0
        return self.clock() - self._said >= self.every.seconds


class Beats:
    """Lines, and while an epoch takes long a line a minute within it, so that a log shows that it goes on.

    Where lines were asked for by the clock, not more often than these; where none were, none.

    >>> now = [0.0]
    >>> beats = Beats(Lines(print, 5, "", Every.parse("1"), lambda: now[0]), epoch=1)
    >>> for now[0] in (59.0, 60.0, 100.0, 120.0):
    ...     beats.beat()
    epoch     1/5   60 s so far
    epoch     1/5   120 s so far
    >>> beats({"epoch": 1, "loss": 0.5, "seconds": 119.0})
    epoch     1/5   loss 0.5000   119 s
    """

    def __init__(self, lines: Lines, epoch: int, seconds: float = 60.0):
        self.lines, self.epoch = lines, epoch
        never = lines.every.unit == "never"
        asked = lines.every.seconds if lines.every.unit == "seconds" else 0.0
        self.seconds = float("inf") if never else max(seconds, asked)
        self._begun = self._told = lines.clock()
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        with self._lock:
            self.lines(record)
            self.epoch = record["epoch"] + 1
            self._begun = self._told = self.lines.clock()

    def due(self) -> float:
        """Seconds until the next line, if the epoch takes that long."""
        with self._lock:
            return max(0.0, self._told + self.seconds - self.lines.clock())

    def beat(self) -> None:
        """Say how long the epoch has taken so far, where it is time."""
        with self._lock:
            now, epochs = self.lines.clock(), self.lines.epochs
            if now - self._told < self.seconds:
                return
            self._told = now
            if self.epoch <= epochs:  # else the last one is over, and what follows is no epoch
                place = f"{self.epoch:>{len(str(epochs))}}/{epochs}"
                self.lines.say(f"epoch     {place}   {told(now - self._begun, 'seconds')} so far")


@contextmanager
def beating(
    beats: Beats, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[OnEpoch]:
    """`beats`, and a thread that has them say what is due, while this is open."""
    over = threading.Event()

    def go() -> None:
        while not wait(over, min(beats.due(), threading.TIMEOUT_MAX)):
            beats.beat()

    thread = threading.Thread(target=go, name="weft-beats", daemon=True)
    thread.start()
    try:
        yield beats
    finally:
        over.set()
        thread.join()


@contextmanager
def rank_log(trainer: Trainer, folder: Path) -> Iterator[OnEpoch]:
    """A rank's own log in the run folder: where it runs, what it holds, a line an epoch, how it ended."""
    comm = trainer.comm
    path = folder / "logs" / f"rank-{comm.rank}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8", buffering=1)  # a run that goes on adds to it
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Leave out --rank-logs.") from None
    with file:

        def say(text: str) -> None:
            now = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
            file.write(f"{now} {text}\n")

        say(
            f"start     rank {comm.rank} of {comm.size} on {comm.engine}, host {socket.gethostname()}, "
            f"process {os.getpid()}"
        )
        say(f"holds     {trainer.A.rows.numel():,} vertices, {trainer.A.arcs:,} arcs")
        lines = Lines(say, trainer.config.train.epochs, trainer.task.watched, Every("epochs", 1))
        try:
            yield lines
        except BaseException as error:
            say(f"end       {type(error).__name__}: {' '.join(str(error).split())}")
            raise
        say("end       as it should")


@contextmanager
def told_to(config: RunConfig, folder: Path, first: int) -> Iterator[list[OnEpoch]]:
    """What `--log` names, open; rank 0 alone. `first`: the epoch that comes, later ones are told anew."""
    with ExitStack() as stack:
        makers = {"tensorboard": _tensorboard, "wandb": _wandb}
        yield [stack.enter_context(makers[name](config, folder, first)) for name in sinks(config)]


@contextmanager
def _tensorboard(config: RunConfig, folder: Path, first: int) -> Iterator[OnEpoch]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard"), purge_step=first) as writer:

        def tell(record: Record) -> None:
            for name, value in _numbers(record).items():
                writer.add_scalar(name, value, record["epoch"], record.get("at"))
            writer.flush()

        yield tell


@contextmanager
def _wandb(config: RunConfig, folder: Path, first: int) -> Iterator[OnEpoch]:
    import wandb

    kept = folder / "wandb.id"
    try:
        if not kept.exists():
            kept.write_text(f"{secrets.token_hex(6)}\n", encoding="ascii")
        name = kept.read_text(encoding="ascii").strip()[:64]
    except (OSError, UnicodeDecodeError):
        raise UserError(f"cannot keep the run's number in {kept}. Leave out --log wandb.") from None
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "weft"), name=folder.name, id=name, resume="allow",
        dir=str(folder), config=config.as_dict(),
    )  # fmt: skip
    failed = True
    try:
        yield lambda record: run.log(_numbers(record), step=record["epoch"])
        failed = False
    finally:
        run.finish(exit_code=int(failed))


def _numbers(record: Record) -> dict[str, float]:
    return {name: value for name, value in record.items() if name not in _ASIDE and value == value}


def joined(comm: Communicator, folder: Path | None) -> Path:
    """The run folder as every rank names it; every rank calls it."""
    return Path(comm.all_gather_json("" if folder is None else str(folder))[0])

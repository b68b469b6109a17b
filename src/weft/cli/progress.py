"""How far a conversion is: a bar where somebody watches, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import UserError
from ..graph.stream.telling import Telling
from ..units import spell_seconds
from .console import console, is_watched

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STAGES = {
    "draw": "drawing", "read": "reading", "name": "numbering", "key": "sorting", "mirror": "mirroring",
    "write": "writing", "copy": "features",
}  # fmt: skip
EVERY = 10.0
"""Seconds between two lines."""


class Whole(Telling):
    """How much of all stages is done, each as much of it as the bytes that it reads and writes.

    >>> now = iter([0.0, 10.0, 20.0])
    >>> whole = Whole(clock=lambda: next(now))
    >>> whole.expect({"read": 300, "write": 100})
    >>> [whole.left("read", 0, 5), whole.left("read", 1, 3), whole.left("write", 0, 2)]
    [None, 30.0, 6.666666666666667]
    >>> whole.share("write", 1, 2)
    0.875
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._work: dict[str, int] = {}
        self._began: tuple[float, float] | None = None

    def expect(self, work: Mapping[str, int]) -> None:
        self._work, self._began = dict(work), None

    def share(self, stage: str, done: int, total: int) -> float:
        """From 0 to 1; of a stage that was not expected its own share."""
        part = min(1.0, done / total) if total else 1.0
        stages, whole = list(self._work), sum(self._work.values())
        if stage not in stages or not whole:
            return part
        before = sum(self._work[name] for name in stages[: stages.index(stage)])
        return (before + part * self._work[stage]) / whole

    def left(self, stage: str, done: int, total: int) -> float | None:
        """Seconds until all is done, if it goes on as it went; None where nothing says so yet."""
        now, share = self.clock(), self.share(stage, done, total)
        if self._began is None:
            self._began = now, share
        since, first = self._began
        return (now - since) * (1 - share) / (share - first) if share > first else None


class Lines(Telling):
    """A line every ten seconds, and none of what is done sooner.

    >>> now = iter([0.0, 4.0, 10.0, 19.0, 20.5])
    >>> lines = Lines(print, clock=lambda: next(now))
    >>> lines.expect({"read": 3 * 10**9, "write": 10**9})
    >>> for done in range(1, 6):
    ...     lines("read", done * 10**8, 10**9)
    reading   30 %, 0.30 of 1.00 GB; of all 22 %, 51.7 s left
    reading   50 %, 0.50 of 1.00 GB; of all 38 %, 42.7 s left
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = 0.0
        self._clock = clock
        self._whole = Whole(lambda: self._now)
        self._said: float | None = None

    def expect(self, work: Mapping[str, int]) -> None:
        self._whole.expect(work)

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._now = self._clock()
        left = self._whole.left(stage, done, total)
        if self._said is None:
            self._said = self._now
        if self._now - self._said < EVERY:
            return
        self._said = self._now
        own = f"{STAGES[stage]:<9} {100 * done / max(1, total):.0f} %, {amount(stage, done, total)}"
        whole = f"of all {100 * self._whole.share(stage, done, total):.0f} %"
        self._say(f"{own}; {whole}{left_of(left)}")


class Bars(Telling):
    """A bar for each stage, and the time left of the whole."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._whole = bar, Whole()
        self._tasks: dict[str, TaskID] = {}

    def expect(self, work: Mapping[str, int]) -> None:
        self._whole.expect(work)

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(f"{STAGES[stage]:<9}", total=total, note="", left="")
        left = left_of(self._whole.left(stage, done, total)).removeprefix(", ")
        note = amount(stage, done, total)
        for other in self._tasks.values():  # what is left is said once
            self._bar.update(other, left="")
        self._bar.update(self._tasks[stage], completed=done, total=total, note=note, left=left)


def amount(stage: str, done: int, total: int) -> str:
    """
    >>> amount("write", 2_500_000, 10_000_000)
    '2.50 of 10.00 M'
    """
    unit, size = ("GB", 1e9) if stage in ("draw", "read", "copy") else ("M", 1e6)
    return f"{done / size:,.2f} of {total / size:,.2f} {unit}"


def left_of(seconds: float | None) -> str:
    return "" if seconds is None else f", {spell_seconds(seconds)} left"


@contextmanager
def progress() -> Iterator[Telling]:
    """Whom to tell: bars on standard error where somebody watches, else lines there, without escape codes."""
    if not is_watched(sys.stderr):
        yield Lines(lambda line: print(line, file=sys.stderr, flush=True))
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=console(sys.stderr)) as bar:
        try:
            yield Bars(bar)
        except UserError:
            bar.live.transient = True  # the one line of the error stands alone
            raise

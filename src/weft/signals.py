"""Being asked to stop: Ctrl-C, SIGTERM, SIGUSR1 (Slurm's warning), SIGHUP.

The first one asks: training saves at the next step, on all ranks together, and leaves. A second one, later
than a double press, ends the process as it would without weft.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
TWICE_SECONDS = 0.5
"""Signals closer together than this are one request: a double press, or a terminal and a launcher."""


class Asked:
    """Whether somebody asked to stop; once asked, it stays so."""

    def __init__(self) -> None:
        self.number = 0
        """The first signal that came; 0: none yet."""
        self.at_once = False
        """One signal too many came while `noting`."""
        self._since = 0.0

    @property
    def name(self) -> str:
        """For people.

        >>> asked = Asked()
        >>> asked.number = 2
        >>> asked.name
        'Ctrl-C'
        """
        return told(self.number)

    def note(self, number: int) -> bool:
        """A signal came; false where it is one too many, and the process should end at once."""
        if self.number:
            return time.monotonic() - self._since < TWICE_SECONDS
        self.number, self._since = number, time.monotonic()
        return True

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Signals are noted and nothing else, inside of this. Python gives them to the main thread alone."""

        def note(number: int, frame: Any) -> None:
            self.at_once = not self.note(number) or self.at_once

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with _handled_by(note):
            yield


def told(number: int) -> str:
    """A signal's name, as people say it.

    >>> told(15)
    'SIGTERM'
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP, where files that are half written are put away first; `number` tells which."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def tidying() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is inside of this as Ctrl-C does: its scratch files go.

    Python gives signals to the main thread alone; other threads end as they would.
    """

    def end(number: int, frame: Any) -> None:
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled_by(end, (signal.SIGTERM, signal.SIGHUP)):
        yield


_heard: Asked | None = None


def caught(numbers: tuple[signal.Signals, ...] = SIGNALS) -> list[signal.Signals]:
    """Those to listen to: under nohup SIGHUP is ignored, and stays so."""
    return [n for n in numbers if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]


@contextlib.contextmanager
def listening() -> Iterator[Asked]:
    """Signals only ask, inside of this; whoever listens already goes on, and both hear the same.

    Python gives signals to the main thread alone. Virtual ranks are other threads: there the main thread
    listens for them.
    """
    global _heard
    if _heard is not None or threading.current_thread() is not threading.main_thread():
        yield _heard or Asked()
        return
    asked = _heard = Asked()

    def hear(number: int, frame: Any) -> None:
        if asked.note(number):
            return
        signal.signal(number, before[number])
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        os.kill(os.getpid(), number)

    try:
        with _handled_by(hear) as before:
            yield asked
    finally:
        _heard = None


@contextlib.contextmanager
def _handled_by(
    handler: Callable[[int, Any], None], numbers: tuple[signal.Signals, ...] = SIGNALS
) -> Iterator[dict[int, Any]]:
    """These signals go to `handler`, inside of this; (number → who had it before)."""
    before = {int(number): signal.getsignal(number) for number in caught(numbers)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield before
    finally:
        for number, old in before.items():
            signal.signal(number, old)

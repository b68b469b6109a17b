"""Where a rank's time goes: seconds by kind of work, measured outside the maths."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_here = threading.local()


class Meter:
    """Adds up the seconds of every metered kernel that this thread calls while the meter is open.

    >>> import torch
    >>> from weft.kernels import linear
    >>> with Meter() as meter:
    ...     _ = linear(torch.ones(2, 3), torch.ones(3, 4))
    >>> list(meter.seconds)
    ['dense']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.events: list[tuple[str, float, float]] = []
        """(kind, start, seconds) of every call, on the clock of `time.perf_counter`."""

    def __enter__(self) -> Meter:
        _here.open = (*getattr(_here, "open", ()), self)
        return self

    def __exit__(self, *error: Any) -> None:
        _here.open = tuple(meter for meter in _here.open if meter is not self)

    def add(self, kind: str, start: float, seconds: float) -> None:
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        self.events.append((kind, start, seconds))

    def begin(self, kind: str, name: str, operands: Sequence[Any]) -> None:
        """Before a call: what it is asked to do. Seconds need no more; who plans reads the sizes of it, which
        operands without numbers (device meta) have too."""

    def left_out(self, name: str, operands: Sequence[Any]) -> None:
        """A dry run does not ask torch for this: who plans counts it all the same."""


def left_out(name: str, *operands: Any) -> None:
    """Tell open meters of work that a dry run skips."""
    for meter in getattr(_here, "open", ()):
        meter.left_out(name, operands)


def spent(kind: str, start: float, seconds: float) -> None:
    """Tell open meters of time that was measured elsewhere; who plans does not count it."""
    for meter in getattr(_here, "open", ()):
        meter.add(kind, start, seconds)


def metered(kind: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Count a function's time as `kind`; one look where no meter is open."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            meters = getattr(_here, "open", ())
            if not meters:
                return function(*args, **kwargs)
            for meter in meters:
                meter.begin(kind, function.__qualname__, (*args, *kwargs.values()))
            start = time.perf_counter()
            result = function(*args, **kwargs)
            seconds = time.perf_counter() - start
            for meter in meters:
                meter.add(kind, start, seconds)
            return result

        return call

    return wrap

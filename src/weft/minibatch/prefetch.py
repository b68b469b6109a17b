"""Samples of coming batches, drawn by a thread while the present one computes (P³'s prefetching sampler).

    ahead = 0   draw(t)   compute(t)   draw(t + 1)   compute(t + 1)   …
    ahead = k   the thread draws t + 1 … t + k while t computes

Picks follow from (seed, step, hop, vertex): who draws them, and when, changes no bit. The thread sends no
message, so every arc must be at hand. The C++ sampler lets go of Python's lock, and takes one core there.
"""

from __future__ import annotations

import contextvars
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from .. import meter
from ..kernels import native

Asked = TypeVar("Asked")
Drawn = TypeVar("Drawn")


class Ahead(Generic[Asked, Drawn]):
    """Draws for one batch after the other, up to `ahead` of them before their turn.

        draw      what is asked → its sample; with `ahead` it runs in another thread, one call at a time
        metered   whether open meters are told of the time that batches wait; a draw with messages has told it

    >>> ahead = Ahead(lambda step: step * step, 2)
    >>> list(ahead.over([1, 2, 3]))
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(self, draw: Callable[[Asked], Drawn], ahead: int, metered: bool = True):
        self.draw, self.ahead, self.metered = draw, ahead, metered
        self.drawing = 0.0
        """Seconds that draws took, whoever drew."""
        self.waiting = 0.0
        """Seconds that batches waited for their samples."""

    def over(self, asked: Iterable[Asked]) -> Iterator[tuple[Asked, Drawn]]:
        """Everything that is asked with its sample, in order. What is asked is read `ahead` of its turn."""
        if not self.ahead:
            for one in asked:
                yield one, self._waited(functools.partial(self._timed, one))
            return
        context = contextvars.copy_context()  # which kernels are used is known there too
        context.run(native.limit, 1)
        coming: deque[tuple[Asked, Future[Drawn]]] = deque()
        thread = ThreadPoolExecutor(1, "weft-sampler")
        try:
            for one in asked:
                coming.append((one, thread.submit(context.run, self._timed, one)))
                if len(coming) > self.ahead:
                    yield self._next(coming)
            while coming:
                yield self._next(coming)
        finally:
            thread.shutdown(cancel_futures=True)

    def _next(self, coming: deque[tuple[Asked, Future[Drawn]]]) -> tuple[Asked, Drawn]:
        one, future = coming.popleft()
        return one, self._waited(future.result)

    def _timed(self, one: Asked) -> Drawn:
        started = time.perf_counter()
        drawn = self.draw(one)
        self.drawing += time.perf_counter() - started
        return drawn

    def _waited(self, get: Callable[[], Drawn]) -> Drawn:
        started = time.perf_counter()
        drawn = get()
        seconds = time.perf_counter() - started
        self.waiting += seconds
        if self.metered:
            meter.spent("sampling", started, seconds)
        return drawn

"""Times of several contenders in one run: taken in turn, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 7, warmup: int = 2
) -> dict[str, float]:
    """Median seconds of each contender over `rounds`, one call each a round.

    >>> sorted(interleaved({"a": lambda: None, "b": lambda: None}, rounds=3))
    ['a', 'b']
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(-warmup, rounds):
        for name, call in contenders.items():
            started = time.perf_counter()
            call()
            if round_ >= 0:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in seconds.items()}

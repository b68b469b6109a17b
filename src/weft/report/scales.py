"""Ticks that people would choose."""

from __future__ import annotations

import math


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, about so many; `whole`: whole numbers only.

    >>> ticks(0, 1), ticks(1, 4, whole=True), ticks(1, 200, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 2.0, 3.0, 4.0], [50.0, 100.0, 150.0, 200.0])
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round(float((first + i) * step), 12) for i in range(count + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone where there are many.

    >>> log_ticks(0.03, 0.6), log_ticks(1e-3, 1e3)
    ([0.05, 0.1, 0.2, 0.5], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    many = math.log10(high / low) > 3
    found = [float(f"{m}e{p}") for p in powers for m in ((1,) if many else (1, 2, 5))]
    return [t for t in found if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]


def tick_text(value: float, step: float) -> str:
    """A tick's number with as many decimals as its neighbours need.

    >>> tick_text(0.2, 0.2), tick_text(1500, 500), tick_text(1.0, 0.25)
    ('0.2', '1,500', '1.00')
    """
    places = 0
    while places < 6 and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    return f"{value:,.{places}f}"

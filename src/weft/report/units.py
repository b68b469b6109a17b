"""Numbers for people: three digits that count, and a unit that fits."""

from __future__ import annotations

import math

_TIME = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_COUNT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
UNITS = {"seconds": _TIME, "bytes": _BYTES, "count": _COUNT, "score": ((1.0, ""),), "plain": ((1.0, ""),)}


def unit_of(largest: float, kind: str) -> tuple[float, str]:
    """The unit for an axis or a column whose largest number this is: (what to divide by, its name).

    >>> unit_of(0.0123, "seconds"), unit_of(3e6, "bytes"), unit_of(0, "seconds")
    ((0.001, 'ms'), (1000000.0, 'MB'), (1.0, 's'))
    """
    steps = UNITS[kind]
    if not largest or not math.isfinite(largest):
        return next(step for step in steps if step[0] == 1.0)
    if kind == "seconds" and 1 <= largest < 600:
        return 1.0, "s"
    return next((step for step in steps if abs(largest) >= step[0]), steps[-1])


def digits(value: float) -> str:
    """Three digits that count, no exponent, thousands apart.

    >>> digits(0.01234), digits(12.34), digits(1234.5), digits(2.0), digits(0), digits(123)
    ('0.0123', '12.3', '1,234', '2', '0', '123')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.2e}"
    text = f"{value:,.{max(0, 2 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def told(value: float | None, kind: str = "plain") -> str:
    """A number with its unit; a dash for one that is not there.

    >>> told(0.0123, "seconds"), told(5_452_595, "bytes"), told(29475, "count"), told(0.91239, "score")
    ('12.3 ms', '5.45 MB', '29,475', '0.9124')
    >>> told(1.4, "loss"), told(0.000123, "loss")
    ('1.4000', '0.000123')
    >>> told(None), told(float("nan"), "seconds")
    ('–', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if kind == "score":
        return f"{value:.4f}"
    if kind == "loss":  # as the scores beside it, unless nothing of it would be left
        return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else digits(value)
    if kind == "count":
        return f"{value:,.0f}"
    size, name = unit_of(value, kind)
    return f"{digits(value / size)} {name}".strip()


def short(value: float, kind: str = "count") -> str:
    """The same where there is little room.

    >>> short(29475), short(999), short(1.5e6)
    ('29.5k', '999', '1.5M')
    """
    size, name = unit_of(value, kind)
    return f"{digits(value / size)}{name}"

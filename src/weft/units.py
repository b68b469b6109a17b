"""Numbers with units as people read them: three digits, in the unit that fits."""

from __future__ import annotations

from collections.abc import Sequence

_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SECONDS = ((86400.0, "d"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def spell_bytes(count: float) -> str:
    """
    >>> spell_bytes(38e9), spell_bytes(2_500_000), spell_bytes(999_700), spell_bytes(0)
    ('38 GB', '2.5 MB', '1 MB', '0 B')
    """
    return _spelled(count, _BYTES)


def spell_rate(bytes_a_second: float) -> str:
    """
    >>> spell_rate(8.6e9), spell_rate(1_234_000)
    ('8.6 GB/s', '1.23 MB/s')
    """
    return f"{spell_bytes(bytes_a_second)}/s"


def spell_seconds(seconds: float) -> str:
    """Hours from a thousand seconds on; nobody counts minutes of seconds.

    >>> spell_seconds(0.0123), spell_seconds(3.21), spell_seconds(999.7e-6), spell_seconds(4.1e-6)
    ('12.3 ms', '3.21 s', '1 ms', '4.1 µs')
    >>> spell_seconds(840), spell_seconds(7200), spell_seconds(0)
    ('840 s', '2 h', '0 s')
    """
    return _spelled(
        seconds, [unit for unit in _SECONDS if unit[0] <= 1 or seconds >= max(1000, unit[0])], "s"
    )


def _spelled(value: float, units: Sequence[tuple[float, str]], zero: str = "B") -> str:
    """In the largest unit of which there is one, after rounding to three digits."""
    if not value:
        return f"0 {zero}"
    size, unit = next((u for u in units if float(f"{abs(value):.3g}") >= u[0]), units[-1])
    number = value / size
    return f"{number:,.0f} {unit}" if abs(number) >= 999.5 else f"{number:.3g} {unit}"

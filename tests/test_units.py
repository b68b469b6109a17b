"""Units that fit, and one style of tables."""

from __future__ import annotations

import pytest

from weft.bench.comm import table
from weft.units import spell_bytes, spell_rate, spell_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3e-9, "3 ns"), (999.4e-6, "999 µs"), (999.7e-6, "1 ms"), (0.9996, "1 s"), (59.94, "59.9 s"),
     (999, "999 s"), (3600, "1 h"), (90000, "1.04 d"), (1e9, "11,574 d")],
)  # fmt: skip
def test_seconds_have_three_digits_in_the_unit_that_fits(seconds, text):
    assert spell_seconds(seconds) == text


def test_bytes_and_rates_do_too():
    assert [spell_bytes(n) for n in (0, 17, 999, 999_600)] == ["0 B", "17 B", "999 B", "1 MB"]
    assert spell_bytes(5e18) == "5,000 PB"
    assert spell_rate(4e5) == "400 kB/s"


def test_a_column_of_the_table_of_messages_has_one_kind_of_unit():
    """A slow engine's large message was 0.00 GB/s, and beside it stood 999.7 µs."""
    row = {"engine": "mpi", "operation": "iswap", "ranks": 2, "alpha": 1e-6, "beta": 1e-10}
    slow = row | {"engine": "torch"}
    rows = [
        row | {"bytes": 4000, "seconds": 999.7e-6, "bandwidth": 4e6},
        row | {"bytes": 4_000_000, "seconds": 4e-4, "bandwidth": 1e10},
        slow | {"bytes": 4000, "seconds": 2.0, "bandwidth": 2e3},
        slow | {"bytes": 4_000_000, "seconds": 20.0, "bandwidth": 2e5},
    ]
    assert table(rows) == (
        "engine  operation  4 kB      4 MB     α        β\n"
        "mpi     iswap      1 ms   10 GB/s  1 µs  10 GB/s\n"
        "torch   iswap       2 s  200 kB/s  1 µs  10 GB/s"
    )

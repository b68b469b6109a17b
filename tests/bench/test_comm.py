"""The bench has a row for every operation and size; its fit is not moved by one bad time."""

from __future__ import annotations

import pytest

from weft.bench import comm as bench
from weft.errors import UserError


def test_every_operation_and_size_has_a_row() -> None:
    rows = bench.bench(["threads"], ranks=2, sizes=[800, 8000])
    assert [(row["operation"], row["bytes"]) for row in rows] == [
        (operation, size) for operation in bench.OPERATIONS for size in (800, 8000)
    ]
    assert all(row["seconds"] > 0 and row["alpha"] >= 0 and row["beta"] >= 0 for row in rows)
    assert len(bench.table(rows).splitlines()) == 1 + len(bench.OPERATIONS)


def test_one_bad_time_does_not_move_the_fit() -> None:
    sizes = [10.0**k for k in range(3, 9)]
    seconds = [1e-5 + 2e-10 * size for size in sizes]
    seconds[2] *= 20
    alpha, beta = bench.fit(sizes, seconds)
    assert alpha == pytest.approx(1e-5, rel=0.1)
    assert beta == pytest.approx(2e-10, rel=0.1)


def test_one_rank_cannot_be_benched() -> None:
    with pytest.raises(UserError, match="Use --ranks 2 or more"):
        bench.bench(["threads"], ranks=1)

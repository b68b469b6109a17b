"""Columns of text that stay whole however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Sequence


def columns(heads: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """A line of heads and a line per row; the first `left` columns flush left, numbers flush right.

    >>> print(columns(["method", "rows"], [["metis", "1,024"], ["random", 7]]))
    method   rows
    metis   1,024
    random      7
    """
    cells = [list(map(str, line)) for line in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )

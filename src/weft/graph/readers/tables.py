"""Tables of numbers without a head, gzipped or not: a line a row, commas between columns."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.guard import check_fits
from weft.graph.readers.files import read_bytes


def read_table(path: Path, whole: bool = False, columns: int | None = None) -> np.ndarray:
    """[rows, columns] int64 where `whole`, else float32; a missing number is NaN, and refused where `whole`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("0.5,1\\n2,\\n")
    ...     read_table(path).tolist()
    [[0.5, 1.0], [2.0, nan]]
    """
    import pyarrow as pa
    import pyarrow.csv as pacsv

    data = read_bytes(path)
    if not data.strip():
        return np.empty((0, columns or 1), np.int64 if whole else np.float32)
    wide = columns or data[: data.find(b"\n") if b"\n" in data else len(data)].count(b",") + 1
    check_fits(2 * (data.count(b"\n") + 1) * wide * 8, f"{path}: {wide} columns", held=len(data))
    kind = pa.int64() if whole else pa.float32()
    names = [f"c{k}" for k in range(wide)]
    try:
        table = pacsv.read_csv(
            io.BytesIO(data),
            pacsv.ReadOptions(column_names=names, use_threads=False),
            pacsv.ParseOptions(quote_char=False),
            pacsv.ConvertOptions(column_types=dict.fromkeys(names, kind), null_values=["", "nan", "NaN"]),
        )
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:140]
        raise UserError(f"{path}: {_place(data, wide, whole)} ({reason}). Fetch it again.") from None
    found = np.empty((len(table), wide), np.int64 if whole else np.float32)
    for k, column in enumerate(table.columns):
        if whole and column.null_count:
            raise UserError(f"{path}: {_place(data, wide, whole)}. Fetch it again.")
        found[:, k] = column.to_numpy()
    return found


def _place(data: bytes, wide: int, whole: bool) -> str:
    """The first line that is not `wide` numbers.

    >>> _place(b"1,2\\n3,x\\n", 2, True)
    "line 2 is b'3,x', not 2 whole numbers"
    """
    for number, line in enumerate(data.split(b"\n"), 1):
        cells = line.strip().split(b",")
        if line.strip() and (len(cells) != wide or not all(_is_number(cell, whole) for cell in cells)):
            sort = "whole numbers" if whole else "numbers"
            return f"line {number} is {line[:40]!r}, not {wide} {sort}"
    return "it is not a table of numbers"


def _is_number(cell: bytes, whole: bool) -> bool:
    try:
        int(cell) if whole else float(cell or b"nan")
    except ValueError:
        return False
    return True

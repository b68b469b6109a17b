"""Matrix Market files (.mtx): a square sparse matrix as a graph."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from weft.errors import UserError, unknown
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.columns import read_columns
from weft.graph.readers.files import read_bytes, stem

_WIDTHS = {"pattern": 2, "real": 3, "integer": 3, "double": 3, "unsigned-integer": 3}
_MIRRORS = {"general": 0, "symmetric": 1, "skew-symmetric": -1}


def read_matrix_market(path: str | Path) -> Graph:
    """The graph of a square coordinate matrix: entry (i, j) is the arc i → j, as in scipy and PyG.

    `pattern` gives no weights; `real` and `integer` give float32 weights. `symmetric` stores both triangles.
    Entries given twice are one arc, with the sum of the weights.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.mtx"
    ...     _ = path.write_text("%%MatrixMarket matrix coordinate pattern general\\n3 3 2\\n1 2\\n1 3\\n")
    ...     read_matrix_market(path)
    Graph(toy: 3 vertices, 2 arcs)
    """
    data = read_bytes(path)
    n, entries, width, mirror, start = read_head(data, path)
    # scipy's reader is as fast, but crashes the process on some damaged files.
    row, col, values = read_columns(data, path, start)
    if len(row) != entries:
        raise UserError(f"{path} announces {entries} entries but has {len(row)}. Fetch it again.")
    if entries and (3 if values is not None else 2) != width:
        raise UserError(
            f"{path} has {'no ' if width == 3 else ''}values beside its entries. Correct its first line."
        )
    for ends in (row, col):
        if entries and not 1 <= ends.min() <= ends.max() <= n:
            wild = int(ends.min() if ends.min() < 1 else ends.max())
            raise UserError(f"{path}: index {wild} is out of range for {n}x{n}. Indices run from 1 to {n}.")
    row, col = row - 1, col - 1
    if mirror:
        off = row != col
        row, col = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
        values = None if values is None else np.concatenate([values, mirror * values[off]])
    with about(path):
        return Graph.from_arcs(row, col, n, values, name=stem(path))


def read_head(data: bytes, path: str | Path, held: int | None = None) -> tuple[int, int, int, int, int]:
    """Vertices, entries, numbers a line, sign of the mirrored triangle, and where the entries begin.

    `held` are the bytes of the file where `data` is only its beginning.

    >>> read_head(b"%%MatrixMarket matrix coordinate real symmetric\\n3 3 2\\n", "toy.mtx")
    (3, 2, 3, 1, 54)
    """
    lines = io.BytesIO(data)
    banner = lines.readline(1024).decode("latin1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise UserError(f"{path} does not begin with '%%MatrixMarket matrix …'. Give a Matrix Market file.")
    layout, field, symmetry = (word[:40] for word in banner[2:])
    if layout != "coordinate":
        raise UserError(f"{path} holds a dense matrix ({layout!r}). Give one with 'coordinate'.")
    with about(path):
        if field not in _WIDTHS:
            raise unknown("kind of entries", field, list(_WIDTHS)[:3])
        if symmetry not in _MIRRORS:
            raise unknown("symmetry", symmetry, _MIRRORS)
    line = lines.readline()
    while line and (not line.strip() or line.lstrip().startswith(b"%")):
        line = lines.readline()
    try:
        rows, cols, entries = (int(word) for word in line[:100].split())
    except ValueError:
        text = line.strip()[:40].decode("latin1")
        raise UserError(
            f"{path}: size line {text!r}. Give three whole numbers: rows, columns, entries."
        ) from None
    if rows != cols:
        raise UserError(f"{path} is {rows}x{cols}, not square. A graph needs as many rows as columns.")
    if rows < 0:
        raise UserError(f"{path}: {rows} rows. Give a size of 0 or more.")
    check_fits(8 * (rows + 1), f"{path}: {rows} vertices", held=len(data) if held is None else held)
    return rows, entries, _WIDTHS[field], _MIRRORS[symmetry], lines.tell()

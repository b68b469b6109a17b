"""Matrix Market files (.mtx): a square sparse matrix as a graph."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import scipy.io

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import read_bytes, stem

_FIELDS = ("pattern", "real", "integer", "double", "unsigned-integer")


def read_matrix_market(path: str | Path) -> Graph:
    """The graph of a square coordinate matrix: entry (i, j) is the arc i → j, as in scipy and PyG.

    `pattern` gives no weights; `real` and `integer` give float32 weights. `symmetric` stores both triangles.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.mtx"
    ...     _ = path.write_text("%%MatrixMarket matrix coordinate pattern general\\n3 3 2\\n1 2\\n1 3\\n")
    ...     read_matrix_market(path)
    Graph(toy: 3 vertices, 2 arcs)
    """
    data = read_bytes(path)
    field = _check_head(data, path)
    try:
        matrix = scipy.io.mmread(io.BytesIO(data))
    except (ValueError, OverflowError, TypeError) as error:
        raise UserError(
            f"{path} is a damaged Matrix Market file ({_short(error)}). Fetch it again."
        ) from None
    coo = matrix.tocoo()
    weights = None if field == "pattern" else coo.data.astype(np.float32)
    with about(path):
        return Graph.from_arcs(coo.row, coo.col, coo.shape[0], weights, name=stem(path))


def _check_head(data: bytes, path: str | Path) -> str:
    """The kind of entries, after the sizes that the file announces were found possible."""
    lines = io.BytesIO(data)
    banner = lines.readline(1024).decode("latin1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise UserError(f"{path} does not begin with '%%MatrixMarket matrix …'. Give a Matrix Market file.")
    layout, field = banner[2], banner[3]
    if layout != "coordinate":
        raise UserError(f"{path} holds a dense matrix ('{layout[:20]}'). Give one with 'coordinate'.")
    if field not in _FIELDS:
        raise UserError(f"{path} holds '{field[:20]}' entries. Use pattern, real or integer.")
    line = lines.readline()
    while line and (not line.strip() or line.lstrip().startswith(b"%")):
        line = lines.readline()
    try:
        rows, cols, entries = (int(word) for word in line.split())
    except ValueError:
        text = line.strip()[:40].decode("latin1")
        raise UserError(
            f"{path}: size line {text!r}. Give three whole numbers: rows, columns, entries."
        ) from None
    if rows != cols:
        raise UserError(f"{path} is {rows}x{cols}, not square. A graph needs as many rows as columns.")
    if min(rows, entries) < 0 or entries > len(data) // 3:
        raise UserError(f"{path} announces {entries} entries but has only {len(data)} bytes. Fetch it again.")
    check_fits(8 * (rows + 1) + 64 * entries, f"{path}: {rows} vertices")
    return field


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]

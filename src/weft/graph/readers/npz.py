"""npz archives: plain numpy arrays of a CSR matrix, features and labels."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.arrays import Of, key_of, named
from weft.graph.graph import MASKS, Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import DAMAGED, PARSING, existing_file, stem
from weft.graph.readers.merged import note_merged
from weft.graph.rows import check_index_pointer


def read_npz(path: str | Path) -> Graph:
    """The graph of an npz file. Three layouts are known; what stands in brackets may be missing.

        adj_indptr, adj_indices, [adj_data], [shape], [labels], [attr_indptr, attr_indices, attr_data and
                                                                 attr_shape: features as CSR]
        indptr, indices, [data], [shape], [labels], [features], [train_mask, val_mask, test_mask]
        row, col, [data], [shape]: a COO matrix, as scipy and the artifact of Besta et al. save one

    In all, arc_NAME [nnz] or [nnz, d] (in the order of the indices) is arc data, vertex_NAME vertex data.

    Entry (i, j) of the matrix is the arc i → j, as scipy's csgraph and PyG read it; so the file's rows are
    out-neighbours, and its columns become the graph's rows, the in-neighbours. Arcs stay as stored:
    `symmetrised()` makes them undirected. No pickle is ever read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.npz"
    ...     np.savez(path, indptr=np.array([0, 2, 2]), indices=np.array([0, 1]))
    ...     read_npz(path).rows
    tensor([0, 1])
    """
    arrays = arrays_of(existing_file(path))
    if "row" in arrays and "indptr" not in arrays:
        return _coordinates(arrays, path)
    prefix = "adj_" if "adj_indptr" in arrays else ""
    indptr, indices = (_whole(arrays, prefix + key, path) for key in ("indptr", "indices"))
    form = arrays.get("format")
    if form is not None and form.tobytes().replace(b"\0", b"") != b"csr":
        raise UserError(
            f"{path} holds a sparse matrix in another form than csr. Save it with matrix.tocsr()."
        )
    n = len(indptr) - 1
    if "shape" in arrays:
        rows, cols = _shape(arrays, "shape", path)
        if rows != cols:
            raise UserError(f"{path} is {rows}x{cols}, not square. A graph needs as many rows as columns.")
        if rows != n:
            raise UserError(f"{path}: shape says {rows} vertices, indptr {n}. Correct the file.")
    with about(path):
        check_index_pointer(torch.from_numpy(indptr), len(indices))
        source = np.repeat(np.arange(n), np.diff(indptr))
        carried = _named(arrays, "arc", path)
        graph = Graph.from_arcs(source, indices, n, arrays.get(prefix + "data"), carried, name=stem(path))
        graph = graph.replace(**_belongings(arrays, n, path), vertex_data=_named(arrays, "vertex", path))
    note_merged(path, len(indices), graph)
    return graph


def _coordinates(arrays: dict[str, np.ndarray], path: str | Path) -> Graph:
    """The graph of a COO matrix: entry (row[k], col[k]) is the arc row[k] → col[k]."""
    source, target = (_whole(arrays, key, path) for key in ("row", "col"))
    if len(source) != len(target):
        raise UserError(f"{path}: {len(source):,} rows for {len(target):,} columns. Save it again.")
    n = 1 + max((int(ids.max(initial=-1)) for ids in (source, target)), default=-1)
    if "shape" in arrays:
        rows, cols = _shape(arrays, "shape", path)
        if rows != cols:
            raise UserError(f"{path} is {rows}x{cols}, not square. A graph needs as many rows as columns.")
        n = rows
    check_fits(8 * (n + 1), f"{path}: {n} vertices", held=source.nbytes + target.nbytes)
    with about(path):
        carried = _named(arrays, "arc", path)
        weights = _numbers(arrays, "data", path) if "data" in arrays else None
        if weights is not None and (weights == 1).all():
            weights = None  # a matrix of ones says where arcs are, and no more
        graph = Graph.from_arcs(source, target, n, weights, carried, name=stem(path))
        graph = graph.replace(**_belongings(arrays, n, path), vertex_data=_named(arrays, "vertex", path))
    note_merged(path, len(source), graph)
    return graph


def _named(arrays: dict[str, np.ndarray], of: Of, path: str | Path) -> dict[str, torch.Tensor]:
    keys = {name: key_of(of, name) for name in named(arrays, of)}
    return {name: torch.from_numpy(_numbers(arrays, key, path)) for name, key in keys.items()}


def _belongings(arrays: dict[str, np.ndarray], n: int, path: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "attr_indptr" in arrays:
        found["features"] = torch.from_numpy(_dense_features(arrays, n, path))
    elif "features" in arrays:
        found["features"] = torch.from_numpy(_numbers(arrays, "features", path))
    if "labels" in arrays:
        found["labels"] = torch.from_numpy(_numbers(arrays, "labels", path))
    for key in MASKS:
        if key in arrays:
            found[key] = torch.from_numpy(_numbers(arrays, key, path))
    return found


def _dense_features(arrays: dict[str, np.ndarray], n: int, path: str | Path) -> np.ndarray:
    """[n, f] float32 from the CSR arrays attr_*."""
    rows, width = _shape(arrays, "attr_shape", path)
    indptr, columns = (_whole(arrays, key, path) for key in ("attr_indptr", "attr_indices"))
    values = (
        _numbers(arrays, "attr_data", path) if "attr_data" in arrays else np.ones(len(columns), np.float32)
    )
    if rows != n or len(indptr) != n + 1:
        raise UserError(f"features have {rows} rows for {n} vertices. Give one row a vertex.")
    check_index_pointer(torch.from_numpy(indptr), len(columns))
    if values.shape != columns.shape:
        raise UserError(f"{len(values)} feature values for {len(columns)} feature columns. Make them equal.")
    if len(columns) and not 0 <= columns.min() <= columns.max() < width:
        wild = int(columns.min() if columns.min() < 0 else columns.max())
        raise UserError(f"feature column {wild} is out of range for width {width}. Correct the file.")
    held = indptr.nbytes + columns.nbytes + values.nbytes
    check_fits(4 * n * width, f"{path}: features {n}x{width}", held)
    dense = np.zeros((n, width), dtype=np.float32)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which Graph refuses
        dense[np.repeat(np.arange(n), np.diff(indptr)), columns] = values
    return dense


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the archive; sizes are compared with what the archive really holds before allocating."""
    shown = path
    try:
        with zipfile.ZipFile(path) as archive:
            announced = sum(info.file_size for info in archive.infolist())
            check_fits(2 * announced, str(shown), held=2 * path.stat().st_size)
            return {
                info.filename.removesuffix(".npy"): _array(archive, info, shown)
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except UserError:
        raise
    except (*DAMAGED, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{shown} is not a sound npz file ({reason}). Fetch or save it again.") from None


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, shown: str | Path) -> np.ndarray:
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read_head = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        with PARSING:
            shape, _, dtype = read_head(stream)
        if dtype.hasobject:
            raise UserError(
                f"{shown}: {info.filename} holds Python objects (a pickle). Save plain arrays of numbers."
            )
        if math.prod(shape) * dtype.itemsize > info.file_size:
            raise UserError(f"{shown}: {info.filename} announces more than it holds. Fetch or save it again.")
    with archive.open(info) as stream, PARSING:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _get(arrays: dict[str, np.ndarray], key: str, path: str | Path) -> np.ndarray:
    if key not in arrays:
        known = ", ".join(sorted(arrays))[:120] or "nothing"
        raise UserError(
            f"{path} has no array '{key}', only {known}. Give indptr and indices of a CSR matrix."
        )
    return arrays[key]


def _whole(arrays: dict[str, np.ndarray], key: str, path: str | Path) -> np.ndarray:
    array = _get(arrays, key, path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(
            f"{path}: {key} is {array.ndim}-dimensional {array.dtype}. Give a list of whole numbers."
        )
    return array.astype(np.int64, copy=False)


def _numbers(arrays: dict[str, np.ndarray], key: str, path: str | Path) -> np.ndarray:
    array = _get(arrays, key, path)
    if array.dtype.kind not in "iufb" or array.dtype.itemsize > 8:
        raise UserError(f"{path}: {key} is {array.dtype}. Give plain numbers.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _shape(arrays: dict[str, np.ndarray], key: str, path: str | Path) -> tuple[int, int]:
    sizes = _whole(arrays, key, path).tolist()
    if len(sizes) != 2 or min(sizes) < 0:
        raise UserError(f"{path}: {key} is {sizes[:4]}. Give two sizes: rows and columns.")
    return sizes[0], sizes[1]

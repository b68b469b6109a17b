"""Planetoid's raw files (Yang et al. 2016): Cora, CiteSeer, PubMed as Python 2 pickles."""

from __future__ import annotations

import io
import math
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import check_fits
from weft.graph.readers.files import existing_file, read_bytes

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")


def read_planetoid(folder: str | Path) -> Graph:
    """The graph of a folder with `ind.NAME.x`, `.y`, `.tx`, `.ty`, `.allx`, `.ally`, `.graph`, `.test.index`.

        features  rows of allx, then tx at the places that test.index names; places it skips are zero
        arcs      both directions of each pair in `graph`, once; self-loops left out
        split     train: the rows of y; val: the next 500; test: test.index

    Vertices that test.index skips (CiteSeer has some) are unlabelled. The files are pickles; the reader
    admits numpy arrays, csr_matrix, defaultdict and list, as inert records, and refuses everything else.

    >>> read_planetoid("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no folder no/such/folder. Check the path.
    """
    folder, name = _find(Path(folder))
    paths = {part: folder / f"ind.{name}.{part}" for part in _PARTS}
    raw = {part: _unpickle(path) for part, path in paths.items()}
    x, y, tx, ty, allx, ally = (_matrix(raw[part], paths[part]) for part in _PARTS[:-1])
    test = _test_index(folder / f"ind.{name}.test.index")
    train, known = len(y), len(allx)
    n = max(known, int(test.max(initial=-1)) + 1)
    agree = len(ally) == known and len(test) == len(tx) == len(ty) and len(x) == train <= known
    agree = agree and x.shape[1] == allx.shape[1] == tx.shape[1] and ally.shape[1] == ty.shape[1]
    if not agree or (len(test) and test.min() < known) or n > known + 100 * (len(test) + 1):
        raise UserError(f"the parts of {folder}/ind.{name}.* do not fit together. Fetch all of them again.")
    check_fits(8 * n * allx.shape[1], f"{folder}: features {n}x{allx.shape[1]}")
    features = np.zeros((n, allx.shape[1]), dtype=np.float32)
    features[:known], features[test] = allx, tx
    onehot = np.zeros((n, ally.shape[1]), dtype=np.float32)
    onehot[:known], onehot[test] = ally, ty
    labels = np.where(onehot.any(axis=1), onehot.argmax(axis=1), -1)

    source, target = _arcs(raw["graph"], n, paths["graph"])
    masks = np.zeros((3, n), dtype=bool)
    masks[0, :train] = True
    masks[1, train : min(train + 500, known)] = True
    masks[2, test] = True
    keep = source != target
    graph = Graph.from_arcs(source[keep], target[keep], n, name=name).symmetrised()
    train_mask, val_mask, test_mask = torch.from_numpy(masks)
    return graph.replace(
        features=torch.from_numpy(features),
        labels=torch.from_numpy(labels),
        num_classes=onehot.shape[1],
        train_mask=train_mask,
        val_mask=val_mask,
        test_mask=test_mask,
    )


def is_planetoid(folder: Path) -> bool:
    """Whether `folder`, or `raw` inside it, holds Planetoid files.

    >>> is_planetoid(Path("/"))
    False
    """
    return any(any(place.glob("ind.*.graph")) for place in (folder, folder / "raw") if place.is_dir())


def _find(folder: Path) -> tuple[Path, str]:
    if not folder.is_dir():
        raise UserError(f"no folder {folder}. Check the path.")
    for place in (folder, folder / "raw"):
        if place.is_dir():
            names = sorted(path.name.split(".")[1] for path in place.glob("ind.*.graph"))
            if len(names) > 1:
                raise UserError(f"{place} holds {' and '.join(names)}. Keep one data set a folder.")
            if names:
                return place, names[0]
    raise UserError(f"{folder} holds no Planetoid files (ind.NAME.graph). Check the path.")


def _test_index(path: Path) -> np.ndarray:
    words = read_bytes(path).split()
    try:
        index = np.array([int(word) for word in words], dtype=np.int64)
    except (ValueError, OverflowError):
        raise UserError(f"{path} does not hold one vertex id a line. Fetch it again.") from None
    if len(np.unique(index)) != len(index):
        raise UserError(f"{path} names a vertex twice. Fetch it again.")
    return index


def _arcs(adjacency: Any, n: int, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(adjacency, dict):
        raise UserError(f"{path} holds no dict of neighbour lists. Fetch it again.")
    try:
        counts = [len(others) for others in adjacency.values()]
        source = np.repeat(np.array(list(adjacency), dtype=np.int64), counts)
        target = np.array([other for others in adjacency.values() for other in others], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{path} holds neighbours that are not whole numbers. Fetch it again.") from None
    for ends in (source, target):
        if len(ends) and not 0 <= ends.min() <= ends.max() < n:
            wild = int(ends.min() if ends.min() < 0 else ends.max())
            raise UserError(f"{path}: vertex id {wild} is out of range for {n} vertices. Fetch it again.")
    return source, target


# The pickle machine builds only the inert records below. Not even numpy's own code sees the file's claims:
# they are checked here, and arrays are made with frombuffer.


class Record:
    """What a pickle says of one object: the arguments it is made with, the state it is then given."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(Record): ...


class _Array(Record): ...


class _Csr(Record): ...


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class Unpickler(pickle._Unpickler):
    """Python's own machine in Python: unlike the one in C, its memo does not grow to an index in the file."""

    # A bytearray is allocated at the length that the file announces; these files have none.
    dispatch = dict(pickle._Unpickler.dispatch)  # noqa: RUF012
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise UserError(
                f"the pickle asks for the forbidden class {module}.{name}"[:200] + ". Do not trust this file."
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        raise UserError("the pickle asks for an outside object. Do not trust this file.")


def _unpickle(path: Path) -> Any:
    data = read_bytes(existing_file(path))
    try:
        return Unpickler(io.BytesIO(data), encoding="latin1").load()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{path} is a damaged pickle ({type(error).__name__}). Fetch it again.") from None


def _matrix(record: Any, path: Path) -> np.ndarray:
    """[rows, columns] of numbers from the record of an array or of a csr_matrix."""
    try:
        matrix = _dense(record, path) if isinstance(record, _Csr) else plain_array(record)
    except UserError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
        raise UserError(f"{path} holds no sound matrix. Fetch it again.") from None
    if matrix.ndim != 2:
        raise UserError(
            f"{path} holds a {matrix.ndim}-dimensional array where a matrix is due. Fetch it again."
        )
    return matrix


def plain_array(record: Any) -> np.ndarray:
    """An array from its pickled state: (version, shape, dtype, Fortran order, raw bytes)."""
    _, shape, dtype, fortran, raw = record.state
    if not isinstance(record, _Array) or not isinstance(dtype, _Dtype):
        raise ValueError("no array")
    kind = np.dtype(str(dtype.args[0]))
    if kind.kind not in "iufb":
        raise ValueError("no numbers")
    kind = kind.newbyteorder(dtype.state[1] if dtype.state[1] in "<>" else "=")
    if isinstance(raw, str):
        raw = raw.encode("latin1")  # Python 2 wrote bytes as str
    if math.prod(shape) * kind.itemsize != len(raw):
        raise ValueError("wrong length")
    array = np.frombuffer(raw, dtype=kind).reshape(shape, order="F" if fortran else "C")
    return array.astype(kind.newbyteorder("="))


def _dense(record: _Csr, path: Path) -> np.ndarray:
    indptr, columns, values = (plain_array(record.state[key]) for key in ("indptr", "indices", "data"))
    rows, width = (int(size) for size in record.state["_shape" if "_shape" in record.state else "shape"])
    sound = indptr.ndim == columns.ndim == values.ndim == 1 and len(indptr) == rows + 1
    sound = sound and indptr.dtype.kind == columns.dtype.kind == "i" and len(columns) == len(values)
    if not sound or indptr[0] != 0 or indptr[-1] != len(columns) or (np.diff(indptr) < 0).any():
        raise ValueError("bad rows")
    if len(columns) and not 0 <= columns.min() <= columns.max() < width:
        raise ValueError("bad columns")
    held = indptr.nbytes + columns.nbytes + values.nbytes
    check_fits(4 * rows * width, f"{path}: {rows}x{width} numbers", held)
    dense = np.zeros((rows, width), dtype=np.float32)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which Graph refuses
        dense[np.repeat(np.arange(rows), np.diff(indptr)), columns] = values
    return dense

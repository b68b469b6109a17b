"""Rows of in-neighbours: made from arcs in any order, and checked."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError

_SOME_ARCS = 1 << 18
"""Looked at together."""


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("weft._native")
    except ImportError:
        return None


extension: ModuleType | None = _load()
"""The C++, where it is built; the results are the same without."""


class Compressed(NamedTuple):
    """Rows, ascending, each column once.

    indptr [n+1] int64;  indices [nnz];  weights [nnz] or None
    kept   [nnz] int64: which of the given arcs each is, of many the first; None where nobody asked
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None
    kept: Tensor | None


def compress(
    rows: np.ndarray, cols: np.ndarray, values: np.ndarray | None, n: int, merge: np.ufunc, track: bool
) -> Compressed:
    """Sorted rows from arcs in any order; the values of an arc given many times are merged by `merge`.

    >>> found = compress(np.array([1, 0, 1]), np.array([1, 1, 1]), None, 2, np.add, track=True)
    >>> found.indptr.tolist(), found.indices.tolist(), found.kept.tolist()
    ([0, 1, 2], [1, 1], [1, 0])
    """
    if n >= 3_037_000_499:
        raise UserError(
            f"{n} vertices are too many. weft sorts arcs by row*n + column, which must fit into 63 bits."
        )
    key = rows.astype(np.int64) * n + cols
    order: np.ndarray | None = None
    if values is None and not track:
        key.sort()
    else:
        order = np.argsort(key, kind="stable")  # stable: duplicates are summed in the order given
        key, values = key[order], None if values is None else values[order]
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    if not first.all():
        if values is not None:
            values = merge.reduceat(values, np.nonzero(first)[0])
        key, order = key[first], None if order is None else order[first]
    row, col = np.divmod(key, max(n, 1))
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=indptr[1:])
    indices = torch.from_numpy(col).to(index_dtype(n))
    weights = None if values is None else torch.from_numpy(values)
    kept = torch.from_numpy(order) if track else None
    return Compressed(torch.from_numpy(indptr), indices, weights, kept)


def check_csr(indptr: Tensor, indices: Tensor) -> None:
    """Check that rows are well formed: ends, order, range, ascending without duplicates.

    >>> check_csr(torch.tensor([0, 1]), torch.tensor([3]))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: vertex id 3 is out of range for 1 vertices (0 to 0). Correct the id.
    """
    check_index_pointer(indptr, len(indices) if indices.dim() == 1 else -1)
    n, nnz = len(indptr) - 1, len(indices)
    if not nnz:
        return
    lo, hi = (int(v) for v in torch.aminmax(indices))
    if lo < 0 or hi >= n:
        raise UserError(out_of_range(lo if lo < 0 else hi, n))
    falls = indices[1:] <= indices[:-1]
    starts = indptr[1:-1]
    falls[starts[(starts > 0) & (starts < nnz)] - 1] = False
    if bool(falls.any()):
        at = int(torch.nonzero(falls)[0])
        row = int(torch.searchsorted(indptr, at, right=True)) - 1
        raise UserError(
            f"row {row} lists {int(indices[at + 1])} after {int(indices[at])}. "
            "Sort each row and drop duplicates, or use Graph.from_arcs."
        )


def check_index_pointer(indptr: Tensor, nnz: int) -> None:
    """Check that `indptr` rises from 0 to `nnz`.

    >>> check_index_pointer(torch.tensor([0, 2, 1]), 1)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: indptr falls from 2 to 1 at row 1. It must never fall.
    """
    if nnz < 0 or indptr.dim() != 1 or not len(indptr):
        raise UserError("indptr and indices must be lists: n+1 and nnz whole numbers.")
    first, last = int(indptr[0]), int(indptr[-1])
    falls = indptr[1:] < indptr[:-1]
    if bool(falls.any()):
        at = int(torch.nonzero(falls)[0])
        raise UserError(
            f"indptr falls from {int(indptr[at])} to {int(indptr[at + 1])} at row {at}. It must never fall."
        )
    if first != 0 or last != nnz:
        raise UserError(f"indptr runs from {first} to {last} for {nnz} indices. It must run from 0 to {nnz}.")


def arc_pieces(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(row, place) of the arcs starts[k]..ends[k]-1 of every row k, at most `_SOME_ARCS` at a time.

    >>> [(row.tolist(), place.tolist()) for row, place in arc_pieces(np.array([7, 0]), np.array([9, 1]))]
    [([0, 0, 1], [7, 8, 0])]
    """
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    for first in range(0, int(before[-1]), _SOME_ARCS):
        number = np.arange(first, min(first + _SOME_ARCS, int(before[-1])))
        low, high = np.searchsorted(before, [number[0], number[-1]], side="right") - 1
        inside = np.clip(before[low : high + 2], number[0], number[-1] + 1)
        row = np.repeat(np.arange(low, high + 1), np.diff(inside))
        yield row, number - before[row] + starts[row]


def copy_stretches(source: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """source[starts[k]:ends[k]] for every k, one behind the other, into `out`.

    >>> copy_stretches(np.arange(9), np.array([7, 0]), np.array([9, 1]), out := np.zeros(3, int))
    >>> out.tolist()
    [7, 8, 0]
    """
    if extension is not None and source.flags.c_contiguous and out.flags.c_contiguous:
        each = source.dtype.itemsize * math.prod(source.shape[1:])
        starts, ends = (np.ascontiguousarray(x, dtype=np.int64) for x in (starts, ends))
        if len(starts) and not (starts.min() >= 0 and (starts <= ends).all() and ends.max() <= len(source)):
            raise ValueError("a stretch is outside of what is copied from")
        if int((ends - starts).sum()) != len(out) or source.dtype != out.dtype:
            raise ValueError("what is copied to has another size or type")
        at = (x.ctypes.data for x in (starts, ends))
        extension.cut_gather(source.ctypes.data, len(starts), *at, each, out.ctypes.data)
        return
    at_out = 0
    for _, places in arc_pieces(starts, ends):
        out[at_out : at_out + len(places)] = source[places]
        at_out += len(places)


def index_dtype(num_nodes: int) -> torch.dtype:
    """int32 where vertex ids fit into it, int64 else.

    >>> index_dtype(100), index_dtype(2**31)
    (torch.int32, torch.int64)
    """
    return torch.int32 if num_nodes < 2**31 else torch.int64


def vertex_ids(ids: Any, side: str) -> np.ndarray:
    """Vertex ids as int64; one line where they are none.

    >>> vertex_ids([0, -1], "source")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: source id -1 is negative. Vertex ids start at 0.
    """
    array = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(
            f"{side} ids are {array.ndim}-dimensional {array.dtype}. Give a list of whole numbers."
        )
    lo = int(array.min())
    if lo < 0:
        raise UserError(f"{side} id {lo} is negative. Vertex ids start at 0.")
    return array.astype(np.int64, copy=False)


def out_of_range(value: int, n: int) -> str:
    return f"vertex id {value} is out of range for {n} vertices (0 to {n - 1}). Correct the id."

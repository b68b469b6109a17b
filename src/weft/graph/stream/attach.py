"""What comes from files of its own: features in pieces, labels and a split of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import MASKS, Graph
from weft.graph.guard import about
from weft.graph.readers.files import map_array
from weft.graph.split import split
from weft.graph.writer import Part, Writer

if TYPE_CHECKING:
    from weft.graph.stream.convert import Options

_PIECE = 1 << 22


class Attached:
    """Features, labels and masks of n vertices, checked as those of a `Graph` are.

    Shapes are checked at once, the rest is read in `write`, when no arcs are held any more: features piece by
    piece, labels and masks as a whole, some 40 bytes a vertex.
    """

    def __init__(self, options: Options, n: int, free: int) -> None:
        self._n = n
        self.num_features = self.num_classes = 0
        self._features = None if options.features is None else numbers(options.features)
        self._path = options.features
        if self._features is not None:
            self._check_features(self._features)
            self.num_features = self._features.shape[1]
        self._options = options
        if options.split is not None and options.labels is None:
            raise UserError("there are no labels to split. Give some with --labels.")
        if options.labels is None:
            return
        if 40 * n > free:
            raise UserError(
                f"labels of {n} vertices take {40 * n / 1e9:,.1f} GB, {free / 1e9:,.1f} GB are left. "
                "Give more --memory."
            )
        shape = map_array(options.labels).shape
        if len(shape) not in (1, 2) or shape[0] != n:
            told = "x".join(map(str, shape)) or "one number"
            raise UserError(
                f"{options.labels}: labels have shape {told}; {n} vertices need {n} of them. "
                "Give one a vertex."
            )

    def _labelled(self, path: str) -> Graph:
        """A graph without arcs that has the labels, and the split."""
        with about(path):
            labels = torch.from_numpy(np.array(numbers(path), order="C"))
            none = torch.zeros(0, dtype=torch.int64, device="cpu")
            pointers = torch.zeros(self._n + 1, dtype=torch.int64, device="cpu")
            graph = Graph(pointers, none, labels=labels)
        options = self._options
        return graph if options.split is None else split(graph, *options.split, options.seed)

    @staticmethod
    def bytes_of(options: Options) -> int:
        """About what they take in the store."""
        paths = [path for path in (options.features, options.labels) if path is not None]
        return sum(os.stat(path).st_size for path in paths if os.path.isfile(path))

    @property
    def has_features(self) -> bool:
        """Whether there are features, if of width 0."""
        return self._features is not None

    @property
    def kind(self) -> str:
        """The type of features in the store."""
        assert self._features is not None
        return "<f8" if self._features.dtype == np.float64 else "<f4"

    def rows(self, part: Part, first: int, last: int, told: Callable[[int], None]) -> None:
        """Features of vertices first..last-1, into their place; `told` hears of how many rows are there."""
        assert self._features is not None
        step = max(1, _PIECE // max(1, self._features.shape[1]))
        for begin in range(first, last, step):
            with np.errstate(over="ignore"):
                some = _rows(self._features, begin, min(last, begin + step)).astype(self.kind)
            if not np.isfinite(some).all():
                row, column = (int(at[0]) for at in np.nonzero(~np.isfinite(some)))
                wild = float(some[row, column])
                raise UserError(
                    f"{self._path}: feature {column} of vertex {begin + row} is {wild}. "
                    "Replace it by a finite number."
                )
            part.append(some)
            told(min(last, begin + step) - first)

    def write(self, writer: Writer) -> None:
        """Append the labels and masks."""
        if self._options.labels is not None:
            graph = self._labelled(self._options.labels)
            self.num_classes = graph.num_classes
            for key in ("labels", *MASKS):
                if (x := getattr(graph, key)) is not None:
                    writer.add(key, x.numpy())

    def _check_features(self, x: np.ndarray) -> None:
        if x.ndim != 2 or len(x) != self._n:
            shape = "x".join(map(str, x.shape)) or "one number"
            raise UserError(
                f"{self._path}: features have shape {shape}; {self._n} vertices need {self._n}xF. "
                "Give one row a vertex."
            )


def _rows(array: np.ndarray, first: int, last: int) -> np.ndarray:
    """Rows of a mapped array, read: pages of a map would count as this process's memory."""
    if not isinstance(array, np.memmap) or not array.flags.c_contiguous or array.filename is None:
        return np.asarray(array[first:last])
    each = math.prod(array.shape[1:])
    at = array.offset + first * each * array.itemsize
    found = np.fromfile(array.filename, array.dtype, (last - first) * each, offset=at)
    return found.reshape(last - first, *array.shape[1:])


def numbers(path: str) -> np.ndarray:
    """A .npy file's array of plain numbers, mapped; unsigned ones, which torch does not know, as int64."""
    array = map_array(path)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise UserError(f"{path} does not hold plain numbers. Save one array with numpy.save.")
    plain = np.int64 if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
    return array if array.dtype == plain else array.astype(plain)

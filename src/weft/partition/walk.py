"""Rows of a graph or of a store in passes: some arcs at a time, nothing else is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..graph import Graph, Store
from ..graph.rows import index_dtype

Source = Graph | Store
_ROWS = 1 << 20
"""Pointers read at a time."""


@dataclass(frozen=True)
class Raw:
    """Some rows that follow each other as they lie in the graph, with their loops.

    indptr [rows + 1] int64, from 0 on;  columns [arcs] vertex, int32 or int64
    """

    begin: int
    indptr: np.ndarray
    columns: np.ndarray

    @property
    def count(self) -> int:
        return len(self.indptr) - 1

    @property
    def end(self) -> int:
        return self.begin + self.count

    def each(self) -> Iterator[tuple[int, np.ndarray]]:
        """(vertex, the others that it reads) of every row."""
        for row in range(self.count):
            near = self.columns[self.indptr[row] : self.indptr[row + 1]]
            yield self.begin + row, near[near != self.begin + row]


class Walk:
    """The rows of a graph or a store, some arcs at a time, as often as one likes."""

    def __init__(self, source: Source, cuts: list[int]):
        self.source, self._cuts = source, cuts
        self.n, self.arcs = source.num_nodes, source.num_arcs

    @classmethod
    def over(cls, source: Source, buffer: int) -> Walk:
        """Cut the rows into stretches of some `buffer` arcs; the pointers are read, once."""
        cuts, start, before = [0], 0, 0  # arcs before the stretch that is open, and before these rows
        for first in range(0, source.num_nodes, _ROWS):
            last = min(first + _ROWS, source.num_nodes)
            if isinstance(source, Store):
                counts = source.rows(first, last, only=("indptr",)).indptr.diff().numpy()
            else:
                counts = source.indptr[first : last + 1].diff().numpy()
            ends = before + np.cumsum(counts)
            while (fits := first + int(np.searchsorted(ends, start + buffer, side="right"))) < last:
                cuts.append(max(fits, cuts[-1] + 1))
                start = int(ends[cuts[-1] - 1 - first]) if cuts[-1] > first else before
            before = int(ends[-1])
        if cuts[-1] != source.num_nodes:
            cuts.append(source.num_nodes)
        return cls(source, cuts)

    def __len__(self) -> int:
        """In how many pieces a pass comes."""
        return len(self._cuts) - 1

    def piece(self, number: int) -> Raw:
        """One of them."""
        first, last = self._cuts[number], self._cuts[number + 1]
        if isinstance(self.source, Store):
            rows = self.source.rows(first, last, only=("indices",))
            return Raw(first, rows.indptr.numpy(), self._ids(rows.indices))
        pointers = self.source.indptr[first : last + 1]
        columns = self.source.indices[int(pointers[0]) : int(pointers[-1])]
        return Raw(first, (pointers - pointers[0]).numpy(), self._ids(columns))

    def _ids(self, columns: Tensor) -> np.ndarray:
        """int32 where vertices fit into it, whatever the graph keeps."""
        return columns.to(index_dtype(self.n)).numpy()

    def raw(self) -> Iterator[Raw]:
        """All rows, a pass."""
        for number in range(len(self)):
            yield self.piece(number)

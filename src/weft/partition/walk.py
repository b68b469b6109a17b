"""Rows of a graph or of a store in passes: some arcs at a time, nothing else is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Store

Source = Graph | Store
_ROWS = 1 << 20
"""Pointers read at a time."""


@dataclass(frozen=True)
class Chunk:
    """Some rows that follow each other, without their loops.

    row [arcs] in 0..rows-1;  column [arcs] vertex;  weight [rows] nonzeros of A + I
    """

    begin: int
    row: np.ndarray
    column: np.ndarray
    weight: np.ndarray

    @property
    def end(self) -> int:
        return self.begin + len(self.weight)


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

    def __iter__(self) -> Iterator[Chunk]:
        for first, last in zip(self._cuts, self._cuts[1:], strict=False):
            if isinstance(self.source, Store):
                rows = self.source.rows(first, last, only=("indices",))
                counts, column = rows.indptr.diff().numpy(), rows.indices.numpy()
            else:
                pointers = self.source.indptr[first : last + 1]
                counts = pointers.diff().numpy()
                column = self.source.indices[int(pointers[0]) : int(pointers[-1])].numpy()
            row = np.repeat(np.arange(last - first, dtype=np.int64), counts)
            loop = column == row + first
            weight = counts + 1
            if loop.any():
                weight[row[loop]] -= 1
                row, column = row[~loop], column[~loop]
            yield Chunk(first, row, column, weight)

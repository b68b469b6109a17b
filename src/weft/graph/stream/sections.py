"""Sections of the store that are made while arcs come in order: pointers, what arcs carry, ids."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

import numpy as np

from weft.graph.stream.native import Ranks
from weft.graph.writer import Part, Writer, raw_bytes


class Grows(Protocol):
    """Something that takes entries one after another."""

    def append(self, array: np.ndarray) -> None: ...


class Pointers:
    """indptr of rows first..last-1 from rows in ascending order and their counts: none of it is held.

    They are the rows' ends, counted from `first` on; `zero` stands before those of the first rank.
    """

    def __init__(self, grows: Grows, first: int, last: int, zero: bool) -> None:
        self._grows, self._last, self._row, self.total = grows, last, first, 0
        self._open = 0
        if zero:
            grows.append(np.zeros(1, np.int64))

    def add(self, rows: np.ndarray, counts: np.ndarray) -> None:
        """Arcs of further rows; the first may be the last of before."""
        if len(rows):
            self._upto(int(rows[-1]), rows, counts)

    def _upto(self, last: int, rows: np.ndarray, counts: np.ndarray) -> None:
        """Rows before `last` are complete; `last` may get more."""
        at = 0
        while self._row < last:
            first, stop = self._row, min(last, self._row + (1 << 20))
            end = at + int(np.searchsorted(rows[at:], stop))
            lengths = np.zeros(stop - first, np.int64)
            lengths[rows[at:end].astype(np.int64) - first] = counts[at:end]
            lengths[0] += self._open
            self._open = 0
            ends = self.total + np.cumsum(lengths)
            self._grows.append(ends)
            self.total, self._row, at = int(ends[-1]), stop, end
        self._open += int(counts[at:].sum())

    def end(self) -> None:
        none = np.zeros(0, np.int64)
        self._upto(self._last, none, none)


class Spool:
    """Entries that must wait until their place in the store is known. `row` is the shape of one."""

    def __init__(self, path: Path, kind: str, row: tuple[int, ...] = ()) -> None:
        self._path, self._kind, self._file = path, kind, open(path, "wb")  # noqa: SIM115 - closed in `to`
        self._row = row

    def append(self, array: np.ndarray) -> None:
        self._file.write(raw_bytes(np.ascontiguousarray(array)))

    def to(self, part: Part, more: int = 0) -> None:
        """All of it into the store, with `more` added to each."""
        self._file.close()
        with open(self._path, "rb") as file:
            each = np.dtype(self._kind).itemsize * math.prod(self._row)
            while read := file.read(max(1, (1 << 24) // each) * each):
                values = np.frombuffer(read, self._kind).reshape(-1, *self._row)
                part.append(values + more if more else values)
        self._path.unlink()


def write_ids(writer: Writer, ranks: Ranks) -> None:
    grows = writer.grow("ids", "<i8")
    step = 1 << 22
    for first in range(0, len(ranks.present) * 64, step):
        grows.append(ranks.ids(first, min(first + step, len(ranks.present) * 64)))
    grows.end()

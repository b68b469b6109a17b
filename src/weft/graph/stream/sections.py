"""Sections of the store that are made while arcs come in order: pointers, what arcs carry, ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.graph.stream.native import Ranks
from weft.graph.writer import Growing, Writer, raw_bytes


class Pointers:
    """indptr from rows in ascending order and their counts: none of it is held."""

    def __init__(self, grows: Growing, n: int) -> None:
        self._grows, self._n, self._row, self.total = grows, n, 0, 0
        self._open = 0
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
        self._upto(self._n, none, none)
        self._grows.end()


class Spool:
    """A section that must wait for another to end."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind, self._file = path, kind, open(path, "wb")  # noqa: SIM115 - closed in `to`

    def append(self, values: np.ndarray) -> None:
        self._file.write(raw_bytes(np.ascontiguousarray(values)))

    def to(self, writer: Writer, name: str) -> None:
        self._file.close()
        grows = writer.grow(name, self._kind)
        with open(self._path, "rb") as file:
            while part := file.read(1 << 24):
                grows.append(np.frombuffer(part, self._kind))
        grows.end()
        self._path.unlink()


def write_ids(writer: Writer, ranks: Ranks) -> None:
    grows = writer.grow("ids", "<i8")
    step = 1 << 22
    for first in range(0, len(ranks.present) * 64, step):
        grows.append(ranks.ids(first, min(first + step, len(ranks.present) * 64)))
    grows.end()

"""Labels from a file of their own, and a split of them, into a store some vertices at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.errors import UserError
from weft.graph.guard import about
from weft.graph.split import PARTS, SOME, draw
from weft.graph.stream.mapped import Mapped
from weft.graph.writer import Writer


class Labels:
    """Labels of n vertices, checked and stored as those of a `Graph` are, bit for bit.

        [n] whole numbers     classes from 0 on, -1 for none
        [n, c] of 0 and 1     many labels a vertex

    The file is read three times at most: for its classes, to be stored, and for the split, which holds what
    `weft.graph.split.draw` does.
    """

    def __init__(self, path: str, n: int, shares: tuple[float, float] | None, seed: int, free: int) -> None:
        self._path, self._n, self._shares, self._seed = path, n, shares, seed
        self._file = Mapped(path)
        shape = self._file.shape
        if len(shape) not in (1, 2) or shape[0] != n:
            raise UserError(
                f"{path}: labels have shape {_told(shape)}; {n} vertices need {n} of them. Give one a vertex."
            )
        needed = 0 if shares is None else n * (7 if n < 2**31 else 11)
        if needed > free:
            raise UserError(
                f"a split of {n} vertices takes {needed / 1e9:,.1f} GB, {free / 1e9:,.1f} GB are left. "
                "Give more --memory."
            )
        self.num_classes = 0

    def write(self, writer: Writer) -> None:
        """Append the labels and, where there are shares, the masks."""
        with about(self._path):
            several = len(self._file.shape) == 2
            self.num_classes = self._check_flags() if several else self._check_classes()
            kind, row = ("|b1", self._file.shape[1:]) if several else ("<i8", ())
            grows = writer.grow("labels", kind, row)
            for piece in self._pieces():
                grows.append(piece.astype(kind, copy=False))
            grows.end()
        if self._shares is None:
            return
        part = draw(self._pieces(), self._n, *self._shares, self._seed)
        for key, number in PARTS.items():
            grows = writer.grow(key, "|b1")
            for first in range(0, self._n, SOME):
                grows.append(part[first : first + SOME] == number)
            grows.end()

    def _pieces(self) -> Iterator[np.ndarray]:
        width = self._file.shape[1] if len(self._file.shape) == 2 else 1
        step = max(1, SOME // max(1, width))
        for first in range(0, self._n, step):
            yield self._file.rows(first, min(self._n, first + step))

    def _check_classes(self) -> int:
        """How many classes there are."""
        if self._file.dtype.kind != "i":
            raise UserError(f"labels are {self._file.dtype}. Give whole numbers, 0 to classes-1, or -1.")
        top, wild, at = -1, None, 0
        for piece in self._pieces():
            top = max(top, int(piece.max()))
            below = np.flatnonzero(piece < -1)
            if wild is None and len(below):
                wild = int(piece[below[0]]), at + int(below[0])
            at += len(piece)
        if wild is not None:
            raise UserError(
                f"label {wild[0]} of vertex {wild[1]} is outside the classes 0 to {top}. "
                "Correct it, or use -1 for unlabelled."
            )
        return top + 1

    def _check_flags(self) -> int:
        for piece in self._pieces() if self._file.dtype != np.bool_ else ():
            if not ((piece == 0) | (piece == 1)).all():
                raise UserError(
                    f"labels of shape {_told(self._file.shape)} are {self._file.dtype}; "
                    "many labels a vertex need bool."
                )
        return self._file.shape[1]


def _told(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"

"""What comes from files of its own: features in pieces, labels and a split of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.graph.stream.labels import Labels
from weft.graph.stream.mapped import Mapped
from weft.graph.writer import Part, Writer

if TYPE_CHECKING:
    from weft.graph.stream.convert import Options

_PIECE = 1 << 22


class Attached:
    """Features, labels and masks of n vertices, checked as those of a `Graph` are.

    Shapes are checked at once, the rest is read in `write`, when no arcs are held any more, piece by piece.
    """

    def __init__(self, options: Options, n: int, free: int) -> None:
        self._n = n
        self.num_features = 0
        self._features = None if options.features is None else Mapped(options.features)
        self._path = options.features
        if self._features is not None:
            self._check_features(self._features)
            self.num_features = self._features.shape[1]
        if options.split is not None and options.labels is None:
            raise UserError("there are no labels to split. Give some with --labels.")
        self._labels = (
            None if options.labels is None else Labels(options.labels, n, options.split, options.seed, free)
        )

    @property
    def num_classes(self) -> int:
        """How many classes the labels have, once they were written."""
        return 0 if self._labels is None else self._labels.num_classes

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
                some = self._features.rows(begin, min(last, begin + step)).astype(self.kind)
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
        if self._labels is not None:
            self._labels.write(writer)

    def _check_features(self, x: Mapped) -> None:
        if len(x.shape) != 2 or x.shape[0] != self._n:
            shape = "x".join(map(str, x.shape)) or "one number"
            raise UserError(
                f"{self._path}: features have shape {shape}; {self._n} vertices need {self._n}xF. "
                "Give one row a vertex."
            )

"""Matrix Market as segments: an edge list from 1 on, whose size and symmetry stand at the top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.errors import UserError
from weft.graph.readers.matrix_market import read_head
from weft.graph.stream.pieces import Arcs, Bad
from weft.graph.stream.text import Text


class Matrix(Text):
    """A square coordinate matrix. Entry (i, j) is the arc i → j; a symmetric one has the mirrors too."""

    fixed = True
    base = 1
    _entries = _width = _sign = _n = 0

    def _preamble(self, head: bytes) -> int:
        held = (4 if self.packed else 1) * self.size
        self._n, self._entries, self._width, self._sign, start = read_head(head, self.path, held)
        self.num_nodes, self.undirected = self._n, False
        return start

    def parse(self, block: bytes, lines_before: Callable[[], int], bad: Bad) -> Arcs:
        """The entries of whole lines; indices are checked here."""
        arcs = super().parse(block, lines_before, bad)
        for ends in (arcs.source, arcs.target):
            if len(ends) and not 0 <= ends.min() <= ends.max() < self._n:
                wild = int(ends.min() if ends.min() < 0 else ends.max()) + 1
                size = f"{self._n}x{self._n}"
                raise UserError(
                    f"{self.path}: index {wild} is out of range for {size}. Indices run from 1 to {self._n}."
                )
        return replace(arcs, sign=self._sign)

    def check(self, given: int) -> None:
        """As many entries as announced, with values or without as the first line says."""
        if given != self._entries:
            raise UserError(f"{self.path} announces {self._entries} entries but has {given}. Fetch it again.")
        if self._entries and self.columns != self._width:
            kind = "no " if self._width == 3 else ""
            raise UserError(f"{self.path} has {kind}values beside its entries. Correct its first line.")

"""Arcs laid out for a reduction by any function of two: rows of about one length stand side by side.

    row of d arcs    →    a column of `size` ≥ d places, the spare ones padded
    rows of one size →    [size, k]: halves are combined with halves until one is left

torch has no sum by row for a function that it does not know. Here a level of the tree is one call for many
rows, without an index. A row of more than `_LONG` arcs is cut into pieces, which are then reduced like arcs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .csr import CSR

_LONG = 512
"""Arcs that stand in one column."""
_NUMBERS = 1 << 19
"""Numbers at a time: they stay in the cache, and bound the memory."""
_SIZES = [1, 2, 3, *(q << shift for shift in range(7) for q in (4, 5, 6, 7)), _LONG]
"""A row is padded by a quarter at most."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of one size.

    arcs  [size, k]  places of their arcs;  spare  [size, k] bool, or None: none is padded
    to    [k]        where the results go;  row  [k]  the rows that they belong to
    """

    arcs: Tensor
    spare: Tensor | None
    to: Tensor
    row: Tensor


@dataclass(frozen=True)
class Group:
    """All pieces of one size: where each begins, how long it is, and the same as in `Chunk`."""

    size: int
    begin: Tensor
    length: Tensor
    to: Tensor
    row: Tensor

    def chunks(self, width: int) -> Iterator[Chunk]:
        """Its pieces, so many at a time that width × arcs stays small."""
        step = max(1, _NUMBERS // (self.size * max(width, 1)))
        place = torch.arange(self.size, device=self.begin.device)[:, None]
        for first in range(0, self.begin.numel(), step):
            some = slice(first, first + step)
            length = self.length[some]
            spare = place >= length
            arcs = self.begin[some] + torch.minimum(place, length - 1)
            yield Chunk(arcs, spare if bool(spare.any()) else None, self.to[some], self.row[some])


class Segments:
    """The layout of one matrix; made once (`of`).

        whole    rows of one piece: results go to rows
        pieces   those of longer rows: results go to places among `count` pieces
        above    [rows, count], which pieces a row consists of; None: there are none

    >>> a = CSR(torch.tensor([0, 3, 3, 4]), torch.tensor([0, 1, 2, 0]), None, (3, 3))
    >>> [(group.size, group.row.tolist()) for group in Segments.of(a).whole]
    [(1, [2]), (3, [0])]
    """

    def __init__(self, a: CSR):
        counts = a.counts
        pieces = (counts + _LONG - 1) // _LONG
        row = torch.repeat_interleave(torch.arange(a.shape[0], device=counts.device), pieces)
        ahead = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
        number = torch.arange(row.numel(), device=row.device) - ahead[row]
        begin = a.indptr[row] + _LONG * number
        length = torch.minimum(a.indptr[row + 1] - begin, torch.full_like(begin, _LONG))
        long = pieces[row] > 1
        self.whole = _groups(begin[~long], length[~long], row[~long], row[~long])
        self.count = int(long.sum())
        places = torch.arange(self.count, device=row.device)
        self.pieces = _groups(begin[long], length[long], places, row[long])
        self._indptr = torch.cat([pieces.new_zeros(1), torch.where(pieces > 1, pieces, 0).cumsum(0)])
        self._rows = a.shape[0]

    @classmethod
    def of(cls, a: CSR) -> Segments:
        """The matrix's own, made on first use and kept with it."""
        found = a.__dict__.get("segments")
        if found is None:
            found = a.__dict__["segments"] = cls(a)
        return found

    @cached_property
    def above(self) -> CSR | None:
        if not self.count:
            return None
        places = torch.arange(self.count, device=self._indptr.device)
        return CSR(self._indptr, places, None, (self._rows, self.count))


def _groups(begin: Tensor, length: Tensor, to: Tensor, row: Tensor) -> list[Group]:
    """By size, each size's pieces in their order."""
    sizes = torch.tensor(_SIZES, device=begin.device)
    kind = torch.bucketize(length, sizes)
    order = torch.argsort(kind, stable=True)
    ends = torch.bincount(kind, minlength=len(_SIZES)).tolist()
    groups = []
    for size, some in zip(_SIZES, order.split(ends), strict=True):
        if some.numel():
            groups.append(Group(size, begin[some], length[some], to[some], row[some]))
    return groups

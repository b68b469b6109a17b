"""Who owns which vertices and columns.

Vertices are renumbered so that those of one rank are neighbours, rank by rank: then slab I_i, and
U(i,k) = ∪_f V(i,k,f), are ranges of places. Which vertex stands where is a `Numbering`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import UserError
from ..graph.rows import index_dtype
from .grid import Grid
from .numbering import SOME, Dealt, InOrder, Listed, Numbering


def even_sizes(count: int, parts: int) -> list[int]:
    """Sizes of `parts` blocks of `count` things, as even as can be, the larger ones first.

    >>> even_sizes(7, 3), even_sizes(2, 4)
    ([3, 2, 2], [1, 1, 0, 0])
    """
    least, more = divmod(count, parts)
    return [least + (part < more) for part in range(parts)]


def count_parts(parts: Tensor, ranks: int) -> Tensor:
    """How many vertices each part has, looked at some at a time; refuses a part of no rank. [ranks] int64

    >>> count_parts(torch.tensor([1, 0, 1]), 3).tolist()
    [1, 2, 0]
    """
    sizes = torch.zeros(ranks, dtype=torch.int64, device=parts.device)
    for some in parts.split(SOME):
        ends = torch.stack(torch.aminmax(some)).tolist() if some.numel() else [0, 0]
        if not 0 <= ends[0] <= ends[1] < ranks:
            raise UserError(
                f"the partition has part {ends[0] if ends[0] < 0 else ends[1]}, but {ranks} ranks have 0 to "
                f"{ranks - 1}. Make it with --parts {ranks}."
            )
        sizes += torch.bincount(some.long(), minlength=ranks)
    return sizes


@dataclass(frozen=True, eq=False)
class Blocks:
    """n vertices on a grid: rank p owns those at the places offsets[p] … offsets[p + 1] − 1.

    >>> blocks = Blocks.even(7, Grid(2, 1, 2))
    >>> blocks.sizes, blocks.slab(0), blocks.union(1, 0)
    ([2, 2, 2, 1], (0, 4), (4, 7))
    """

    grid: Grid
    numbering: Numbering
    """Which vertex stands at which place."""
    sizes: list[int]
    """Vertices of each rank."""

    @classmethod
    def even(cls, n: int, grid: Grid, seed: int | None = None) -> Blocks:
        """Even blocks of the vertices in order, or dealt out at random where a seed is given."""
        numbering = InOrder(n) if seed is None else Dealt(n, grid.size, seed)
        # Either way ascending within a rank: reads of a store and of H then go forward.
        return cls(grid, numbering, even_sizes(n, grid.size))

    @classmethod
    def of_parts(cls, parts: Tensor, grid: Grid, key: Tensor | None = None) -> Blocks:
        """Rank p owns the vertices of part p, in their order or in that of `key`; a part may be empty.

            parts  [n] whole numbers, in 0..P-1
            key    [n] int64, or None

        Places are counted, some parts at a time: 4 bytes a vertex are made, and nothing else of their size.

        >>> Blocks.of_parts(torch.tensor([1, 0, 1]), Grid(2)).order.tolist()
        [1, 0, 2]
        """
        n = parts.numel()
        sizes = count_parts(parts, grid.size)
        order = torch.empty(n, dtype=index_dtype(n), device=parts.device)
        among = None if key is None else torch.argsort(key, stable=True)
        free = sizes.cumsum(0) - sizes  # the next place of each part
        for begin in range(0, n, SOME):
            end = min(n, begin + SOME)
            some = torch.arange(begin, end, device=parts.device) if among is None else among[begin:end]
            part, sort = parts[some].long().sort(stable=True)
            here = torch.bincount(part, minlength=grid.size)
            nth = torch.arange(end - begin, device=parts.device) - (here.cumsum(0) - here)[part]
            order[free[part] + nth] = some[sort].to(order.dtype)
            free += here
        return cls(grid, Listed(order), sizes.tolist())

    @property
    def count(self) -> int:
        """n."""
        return self.numbering.count

    def places(self, vertices: Tensor) -> Tensor:
        """Where these vertices stand. [m] → [m] int64."""
        return self.numbering.places(vertices)

    def span(self, begin: int, end: int) -> Tensor:
        """The vertices at the places begin … end − 1, [end − begin] int64."""
        if isinstance(self.numbering, Listed):
            return self.numbering.order[begin:end].long()
        return self.numbering.vertices(torch.arange(begin, end, device="cpu"))

    @cached_property
    def offsets(self) -> list[int]:
        """Where each rank's vertices begin, and n at the end."""
        out = [0]
        for size in self.sizes:
            out.append(out[-1] + size)
        return out

    def own(self, rank: int) -> tuple[int, int]:
        """V(i,k,f): the places of a rank."""
        return self.offsets[rank], self.offsets[rank + 1]

    def union(self, i: int, k: int) -> tuple[int, int]:
        """U(i,k) = ∪_f V(i,k,f): the places of the ranks (i, k, ·)."""
        return self.offsets[self.grid.rank(i, k, 0)], self.offsets[
            self.grid.rank(i, k, 0) + self.grid.feature
        ]

    def slab(self, i: int) -> tuple[int, int]:
        """I_i = ∪ V(i,·,·): the places of the output rows of slab i."""
        return self.union(i, 0)[0], self.union(i, self.grid.inner - 1)[1]

    def columns(self, width: int) -> list[int]:
        """Sizes of the blocks C_f of `width` columns; some are empty where width < feature ranks."""
        return even_sizes(width, self.grid.feature)

    def scatter(self, x: Tensor, out: Tensor) -> None:
        """Rows by place into rows by vertex, a rank's at a time. [n, ...] → [n, ...]"""
        for begin, end in map(self.own, range(self.grid.size)):
            out[self.span(begin, end).to(out.device)] = x[begin:end]

    # What follows takes n numbers: for those who look at the whole graph.

    @property
    def order(self) -> Tensor:
        """[n] int64: the vertex at each place."""
        return self.span(0, self.count)

    @property
    def place_of(self) -> Tensor:
        """[n] int64: where each vertex stands; the inverse of `order`."""
        return self.places(torch.arange(self.count, device="cpu"))

    @property
    def parts(self) -> Tensor:
        """[n] int64: the rank that owns each vertex; the inverse of `of_parts`."""
        owner = torch.empty(self.count, dtype=torch.int64, device="cpu")
        for rank in range(self.grid.size):
            owner[self.span(*self.own(rank))] = rank
        return owner


def starts(sizes: Sequence[int]) -> list[int]:
    """Where each block begins.

    >>> starts([3, 2, 2])
    [0, 3, 5]
    """
    out, total = [], 0
    for size in sizes:
        out.append(total)
        total += size
    return out

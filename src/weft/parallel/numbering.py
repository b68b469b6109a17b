"""Which vertex stands at which place, rank by rank: by arithmetic where that is enough, else by a table.

numbering   vertex ↔ place                                       a rank holds
InOrder     the same number                                      nothing
Dealt       dealt out to the P ranks in turn, P at a time,       n/P turns of 4 bytes
            each hand begun at a rank of its own
Listed      any permutation: what a partitioner made             2 n numbers of 4 or 8 bytes
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ..graph.rows import index_dtype

SOME = 1 << 18
"""Numbers at a time: what stands between is not of the size of the arcs."""


class Numbering(Protocol):
    """n vertices and their n places."""

    @property
    def count(self) -> int:
        """n."""

    def vertices(self, places: Tensor) -> Tensor:
        """The vertices at these places. [m] → [m] int64."""

    def places(self, vertices: Tensor) -> Tensor:
        """Where these vertices stand. [m] → [m] int64."""


class InOrder:
    """Vertex v stands at place v.

    >>> InOrder(5).places(torch.tensor([3])).tolist()
    [3]
    """

    def __init__(self, n: int):
        self.count = n

    def vertices(self, places: Tensor) -> Tensor:
        return places.long()

    def places(self, vertices: Tensor) -> Tensor:
        return vertices.long()


class Dealt:
    """Hand g deals vertices g·P … g·P + P−1, one to each rank, the first to rank turn[g], a random one.

        owner(v) = (v + turn[v div P]) mod P        its row there = v div P

    So ranks have n div P vertices or one more, the first ranks; rows ascend with the vertices; and which of
    two vertices of different hands lie together is left to chance. Nobody holds n numbers.

    >>> dealt = Dealt(7, 3, seed=1)
    >>> dealt.vertices(dealt.places(torch.arange(7))).tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """

    def __init__(self, n: int, ranks: int, seed: int):
        self.count, self.ranks = n, ranks
        generator = torch.Generator().manual_seed(seed)
        full, more = divmod(n, ranks)
        self._turn = torch.zeros(full + 1, dtype=torch.int32, device="cpu")  # of the rest: 0
        drawn = torch.randint(ranks, (full,), generator=generator, dtype=torch.int32, device="cpu")
        self._turn[:full] = drawn
        sizes = torch.full((ranks,), full, device="cpu")
        sizes[:more] += 1
        self._begin = sizes.cumsum(0) - sizes

    def vertices(self, places: Tensor) -> Tensor:
        return _by_pieces(self._vertices, places)

    def places(self, vertices: Tensor) -> Tensor:
        return _by_pieces(self._places, vertices)

    def _vertices(self, places: Tensor) -> Tensor:
        owner = torch.searchsorted(self._begin, places.contiguous(), right=True) - 1
        hand = places - self._begin[owner]
        return hand * self.ranks + (owner - self._turn[hand]) % self.ranks

    def _places(self, vertices: Tensor) -> Tensor:
        hand = torch.div(vertices, self.ranks, rounding_mode="floor")
        owner = (vertices - hand * self.ranks + self._turn[hand]) % self.ranks
        return self._begin[owner] + hand


class Listed:
    """`order[p]` is the vertex at place p.

    >>> Listed(torch.tensor([2, 0, 1])).places(torch.tensor([0, 2])).tolist()
    [1, 0]
    """

    def __init__(self, order: Tensor):
        self.order = order.to(index_dtype(order.numel()))

    @property
    def count(self) -> int:
        return self.order.numel()

    def vertices(self, places: Tensor) -> Tensor:
        return self.order[places].long()

    def places(self, vertices: Tensor) -> Tensor:
        return self._place[vertices].long()

    @cached_property
    def _place(self) -> Tensor:
        place = torch.empty_like(self.order)
        for at, part in enumerate(self.order.split(SOME)):
            begin = at * SOME
            place[part.long()] = torch.arange(begin, begin + part.numel(), dtype=place.dtype, device="cpu")
        return place


def _by_pieces(apply: Callable[[Tensor], Tensor], numbers: Tensor) -> Tensor:
    if numbers.numel() <= SOME:
        return apply(numbers.long())
    out = torch.empty(numbers.numel(), dtype=torch.int64, device=numbers.device)
    for part, into in zip(numbers.split(SOME), out.split(SOME), strict=True):
        into.copy_(apply(part.long()))
    return out

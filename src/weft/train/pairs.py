"""Pairs to train on: which true pairs and which false ones make a step, and which of them are this rank's.

A true pair is an arc u → v of the graph, or an edge counted once where every arc has its reverse. A pair
lies at the rank that owns the row it is read from, so one of its ends is always at hand. Everything random
follows from (seed, epoch, step, pair): all grids train on the same pairs in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, unknown
from ..graph import NonArcs
from ..kernels import Stream, draw, shuffled
from ..kernels.dropout import philox
from ..parallel import Rows
from ..parallel.source import Arcs, Source, read_arcs, with_loops

NEGATIVES = ("non-edges", "random")
_SHUFFLE, _FALSE = (1 << 20) - 1, (1 << 20) - 2
"""Streams of their own, far from those of the layers' dropout."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Batch:
    """This rank's pairs of one step, the true ones first.

    u, v   [m] int64  the ends, by their number in the graph
    names  [m] int64  a number of each pair that no other pair of the step has, on any rank
    """

    u: Tensor
    v: Tensor
    names: Tensor
    true: int
    """How many of them are true."""
    all_true: int
    """True pairs of the step on all ranks."""
    all_false: int

    @property
    def labels(self) -> Tensor:
        return (torch.arange(self.u.numel(), device=self.u.device) < self.true).double()

    @property
    def shares(self) -> Tensor:
        """What each pair counts in the loss: the mean over true pairs plus the mean over false ones."""
        false = self.u.numel() - self.true
        return torch.cat(
            [
                torch.full((count,), 1 / max(1, of), dtype=torch.float64, device=self.u.device)
                for count, of in ((self.true, self.all_true), (false, self.all_false))
            ]
        )


class TrainingPairs:
    """The training pairs of a graph on its ranks, in batches.

        steps            batches an epoch
        batch(epoch, s)  this rank's part of batch s

    >>> from weft.comm.threads import single
    >>> from weft.graph import karate
    >>> from weft.parallel import Blocks, Grid
    >>> layout = Rows(single(), Blocks.even(34, Grid(1)))
    >>> pairs = TrainingPairs(karate(), layout, seed=0, size=50)
    >>> pairs.total, pairs.steps, [pairs.batch(1, s).true for s in range(2)]
    (78, 2, [50, 28])
    """

    def __init__(
        self,
        source: Source,
        layout: Rows,
        seed: int,
        size: int = 0,
        negatives: str = "non-edges",
        ratio: int = 1,
    ):
        if negatives not in NEGATIVES:
            raise unknown("negatives", negatives, NEGATIVES)
        self.layout, self.seed, self.ratio = layout, seed, ratio
        rows, n = layout.ids, layout.count
        arcs = read_arcs(source, rows)
        target = rows[arcs.row]
        self.undirected = is_symmetric(layout, arcs)
        wanted = arcs.vertex != target
        if self.undirected:
            # Of an edge's two arcs one, the lower or the upper end's by turns: blocks get even shares.
            wanted &= (arcs.vertex < target) == ((arcs.vertex + target) % 2 == 0)
        self.u, self.v = arcs.vertex[wanted], target[wanted]
        counts = torch.bincount(arcs.row[wanted], minlength=rows.numel())
        first, self.total = layout.before(counts)  # pairs of the vertices before, wherever they lie
        self.names = torch.arange(self.u.numel(), device=rows.device) + torch.repeat_interleave(
            first - (counts.cumsum(0) - counts), counts
        )
        self.size = min(size, self.total) if size else self.total
        self.steps = -(-self.total // max(1, self.size))
        self._lacking = None
        free = torch.full((rows.numel(),), n, device=rows.device)
        if negatives == "non-edges":
            full = with_loops(arcs, rows)
            pointers = torch.bincount(full.row, minlength=rows.numel()).cumsum(0)
            self._lacking = NonArcs(torch.cat([pointers.new_zeros(1), pointers]), full.vertex, n)
            free = self._lacking.free
        # Pairs that are no arcs are numbered vertex by vertex; row k has begin[k] … begin[k] + free[k] − 1.
        begin, self._lacking_total = layout.before(free)
        some = (free > 0).nonzero().ravel()
        self._rows = some[torch.argsort(begin[some])]
        self._begin, self._free = begin[self._rows], free[self._rows]
        if self.total and not self._lacking_total:
            raise UserError(
                "every pair is an arc: there is no false pair to learn from. Use --negatives random."
            )
        self._order: tuple[int, Tensor, Tensor] | None = None

    def turn(self, epoch: int, step: int) -> int:
        """The number of a step since the beginning, from 1."""
        return (epoch - 1) * self.steps + step + 1

    def batch(self, epoch: int, step: int) -> Batch:
        """This rank's pairs of a step, epoch from 1, step from 0."""
        if self._order is None or self._order[0] != epoch:
            place = shuffled(self.names, self.total, Stream(self.seed, epoch, _SHUFFLE).key)
            ordered = place.sort()
            self._order = epoch, ordered.values, ordered.indices
        _, place, order = self._order
        first, last = step * self.size, min((step + 1) * self.size, self.total)
        begin, end = torch.searchsorted(place, torch.tensor([first, last], device=place.device)).tolist()
        true = order[begin:end]
        u, v, names = self._false((last - first) * self.ratio, self.turn(epoch, step))
        return Batch(
            torch.cat([self.u[true], u]), torch.cat([self.v[true], v]), torch.cat([self.names[true], names]),
            true.numel(), last - first, (last - first) * self.ratio,
        )  # fmt: skip

    def _false(self, count: int, turn: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of `count` false pairs those whose target is here: each number in 0..(non-arcs) is one of them."""
        key, found = Stream(self.seed, turn, _FALSE).key, []
        for start in range(0, count, _CHUNK):
            index = torch.arange(start, min(start + _CHUNK, count), device="cpu")
            number = draw(index, self._lacking_total, key)
            if not self._rows.numel():
                continue
            at = (torch.searchsorted(self._begin, number, right=True) - 1).clamp(min=0)
            u = number - self._begin[at]
            mine = ((u >= 0) & (u < self._free[at])).nonzero().ravel()
            u, row = u[mine], self._rows[at[mine]]
            if self._lacking is not None:
                u = self._lacking.column(row, u)
            found.append((u, self.layout.ids[row], self.total + index[mine]))
        if not found:
            return (torch.empty(0, dtype=torch.int64, device="cpu"),) * 3
        u, v, names = (torch.cat(parts) for parts in zip(*found, strict=True))
        return u, v, names


def is_symmetric(layout: Rows, arcs: Arcs) -> bool:
    """Whether every arc has its reverse, wherever that lies: one word of every rank.

    Arcs upwards add a 62-bit hash of their ends, arcs downwards take it away. What has no partner is left
    over; that it comes to 0 by chance has odds of 1 to 2⁶².
    """
    target = layout.ids[arcs.row]
    low, high = torch.minimum(arcs.vertex, target), torch.maximum(arcs.vertex, target)
    a, b, _, _ = philox((low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32), 0x77656674)
    left = ((a & 0x3FFFFFFF) << 32 | b) * (target - arcs.vertex).sign()
    return int(layout.comm.all_reduce(left.sum().view(1), phase="plan")) == 0

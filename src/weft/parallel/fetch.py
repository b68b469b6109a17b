"""Rows by owner: every rank asks for the rows it needs, wherever they lie.

    x_own  [n_own, w]   the rows of the vertices that this rank owns
    ids    [m]          the vertices whose rows it wants, repeats allowed
    forward   y[k] = x[ids[k]]       `ask`: ids go to their owners; `pull`: rows come back
    backward  dx[v] = Σ dy[k] over all ranks and all k with ids[k] = v       `back`: gradient rows go home

A distinct id is asked for once, and its row travels once, however often it stands in `ids`. Every rank takes
part in each call, also with no ids and with no rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..comm import Communicator, Request
from ..kernels import CSR, add_rows_, gather_rows, pack_rows
from ..kernels.function import Function
from .blocks import Blocks


class Owners(Protocol):
    """Who owns which vertex, and where it stands there."""

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """(owner, place among the owner's rows) of each id. [m] → [m], [m] int64."""

    def own(self, rank: int) -> Tensor:
        """The vertices of a rank, in the order of its rows. [n_own] int64."""


@dataclass(frozen=True)
class Cyclic:
    """Vertex v belongs to rank v mod P and is its row v div P: found by arithmetic, no table.

    >>> owner, place = Cyclic(7, 3).find(torch.tensor([0, 4, 5]))
    >>> owner.tolist(), place.tolist(), Cyclic(7, 3).own(0).tolist()
    ([0, 1, 2], [0, 1, 1], [0, 3, 6])
    """

    n: int
    """Vertices."""
    ranks: int
    """P."""

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.div(ids, self.ranks, rounding_mode="floor")
        return ids - place * self.ranks, place

    def own(self, rank: int) -> Tensor:
        return torch.arange(rank, max(self.n, rank), self.ranks, device="cpu")  # some ranks may own nothing


class ByBlocks:
    """Rank p owns `blocks.span(*blocks.own(p))`: the owners of any grid, or of any partition.

    >>> from .grid import Grid
    >>> owner, place = ByBlocks(Blocks.of_parts(torch.tensor([1, 0, 1]), Grid(2))).find(torch.tensor([2, 1]))
    >>> owner.tolist(), place.tolist()
    ([1, 0], [1, 0])
    """

    def __init__(self, blocks: Blocks):
        self.blocks = blocks
        self._offsets = torch.tensor(blocks.offsets, device="cpu")

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        at = self.blocks.places(ids)
        owner = torch.searchsorted(self._offsets, at.contiguous(), right=True) - 1
        return owner, at - self._offsets[owner]

    def own(self, rank: int) -> Tensor:
        return self.blocks.span(*self.blocks.own(rank))


class Fetch:
    """The plan of one fetch: who sends which rows to whom. Asked once, it serves any x of these owners.

        need   rows that come from each rank          give   rows of x_own that go to each, told by `ask`

    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     owners = Cyclic(5, comm.size)
    ...     x_own = 10.0 * owners.own(comm.rank)[:, None]
    ...     return Fetch(comm, owners, torch.tensor([4, 1, 4])).rows(x_own).ravel().tolist()
    >>> run_ranks(work, 2, "threads")
    [[40.0, 10.0, 40.0], [40.0, 10.0, 40.0]]
    """

    def __init__(self, comm: Communicator, owners: Owners, ids: Tensor, distinct: bool = False):
        """`distinct`: a promise that no id occurs twice."""
        self.comm, self.distinct = comm, distinct
        inverse = None
        if not distinct:
            ids, inverse = torch.unique(ids, return_inverse=True)
        wire = ids.dtype  # ids travel in their own type: 4 bytes where the graph's are
        owner, place = owners.find(ids.long())
        # A counting sort by owner: row p of this matrix lists the ids of rank p.
        by_owner = CSR(
            torch.arange(ids.numel() + 1, device=ids.device), owner, None, (ids.numel(), comm.size)
        ).T
        self.need = by_owner.counts.tolist()
        order = by_owner.indices
        self.index = torch.empty_like(order)
        """[m]: where each wanted row stands among those that come."""
        self.index[order] = torch.arange(order.numel(), device=order.device)
        if inverse is not None:
            self.index = self.index[inverse]
        one = [1] * comm.size
        self.give = comm.all_to_all(by_owner.counts.to(wire), one, one, phase="ask").tolist()
        self.places = comm.all_to_all(place[order].to(wire), self.need, self.give, phase="ask")
        """[Σ give]: the own rows that go out, by rank."""

    def rows(self, x_own: Tensor) -> Tensor:
        """y[k] = x[ids[k]]. [n_own, w] → [m, w]."""
        if x_own.dim() != 2:
            raise ValueError(f"x_own must be [n_own, w], not {tuple(x_own.shape)}")
        return gather_rows(_Pull.apply(x_own, self), self._beside(self.index, x_own), self.distinct)

    def sums(self, y: Tensor, rows: int) -> Tensor:
        """x[v] = Σ y[k] over all ranks and all k with ids[k] = v; the dual of `rows`. [m, w] → [n_own, w].

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     plan = Fetch(comm, Cyclic(2, comm.size), torch.tensor([1, 1]))
        ...     return plan.sums(torch.ones(2, 1), 1).item()
        >>> run_ranks(work, 2, "threads")  # two rows from each rank, all for vertex 1
        [0.0, 4.0]
        """
        return _Sums.apply(y, rows, self)

    def post(self, x_own: Tensor) -> Request:
        """The rows on their way, without gradient; `take(request)` waits for them."""
        packed = pack_rows(x_own.detach(), self._beside(self.places, x_own))
        return self.comm.iall_to_all(packed, self.give, self.need, phase="pull")

    def take(self, request: Request) -> Tensor:
        """y[k] = x[ids[k]] of a `post`. [m, w]."""
        came = request.wait()
        return pack_rows(came, self._beside(self.index, came))

    @staticmethod
    def _beside(index: Tensor, x: Tensor) -> Tensor:
        """The index where x is. Plans lie on the CPU; a dry run's x is nowhere, its sizes are real."""
        return index if x.is_meta else index.to(x.device)

    def back(self, dy: Tensor, rows: int) -> Tensor:
        """The gradient of x_own, `rows` of them, from that of what `take` gave. [m, w] → [n_own, w]."""
        came = dy.new_zeros(sum(self.need), dy.shape[1])
        came.index_add_(0, self.index.to(dy.device), dy)  # dry, dy has no numbers
        return self.home(came, rows)

    def home(self, dy: Tensor, rows: int) -> Tensor:
        """Gradients of the rows as they came, sent to their owners and added up there."""
        came = self.comm.all_to_all(dy, self.need, self.give, phase="back")
        dx = came.new_zeros(rows, came.shape[1])
        # Rank by rank: within one rank's rows no place occurs twice, and the order of the sum is fixed.
        places_of = self._beside(self.places, dy).split(self.give)
        for places, part in zip(places_of, came.split(self.give), strict=True):
            add_rows_(dx, places, part)
        return dx


def fetch(x_own: Tensor, ids: Tensor, owners: Owners, comm: Communicator) -> Tensor:
    """y[k] = x[ids[k]], whoever owns the row; backward sends gradients to the owners, which add them up.

        x_own [n_own, w]    ids [m]    y [m, w]

    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     x_own = torch.ones(2, 1, requires_grad=True)
    ...     fetch(x_own, torch.tensor([0, 3, 3]), Cyclic(4, 2), comm).sum().backward()
    ...     return x_own.grad.ravel().tolist()
    >>> run_ranks(work, 2, "threads")  # rank 0 owns vertices 0 and 2, rank 1 owns 1 and 3
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return Fetch(comm, owners, ids).rows(x_own)


class _Pull(Function):
    """Rows of x_own to those who asked for them; backward the same way back."""

    @staticmethod
    def forward(ctx: Any, x_own: Tensor, plan: Fetch) -> Tensor:
        ctx.plan, ctx.rows = plan, x_own.shape[0]
        packed = pack_rows(x_own.detach(), plan._beside(plan.places, x_own))
        return plan.comm.all_to_all(packed, plan.give, plan.need, phase="pull")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.home(grads[0].contiguous(), ctx.rows), None


class _Sums(Function):
    """Rows to their owners, which add them up; backward fetches the gradients of those sums."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, rows: int, plan: Fetch) -> Tensor:
        ctx.plan = plan
        return plan.back(y.detach(), rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.take(ctx.plan.post(grads[0].contiguous())), None, None

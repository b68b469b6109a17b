"""Layouts: who holds which rows and columns of a tall matrix, and the one way from a layout to another.

    Rows        complete rows at their owners             x_own   [n_own, w]
    Columns     all rows, this rank's columns             x_cols  [n, |C_p|], by vertex number
    Partial     the same shape everywhere, to be summed   t       [m, w]
    Replicated  the same numbers everywhere               x       [n, w]

What is placed (features, embeddings, results, optimiser state) carries its layout; so it can be saved by
vertex number and read by whoever owns it then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..kernels.function import Function
from .blocks import Blocks, even_sizes, starts
from .source import Source, read_vertices


@dataclass(frozen=True, eq=False)
class Rows:
    """Complete rows at their owners: rank p has the rows of the vertices V(p), in the order of `blocks`.

    >>> from weft.comm.threads import single
    >>> from .grid import Grid
    >>> rows = Rows(single(), Blocks.even(3, Grid(1)))
    >>> rows.take(torch.tensor([[5], [6], [7]])).ravel().tolist(), rows.count
    ([5, 6, 7], 3)
    """

    comm: Communicator
    blocks: Blocks

    @cached_property
    def ids(self) -> Tensor:
        """[n_own] int64: the vertices of this rank."""
        return self.blocks.span(*self.blocks.own(self.comm.rank))

    @property
    def count(self) -> int:
        """Rows of all ranks, n."""
        return self.blocks.count

    def take(self, x: Tensor) -> Tensor:
        """This rank's rows of a global tensor. [n, ...] → [n_own, ...]."""
        return x[self.ids.to(x.device)]

    def read(self, source: Source, key: str) -> Tensor | None:
        """This rank's rows of the features, labels or a mask, read from where they are."""
        return read_vertices(source, self.ids, key)

    def before(self, x: Tensor) -> tuple[Tensor, int]:
        """(Σ of x over all vertices of smaller numbers, wherever they are; Σ over all). [n_own] → [n_own]

        Numbers go to whoever would own them if vertices were cut in order, and sums come back: nobody holds
        n of them.

        >>> from weft.comm import run_ranks
        >>> from .grid import Grid
        >>> def work(comm):
        ...     rows = Rows(comm, Blocks.of_parts(torch.tensor([1, 0, 1]), Grid(2)))
        ...     return rows.before(rows.ids + 1)[0].tolist()
        >>> run_ranks(work, 2, "threads")
        [[1], [0, 3]]
        """
        comm, cut = self.comm, starts(even_sizes(self.count, self.comm.size))
        owner = torch.searchsorted(torch.tensor(cut, device="cpu"), self.ids, right=True) - 1
        order = torch.argsort(owner, stable=True)
        give = torch.bincount(owner, minlength=comm.size)
        one = [1] * comm.size
        take = comm.all_to_all(give, one, one, phase="plan").tolist()
        told = torch.stack([self.ids, x.long()], 1)[order].reshape(-1)
        sent, got = [2 * m for m in give.tolist()], [2 * m for m in take]
        came = comm.all_to_all(told, sent, got, phase="plan").view(-1, 2)
        place = came[:, 0] - cut[comm.rank]
        here = torch.zeros(place.numel(), dtype=torch.int64, device="cpu")
        here[place] = came[:, 1]
        totals = comm.all_gather(here.sum().view(1), phase="plan")
        sums = here.cumsum(0) - here + int(totals[: comm.rank].sum())
        back = comm.all_to_all(sums[place], take, give.tolist(), phase="plan")
        out = torch.empty_like(back)
        out[order] = back
        return out, int(totals.sum())

    def collect(self, x: Tensor) -> Tensor:
        """The global tensor of everybody's rows, on every rank. [n_own, ...] → [n, ...]."""
        width = math.prod(x.shape[1:])  # not from the elements: a rank may have no rows
        flat = x.detach().reshape(-1)
        got = self.comm.all_gather(flat, [s * width for s in self.blocks.sizes], phase="collect")
        out = torch.empty_like(got).view(self.count, width)
        self.blocks.scatter(got.view(self.count, width), out)
        return out.view(self.count, *x.shape[1:])


@dataclass(frozen=True, eq=False)
class Columns:
    """All rows, cut by columns among the ranks of `group`; other groups of `rows.comm` hold the same again.

        width   columns of all ranks together;   sizes   of each rank of the group, some may be 0
        begin, end   this rank's

    >>> from weft.comm.threads import single
    >>> from .grid import Grid
    >>> columns = Columns(Rows(single(), Blocks.even(3, Grid(1))), single(), 5)
    >>> columns.sizes, columns.begin, columns.end
    ([5], 0, 5)
    """

    rows: Rows
    group: Communicator
    width: int

    @cached_property
    def sizes(self) -> list[int]:
        return even_sizes(self.width, self.group.size)

    @property
    def begin(self) -> int:
        return starts(self.sizes)[self.group.rank]

    @property
    def end(self) -> int:
        return self.begin + self.sizes[self.group.rank]

    def of_rank(self, rank: int) -> tuple[int, int]:
        """The columns of a rank of the whole job: it stands at place `rank mod g` of its group."""
        place = rank % self.group.size
        first = starts(self.sizes)[place]
        return first, first + self.sizes[place]


@dataclass(frozen=True, eq=False)
class Partial:
    """The same shape on every rank of `comm`; the value is the sum over them, or the largest of them."""

    comm: Communicator
    op: str = "sum"
    """How the ranks' shares become one: sum or max."""


@dataclass(frozen=True, eq=False)
class Stacked:
    """Rows of rank p of `comm`: the p-th block of those that all have, `sizes[p]` of them."""

    comm: Communicator
    sizes: Sequence[int]


@dataclass(frozen=True, eq=False)
class Replicated:
    """The same numbers on every rank of `comm`."""

    comm: Communicator


Layout = Rows | Columns | Partial | Stacked | Replicated


def redistribute(x: Tensor, source: Layout, target: Layout, phase: str = "plan") -> Tensor:
    """x of one layout in another, with autograd: backward takes the mirrored way.

        Rows → Columns        all-to-all: complete rows become columns, by vertex number
        Columns → Rows        the way back; within one group
        Partial → Replicated  all-reduce; backward too, for everybody used the sum
        Partial → Stacked     reduce-scatter: each rank's block, added up; backward: all-gather. Of the
                              largest: all-to-all both ways, the gradient to the rank that had it
        Rows → Replicated     all-gather, by vertex number; no gradient

    >>> from weft.comm import run_ranks
    >>> run_ranks(lambda c: redistribute(torch.ones(1), Partial(c), Replicated(c)).item(), 3, "threads")
    [3.0, 3.0, 3.0]
    """
    match source, target:
        case Rows(), Columns():
            return _ToColumns.apply(x, target, phase)
        case Columns(), Rows():
            return _ToRows.apply(x, source, phase)
        case Partial(op="max"), Stacked():
            return _Largest.apply(x, target, phase)
        case Partial(op="sum"), Replicated():
            return _Sum.apply(x, source.comm, phase)
        case Partial(op="sum"), Stacked():
            return _Complete.apply(x, target, phase)
        case Rows(), Replicated():
            return source.collect(x)
    raise TypeError(f"there is no way from {type(source).__name__} to {type(target).__name__}")


def sum_together(
    parts: Sequence[Tensor], comm: Communicator, phase: str = "grad"
) -> tuple[Tensor, list[Tensor]]:
    """(the sums over ranks in one flat tensor, the same part by part): one message, no gradient.

    parts   of one type, the same shapes on every rank

    What ranks do with gradients after each step, in `weft.train` and in one's own loop (`weft.ranks`).

    >>> from weft.comm import run_ranks
    >>> two = [torch.ones(2), torch.full((1, 1), 3.0)]
    >>> run_ranks(lambda comm: [t.tolist() for t in sum_together(two, comm)[1]], 2, "threads")
    [[[2.0, 2.0], [[6.0]]], [[2.0, 2.0], [[6.0]]]]
    """
    flat = torch.cat([part.detach().reshape(-1) for part in parts])
    comm.all_reduce(flat, out=flat, phase=phase)
    each = flat.split([part.numel() for part in parts])
    return flat, [mine.view(part.shape) for mine, part in zip(each, parts, strict=True)]


def collect_by_number(rows: Tensor, ids: Tensor, comm: Communicator) -> Tensor:
    """Rows of all ranks, on every rank, in the order of their numbers. [m_own, …] → [m, …]

    ids [m_own]   the number of each row, no two alike

    Where owners are known, `Rows.collect` sends no numbers.
    """
    numbers = comm.all_gather(ids.contiguous(), phase="collect")
    flat = rows.detach().reshape(rows.shape[0], math.prod(rows.shape[1:])).contiguous()
    got = comm.all_gather(flat, phase="collect")
    return got[torch.argsort(numbers).to(got.device)].view(-1, *rows.shape[1:])


def _to_columns(x_own: Tensor, layout: Columns, phase: str) -> Tensor:
    """[n_own, width] → [n, |C_p|]."""
    comm, blocks = layout.rows.comm, layout.rows.blocks
    # Everybody sends each rank its columns; the ranks of other groups get them as well.
    parts = [x_own[:, slice(*layout.of_rank(q))] for q in range(comm.size)]
    mine = layout.end - layout.begin
    flat = torch.cat([part.reshape(-1) for part in parts])
    came = comm.all_to_all(flat, [p.numel() for p in parts], [s * mine for s in blocks.sizes], phase=phase)
    out = x_own.new_empty(layout.rows.count, mine)
    blocks.scatter(came.view(layout.rows.count, mine), out)
    return out


def _to_rows(x_cols: Tensor, layout: Columns, phase: str, add: bool) -> Tensor:
    """[n, |C_p|] → [n_own, width]. Groups hold the same, so one serves; `add`: gradients, summed over all."""
    comm, blocks, size = layout.rows.comm, layout.rows.blocks, layout.group.size
    ordered = torch.empty_like(x_cols)
    for begin, end in map(blocks.own, range(comm.size)):
        ordered[begin:end] = x_cols[blocks.span(begin, end).to(x_cols.device)]
    own = blocks.sizes[comm.rank]
    me = comm.rank // size

    def serves(q: int, rank: int) -> bool:
        return add or q // size == rank // size

    send = [s * ordered.shape[1] if serves(comm.rank, q) else 0 for q, s in enumerate(blocks.sizes)]
    flat = [p.reshape(-1) for q, p in enumerate(ordered.split(blocks.sizes)) if serves(comm.rank, q)]
    spans = [layout.of_rank(q) for q in range(comm.size)]
    receive = [own * (end - begin) if serves(q, comm.rank) else 0 for q, (begin, end) in enumerate(spans)]
    came = comm.all_to_all(torch.cat(flat) if flat else ordered.new_empty(0), send, receive, phase=phase)
    out = x_cols.new_zeros(own, layout.width)
    for q, part in enumerate(came.split(receive)):
        begin, end = spans[q]
        if part.numel() and (add or q // size == me):
            out[:, begin:end] += part.view(own, end - begin)
    return out


class _ToColumns(Function):
    """forward: rows to columns; backward: the columns' gradients to the rows' owners, added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Columns, phase: str) -> Tensor:
        ctx.layout, ctx.phase = layout, phase
        return _to_columns(x.detach(), layout, phase)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _to_rows(grads[0], ctx.layout, ctx.phase, add=True), None, None


class _ToRows(Function):
    """forward: columns to rows; backward: rows' gradients to columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Columns, phase: str) -> Tensor:
        ctx.layout, ctx.phase = layout, phase
        return _to_rows(x.detach(), layout, phase, add=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _to_columns(grads[0], ctx.layout, ctx.phase), None, None


class _Sum(Function):
    """S = Σ_p s_p on every rank; backward: the sum of everybody's gradients, as everybody used S."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, phase: str) -> Tensor:
        ctx.comm, ctx.phase = comm, phase
        return comm.all_reduce(x.detach().contiguous(), phase=phase)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.comm.all_reduce(grads[0].contiguous(), phase=ctx.phase), None, None


class _Complete(Function):
    """forward: this rank's block of the sum; backward: everybody's blocks of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Stacked, phase: str) -> Tensor:
        ctx.target = target
        request = target.comm.ireduce_scatter(x.detach().contiguous(), target.sizes, phase=phase)
        return request.wait()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        target = ctx.target
        return target.comm.all_gather(grads[0].contiguous(), target.sizes, phase="errors"), None, None


def largest_of(came: Tensor, ranks: int) -> tuple[Tensor, Tensor]:
    """(the largest of what all ranks sent for the same numbers, the rank that had it; of equals the first).

    >>> largest_of(torch.tensor([1.0, 5.0, 3.0, 5.0]), 2)
    (tensor([3., 5.]), tensor([1, 0]))
    """
    best, rank = came.view(ranks, came.shape[0] // ranks, *came.shape[1:]).max(0)
    return best, rank


def to_winners(g: Tensor, winner: Tensor, ranks: int) -> Tensor:
    """The dual: each rank's share of the gradient, one after the other; nothing where another rank won."""
    return torch.cat([torch.where(winner == rank, g, 0.0) for rank in range(ranks)])


class _Largest(Function):
    """forward: this rank's block of the maximum over ranks; backward: to the rank that had it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Stacked, phase: str) -> Tensor:
        comm, sizes = target.comm, list(target.sizes)
        own = [sizes[comm.rank]] * comm.size
        came = comm.all_to_all(x.detach().contiguous(), sizes, own, phase=phase)
        best, winner = largest_of(came, comm.size)
        ctx.target = target
        ctx.save_for_backward(winner)
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        comm, sizes = ctx.target.comm, list(ctx.target.sizes)
        (winner,) = ctx.saved_tensors
        shares = to_winners(grads[0], winner, comm.size)
        own = [sizes[comm.rank]] * comm.size
        return comm.all_to_all(shares, own, sizes, phase="errors"), None, None

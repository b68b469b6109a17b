"""Y = A·H on any grid: split → gather → multiply → reduce → join, and its mirror.

    rank (i, k, f) holds      h_own  [|V(i,k,f)|, w]       complete rows
                              A_j    [R, C_j]              its rows of A, its columns of K_k from slab j
    forward   split           x      [|U(i,k)|, |C_f|]     complete rows → columns C_f
              gather          x_j    [C_j, |C_f|]          along row: slab j's rows that A_j reads
              multiply        T      [R, |C_f|]            Σ_j A_j x_j, each as it arrives, own block first
              reduce          y      [|U(i,k)|, |C_f|]     along inner: sum of T over k
              join            y_own  [|V(i,k,f)|, w]       columns → complete rows
    backward  split · gather along inner: G [R, |C_f|] · multiply A_jᵀ G · reduce along row · join

Dense: R = |I_i| and C_j = |U(j,k)|. Sparse: only rows that A(i,k) writes and columns that it reads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..kernels import CSR
from ..kernels.function import Function
from ..kernels.spmm import best_values, extremum, extremum_backward, multiply
from ..memory import empty
from .blocks import even_sizes, starts
from .exchange import Exchange

Wrap = Callable[[Communicator], Communicator]
"""A line's communicator → one of the same ranks that counts and does not move."""


class FeatureLine:
    """Complete rows of one rank ↔ a block of columns of the whole line, along the feature axis.

    split  h_own [|V(i,k,f)|, w]  →  x [|U(i,k)|, |C_f|]
    join   the way back; each is the other's transpose, so it is also its backward
    """

    def __init__(self, comm: Communicator, rows: Sequence[int]):
        """`rows`: how many of each rank of the line."""
        self.comm, self.rows = comm, list(rows)

    def columns(self, width: int) -> list[int]:
        """Sizes of the blocks C_f; some are empty where width < ranks of the line."""
        return even_sizes(width, self.comm.size)

    def split(self, h: Tensor) -> Tensor:
        if self.comm.size == 1:
            return h
        own, mine = h.shape[0], self.columns(h.shape[1])
        width = mine[self.comm.rank]
        send = torch.cat([part.reshape(-1) for part in h.split(mine, dim=1)])
        out = empty(sum(self.rows), width, like=h)
        self.comm.all_to_all(
            send, [own * c for c in mine], [r * width for r in self.rows], out=out.view(-1), phase="split"
        )
        return out

    def join(self, x: Tensor, width: int) -> Tensor:
        if self.comm.size == 1:
            return x
        own, columns = self.rows[self.comm.rank], self.columns(width)
        got = self.comm.all_to_all(
            x.reshape(-1), [r * x.shape[1] for r in self.rows], [own * c for c in columns], phase="join"
        )
        out = empty(own, width, like=x)
        for begin, part, c in zip(
            starts(columns), got.split([own * c for c in columns]), columns, strict=True
        ):
            out[:, begin : begin + c] = part.view(own, c)
        return out

    def share(self, h: Tensor) -> Tensor:
        """Complete rows of the whole line: [|V(i,k,f)|, w] → [|U(i,k)|, w]."""
        return h if self.comm.size == 1 else self.comm.all_gather(h.contiguous(), self.rows, phase="split")

    def own(self, x: Tensor) -> Tensor:
        """This rank's rows of what the line shares: [|U(i,k)|, w] → [|V(i,k,f)|, w]."""
        if self.comm.size == 1:
            return x
        begin = sum(self.rows[: self.comm.rank])
        return x[begin : begin + self.rows[self.comm.rank]].clone()

    def dry(self, wrap: Wrap) -> FeatureLine:
        return FeatureLine(wrap(self.comm), self.rows)

    def first(self, width: int) -> int:
        """Where this rank's columns C_f begin."""
        return starts(self.columns(width))[self.comm.rank]


class Sliced:
    """A_j cut by rows among the ranks (i, k, ·), who would all hold the same; whole for one product.

        own slice  [R / feature, C_j]      whole()  [R, C_j], gathered along feature, phase `adjacency`

    CAGNET's `sbcast`: less memory for A, more words each time. What entries carry (`CSR.data`) goes along.
    """

    def __init__(self, a: CSR, comm: Communicator):
        self.comm, self.shape = comm, a.shape
        self.rows = even_sizes(a.shape[0], comm.size)
        ends = a.indptr[torch.tensor([0, *self.rows], device=a.indptr.device).cumsum(0)]
        self.sizes = ends.diff().tolist()
        first = sum(self.rows[: comm.rank])
        begin, end = int(ends[comm.rank]), int(ends[comm.rank + 1])
        self.counts = a.counts[first : first + self.rows[comm.rank]].clone()
        self.indices = a.indices[begin:end].clone()
        self.values = None if a.values is None else a.values[begin:end].clone()
        self.data = {name: x[begin:end].clone() for name, x in a.data.items()}
        self.arcs = end - begin

    def whole(self) -> CSR:
        counts = self.comm.all_gather(self.counts, self.rows, phase="adjacency")
        indices = self.comm.all_gather(self.indices, self.sizes, phase="adjacency")
        values = (
            None if self.values is None else self.comm.all_gather(self.values, self.sizes, phase="adjacency")
        )
        data = {name: self.comm.all_gather(x, self.sizes, phase="adjacency") for name, x in self.data.items()}
        # torch takes its time with sums of numbers that are not there
        ends = counts if counts.is_meta else counts.cumsum(0)
        return CSR(torch.cat([counts.new_zeros(1), ends]), indices, values, self.shape, data)

    def dry(self, wrap: Wrap) -> Sliced:
        """The same sizes without numbers, on a line that counts."""
        out = copy.copy(self)
        out.comm = wrap(self.comm)
        out.counts, out.indices = self.counts.to("meta"), self.indices.to("meta")
        out.values = None if self.values is None else self.values.to("meta")
        out.data = {name: x.to("meta") for name, x in self.data.items()}
        return out


@dataclass
class Plan:
    """What one rank needs to multiply with its share of A; built once (`Operator.build`)."""

    feature: FeatureLine
    row: Exchange
    inner: Exchange
    matrices: list[CSR | Sliced]
    """A_j for every slab j: [R, C_j]."""
    names: Sequence[Tensor] | None
    """The vertices that A_j's columns stand for; None of a single A whose columns nobody else has."""
    row_names: Tensor
    """The vertices that the rows of T stand for, [R]."""
    mean: bool = False
    """Whether a row's sum is divided by its number of entries; of a single A."""
    halves: dict[tuple[int, int, int], CSR] = field(default_factory=dict)
    """Halves of A_jᵀ by (j, first row, end), where its products are made in two."""

    @property
    def pieces(self) -> list[int]:
        """Rows of T for each rank of the inner line; R in all."""
        return self.inner.need_sizes

    def matrix(self, j: int) -> CSR:
        """A_j, gathered where it lies in slices."""
        a = self.matrices[j]
        return a.whole() if isinstance(a, Sliced) else a

    def blocks(self) -> list[CSR]:
        """Every A_j."""
        return [self.matrix(j) for j in range(len(self.matrices))]

    @property
    def arcs(self) -> list[int]:
        """Entries of each A_j, all slices of it."""
        return [sum(a.sizes) if isinstance(a, Sliced) else a.arcs for a in self.matrices]

    @property
    def alone(self) -> bool:
        """Whether one matrix has whole rows: then a winner is called by its column, and needs no name."""
        return len(self.matrices) == 1 and self.inner.comm.size == 1

    def labels(self, j: int) -> Tensor | None:
        """What winners call the columns of A_j; None: by their number."""
        return None if self.names is None or self.alone else self.names[j]

    def named(self, winner: Tensor, j: int) -> Tensor:
        """Winners among A_j's columns by what everybody calls them; −1, where a row is empty, stays."""
        labels = self.labels(j)
        if labels is None or not labels.numel():
            return winner
        if winner.is_meta:  # dry, nobody knows who won
            return winner.to(torch.promote_types(winner.dtype, labels.dtype))
        return torch.where(winner < 0, winner, labels[winner.clamp(min=0).long()])

    def names_of(self, j: int) -> Tensor:
        """The vertices that A_j's columns stand for, [C_j] int64."""
        if self.names is None:
            return torch.arange(self.matrices[j].shape[1], device=self.row_names.device)
        return self.names[j].long()

    def to(self, device: torch.device | str) -> Plan:
        """The same plan on another device: no tensor of it stays behind."""
        if any(isinstance(a, Sliced) for a in self.matrices):
            raise UserError("--move-adjacency is for --device cpu. Leave one of the two out.")
        names = None if self.names is None else [t.to(device) for t in self.names]
        matrices: list[CSR | Sliced] = [a.to(device) for a in self.blocks()]
        return Plan(
            self.feature, self.row.to(device), self.inner.to(device), matrices, names,
            self.row_names.to(device), self.mean,
        )  # fmt: skip

    def dry(self, wrap: Wrap) -> Plan:
        """The same sizes with no numbers in them, on lines that count what would move."""
        return Plan(
            self.feature.dry(wrap), self.row.dry(wrap), self.inner.dry(wrap),
            [a.dry(wrap) if isinstance(a, Sliced) else blank(a) for a in self.matrices],
            None if self.names is None else [names.to("meta") for names in self.names],
            self.row_names.to("meta"), self.mean,
        )  # fmt: skip

    def forward(self, h: Tensor) -> Tensor:
        """y_own = (A h)_own."""
        x = self.feature.split(h)
        total: Tensor | None = None
        for j, block in self.row.gather(x):
            a = self.matrix(j)
            if total is None:
                total = multiply(a, block, a.values, self.mean)
            else:
                multiply(a, block, a.values, out=total, accumulate=True)
        assert total is not None
        y = self.inner.reduce(self.piece_of(total))
        return self.feature.join(y, h.shape[1])

    def backward(self, dy: Tensor) -> Tensor:
        """dh_own = (Aᵀ dy)_own."""
        g = self.whole(self.feature.split(dy))
        if self.mean:
            g = g / self.matrix(0).counts.clamp(min=1)[:, None].to(g)

        def part(j: int, begin: int, end: int) -> Tensor:
            t = self.turned(j, begin, end)
            return multiply(t, g, t.values)

        def own(out: Tensor | None) -> Tensor:
            t = self.matrix(self.row.comm.rank).T
            return multiply(t, g, t.values, out=out, accumulate=out is not None)

        dx = self.row.sum_up(part, own, g, halve=not any(isinstance(a, Sliced) for a in self.matrices))
        return self.feature.join(dx, dy.shape[1])

    def turned(self, j: int, begin: int, end: int) -> CSR:
        """Rows begin … end − 1 of A_jᵀ; a half is cut once, and kept: its entries are those of A_jᵀ."""
        t = self.matrix(j).T
        if (begin, end) == (0, t.shape[0]):
            return t
        key = j, begin, end
        if key not in self.halves:
            self.halves[key] = some_rows(t, begin, end)
        return self.halves[key]

    def piece_of(self, total: Tensor) -> Any:
        """T's rows for rank p of the inner line; the own ones as memory that may be written and returned."""
        if len(self.pieces) == 1:
            return lambda p: total
        parts = total.split(self.pieces)

        def partial(p: int) -> Tensor:
            return cloned(parts[p]) if p == self.inner.comm.rank else parts[p]

        return partial

    def whole(self, g: Tensor) -> Tensor:
        """G [R, |C_f|]: the rows of the whole inner line that this rank's A has."""
        if self.inner.comm.size == 1:
            return g
        whole = empty(sum(self.pieces), g.shape[1], like=g)
        parts = whole.split(self.pieces)
        for p, block in self.inner.gather(g):
            parts[p].copy_(block)
        return whole

    def forward_extremum(self, h: Tensor, how: Extremum) -> tuple[Tensor, Tensor]:
        """(y_own, winners): the largest or smallest neighbour, and who it was, [|U(i,k)|, |C_f|]."""
        y, winner = self.best(self.feature.split(h), None, how)
        return self.feature.join(y, h.shape[1]), winner

    def forward_best(self, h: Tensor, how: Extremum) -> Tensor:
        """y_own where one matrix has whole rows and nobody asks who won."""
        a = self.matrix(0)
        y = best_values(a, self.feature.split(h), a.values, how.largest, how.plus)
        return self.feature.join(how.without_winners(y, a.counts), h.shape[1])

    def best(self, x: Tensor, values: Sequence[Tensor] | None, how: Extremum) -> tuple[Tensor, Tensor]:
        """(y, winners) of U(i,k) and C_f; `values` per A_j stand in for A's own."""
        best: tuple[Tensor, Tensor] | None = None
        for j, block in self.row.gather(x):
            a = self.matrix(j)
            y, arg = extremum(a, block, a.values if values is None else values[j], how.largest, how.plus)
            arg = self.named(arg, j)
            if best is None:
                best = y, arg
            else:
                take_better(best, None, (y, arg), how.largest)
        assert best is not None
        return how.with_zero(*self.best_along_inner(best, how.largest))

    def best_along_inner(self, best: tuple[Tensor, Tensor], largest: bool) -> tuple[Tensor, Tensor]:
        """Everybody's candidates for the rows of U(i,k), the best of them at their owners."""
        if self.inner.comm.size == 1:
            return best
        found, winners = (t.split(self.pieces) for t in best)
        me = self.inner.comm.rank
        y, winner = self.inner.merge(
            lambda p: (cloned(found[p]), cloned(winners[p])) if p == me else (found[p], winners[p]),
            lambda own, at, incoming: take_better(own, at, incoming, largest),
        )
        return y, winner

    def backward_extremum(self, dy: Tensor, winner: Tensor, plus: bool) -> Tensor:
        g = self.whole(self.feature.split(dy))
        arg = self.whole(winner)

        def partial(j: int) -> Tensor:
            t = self.matrix(j).T
            return extremum_backward(t, g, arg, None if plus else t.values, self.labels(j))

        dx = self.row.reduce(partial)
        return self.feature.join(dx, dy.shape[1])


@dataclass(frozen=True)
class Extremum:
    """Which of a row's products is taken.

    largest  the maximum, else the minimum;   plus  of a_ij + h_j, else of a_ij h_j
    zero     what competes with them and an empty row gives; None: empty rows give 0, else nothing competes
    """

    largest: bool
    plus: bool = False
    zero: float | None = None

    @property
    def _last(self) -> bool:
        """Whether zero beats nothing: then only empty rows give it."""
        return self.zero == (-torch.inf if self.largest else torch.inf)

    def with_zero(self, y: Tensor, winner: Tensor) -> tuple[Tensor, Tensor]:
        """Zero where it is better than the best of a row: nobody wins there, no gradient goes anywhere."""
        if self.zero is None or not winner.shape[1] or y.is_meta:
            return y, winner
        if self._last:
            return _fill_rows(y, winner[:, 0] < 0, self.zero), winner
        loses = (winner < 0) | ((y < self.zero) if self.largest else (y > self.zero))
        return y.masked_fill_(loses, self.zero), winner.masked_fill_(loses, -1)

    def without_winners(self, y: Tensor, counts: Tensor) -> Tensor:
        """The same where nobody asks who won; counts [rows]: of how many."""
        if self.zero is None or y.is_meta:
            return y
        if self._last:
            return _fill_rows(y, counts == 0, self.zero)
        loses = (counts == 0)[:, None] | ((y < self.zero) if self.largest else (y > self.zero))
        return y.masked_fill_(loses, self.zero)


def _fill_rows(y: Tensor, rows: Tensor, value: float) -> Tensor:
    """y with `value` in the rows where [n] `rows` is true; they are few, so the others are not looked at."""
    return y.index_fill_(0, rows.nonzero().ravel(), value)


def cloned(x: Tensor) -> Tensor:
    return empty(*x.shape, like=x).copy_(x)


def some_rows(a: CSR, begin: int, end: int) -> CSR:
    """Rows begin … end − 1 of a matrix, which share its entries' memory.

    >>> a = CSR(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), None, (2, 3))
    >>> some_rows(a, 1, 2).dense()
    tensor([[1., 0., 1.]])
    """
    shape = end - begin, a.shape[1]
    if a.indptr.is_meta:
        return CSR.blank(
            shape, a.arcs * shape[0] // max(1, a.shape[0]), None if a.values is None else a.values.dtype
        )
    first, last = int(a.indptr[begin]), int(a.indptr[end])
    values = None if a.values is None else a.values[first:last]
    return CSR(a.indptr[begin : end + 1] - first, a.indices[first:last], values, shape)


def blank(a: CSR) -> CSR:
    """A matrix of this size and type whose numbers nobody made."""
    kind = None if a.values is None else a.values.dtype
    return CSR.blank(a.shape, a.arcs, kind, a.indices.dtype, a.data)


def take_better(
    own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...], largest: bool
) -> None:
    """Where the incoming candidate wins, it replaces the own one; a tie goes to the smaller vertex."""
    candidate, name = incoming
    if candidate.is_meta:  # torch takes its time with numbers that are not there
        return
    value, winner = own if at is None else (own[0][at], own[1][at])
    beats = (candidate > value) if largest else (candidate < value)
    # NaN beats every number, as on one device; it equals nothing, so it is matched by being NaN.
    beats |= candidate.isnan() & ~value.isnan()
    ties = ((candidate == value) | (candidate.isnan() & value.isnan())) & (name < winner)
    take = (name >= 0) & ((winner < 0) | beats | ties)
    value, winner = torch.where(take, candidate, value), torch.where(take, name, winner)
    if at is None:
        own[0].copy_(value)
        own[1].copy_(winner)
    else:
        own[0][at], own[1][at] = value, winner


class Propagate(Function):
    """forward y = A h, backward dh = Aᵀ dy."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, plan: Plan) -> Tensor:
        ctx.plan = plan
        return plan.forward(h.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.backward(grads[0].contiguous()), None


class PropagateExtremum(Function):
    """forward y = max or min of the neighbours; backward: to the winner, per column."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, plan: Plan, how: Extremum) -> Tensor:
        ctx.plan, ctx.plus = plan, how.plus
        if plan.alone and not ctx.needs_input_grad[0]:
            return plan.forward_best(h.detach().contiguous(), how)
        y, winner = plan.forward_extremum(h.detach().contiguous(), how)
        ctx.save_for_backward(winner)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.backward_extremum(grads[0].contiguous(), *ctx.saved_tensors, ctx.plus), None, None

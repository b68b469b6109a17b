"""Numbers per arc of A, on any grid: from the vertices to the arcs and back.

    e  [arcs here, h]   numbers of this rank's arcs: A_0's, then A_1's, …; h of them an arc, one a head

All ranks of a feature line hold the same arcs, the same numbers, and the same gradients of them. Each map
here is one step of an attention that no fused kernel knows; the gradient of each is another of them.

    spread     e[arc] = x[i] or x[j]                       share along feature, gather along inner or row
    sum        y[i]   = Σ over the row's arcs of e[arc]    reduce along inner
    dots       e[arc,h] = ⟨x[i], y[j]⟩ in head h           split, gather both; summed along feature
    softmax    e[arc] ← exp(e − max) / Σ, by row           maximum and sum merged along inner
    weigh      y[i] = ⊕ of e[arc] x[j]                     split, gather along row, reduce along inner, join
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import unknown
from ..kernels import CSR, Semiring, Stream
from ..kernels.attention import Drop, weigh
from ..kernels.fold import Fold
from ..kernels.function import Function
from ..kernels.sddmm import sddmm_heads
from ..kernels.semiring import check_semiring
from ..kernels.spmm import extremum_backward, multiply
from .counted import check_counted
from .exchange import add_up
from .fold import FoldArcs
from .propagate import Extremum, Plan, cloned
from .transposed import Turned

if TYPE_CHECKING:
    from .operator import Operator

_KINDS = 8
"""Kinds of arcs that are counted together."""
_SOME_ARCS = 1 << 16
"""Arcs at a time where a step needs a row of each: nothing of arcs × width is made."""


def add_rows_of(a: CSR, e: Tensor, out: Tensor | None = None) -> Tensor:
    """y[i] (+)= Σ over the arcs of row i of e[arc]. [arcs, h] → [rows, h]."""
    return multiply(a.row_picks, e, None, out=out, accumulate=out is not None)


def add_columns_of(a: CSR, e: Tensor) -> Tensor:
    """y[j] = Σ over the arcs of column j of e[arc]. [arcs, h] → [columns, h]."""
    return multiply(a.column_picks, e, None)


def data_dots(a: CSR, x: Tensor, name: str, heads: int) -> Tensor:
    """e[arc,h] = ⟨x[i,h,:], f[arc]⟩, f the arcs' data. [rows, heads · t] → [arcs, heads]."""
    f = a.data[name].to(x.dtype)
    width = f.shape[1]
    each = [sddmm_heads(a.row_picks, part, f, 0, width, 1) for part in _heads(x, heads)]
    return each[0] if heads == 1 else torch.cat(each, 1)


def data_sums(a: CSR, e: Tensor, name: str, out: Tensor | None = None) -> Tensor:
    """y[i,h,:] (+)= Σ over the arcs of row i of e[arc,h] f[arc]. [arcs, heads] → [rows, heads · t]."""
    f = a.data[name].to(e.dtype)
    each = [weigh(a.row_picks, part.contiguous(), f, f.shape[1]) for part in e.split(1, 1)]
    y = each[0] if len(each) == 1 else torch.cat(each, 1)
    return y if out is None else out.add_(y)


def _joined(parts: list[Tensor]) -> Tensor:
    """The blocks' arcs one after the other. Of one block it is the block's own memory: nothing is copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _heads(x: Tensor, heads: int) -> list[Tensor]:
    return [part.contiguous() for part in x.split(x.shape[1] // heads, 1)] if heads > 1 else [x]


def rows_to_data(plan: Plan, x: Tensor, name: str, heads: int) -> Tensor:
    """e[arc,h] = ⟨x[i,h,:], f[arc]⟩. [n_own, heads · t] → [arcs, heads]."""
    whole = plan.whole(plan.feature.share(x))
    return _joined([data_dots(a, whole, name, heads) for a in plan.blocks()])


def data_to_rows(plan: Plan, e: Tensor, name: str) -> Tensor:
    """y[i,h,:] = Σ over the row's arcs of e[arc,h] f[arc]. [arcs, heads] → [n_own, heads · t]."""
    total: Tensor | None = None
    for a, part in zip(plan.blocks(), _per_block(plan, e), strict=True):
        total = data_sums(a, part, name, total)
    assert total is not None
    return plan.feature.own(plan.inner.reduce(plan.piece_of(total)))


def _per_block(plan: Plan, e: Tensor) -> tuple[Tensor, ...]:
    return e.split(plan.arcs)


def rows_to_arcs(plan: Plan, x: Tensor) -> Tensor:
    """e[arc] = x[i]. [n_own, h] → [arcs, h]."""
    whole = plan.whole(plan.feature.share(x))
    return _joined([whole[a.row_of] for a in plan.blocks()])


def arcs_to_rows(plan: Plan, e: Tensor) -> Tensor:
    """y[i] = Σ over the row's arcs of e[arc]. [arcs, h] → [n_own, h]."""
    total: Tensor | None = None
    for j, part in enumerate(_per_block(plan, e)):
        total = add_rows_of(plan.matrix(j), part.contiguous(), total)
    assert total is not None
    return plan.feature.own(plan.inner.reduce(plan.piece_of(total)))


def columns_to_arcs(plan: Plan, x: Tensor) -> Tensor:
    """e[arc] = x[j]. [n_own, h] → [arcs, h]."""
    parts: list[Tensor] = [x] * len(plan.matrices)
    for j, block in plan.row.gather(plan.feature.share(x)):
        parts[j] = block[plan.matrix(j).indices.long()]
    return _joined(parts)


def arcs_to_columns(plan: Plan, e: Tensor) -> Tensor:
    """y[j] = Σ over the column's arcs of e[arc]. [arcs, h] → [n_own, h]."""
    parts = _per_block(plan, e)
    total = plan.row.reduce(lambda j: add_columns_of(plan.matrix(j), parts[j].contiguous()))
    return plan.feature.own(total)


class _Linear(Function):
    """A linear map and its transpose, as two functions of (plan, tensor)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Plan, apply: Callable, back: Callable) -> Tensor:
        ctx.plan, ctx.back = plan, back
        return apply(plan, x.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(ctx.plan, grads[0].contiguous()), None, None, None


class Dots(Function):
    """e[arc,h] = ⟨x[i], y[j]⟩ over the columns of head h; backward: de y and deᵀ x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, plan: Plan, heads: int) -> Tensor:
        columns, width = plan.feature, x.shape[1]
        ctx.plan, ctx.layout = plan, (width, max(width // heads, 1), columns.first(width), heads)
        row = columns.split(x.detach().contiguous())
        column = columns.split(y.detach().contiguous())
        ctx.save_for_backward(row, column)
        _, dim, first, _ = ctx.layout
        left = plan.whole(row)
        parts: list[Tensor] = [row] * len(plan.matrices)
        for j, block in plan.row.gather(column):
            parts[j] = sddmm_heads(plan.matrix(j), left, block, first, dim, heads)
        e = torch.cat(parts)
        return e if columns.comm.size == 1 else columns.comm.all_reduce(e, phase="reduce")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (width, dim, first, _) = ctx.plan, ctx.layout
        row, column = ctx.saved_tensors
        parts = _per_block(plan, grads[0].contiguous())
        left, me = plan.whole(row), plan.row.comm.rank
        blocks = plan.row.gather_together([column], mirror=True)
        own = next(blocks)[1][0]
        drow: Tensor | None = None

        def partial(j: int) -> tuple[Tensor]:
            nonlocal drow
            block = own if j == me else next(blocks)[1][0]
            a, e = plan.matrix(j), parts[j]
            drow = weigh(a, e, block, dim, first, drow)
            return (weigh(a.T, e, left, dim, first, permutation=a.permutation),)

        (dcolumn,) = plan.row.merge(partial, add_up)
        next(blocks, None)
        assert drow is not None
        drow = plan.inner.reduce(plan.piece_of(drow))
        return plan.feature.join(drow, width), plan.feature.join(dcolumn, width), None, None


class Softmax(Function):
    """p = exp(e − max) / Σ exp(e − max) over the arcs of a row; backward de = p ∘ (dp − Σ p ∘ dp)."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, plan: Plan) -> Tensor:
        heads = e.shape[1]
        parts = _per_block(plan, e.detach())
        most = torch.full((sum(plan.pieces), heads), -torch.inf, dtype=e.dtype, device=e.device)
        matrices = plan.blocks()
        for a, part in zip(matrices, parts, strict=True):
            most.scatter_reduce_(0, a.row_of[:, None].expand(-1, heads), part, "amax")
        most = _along_inner(plan, most, lambda own, new: torch.maximum(own, new))
        # A row without arcs has no arc to give NaN to.
        p = torch.cat([torch.exp(part - most[a.row_of]) for a, part in zip(matrices, parts, strict=True)])
        total = _row_totals(plan, matrices, p)
        p = p / torch.cat([total[a.row_of] for a in matrices])
        ctx.plan = plan
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (p,), plan = ctx.saved_tensors, ctx.plan
        matrices = plan.blocks()
        weighted = p * grads[0]
        total = _row_totals(plan, matrices, weighted)
        return weighted - p * torch.cat([total[a.row_of] for a in matrices]), None


def _row_totals(plan: Plan, matrices: list[CSR], e: Tensor) -> Tensor:
    """Σ over each row's arcs, whoever holds them, at every row of T. [arcs, h] → [R, h]."""
    total: Tensor | None = None
    for a, part in zip(matrices, _per_block(plan, e), strict=True):
        total = add_rows_of(a, part.contiguous(), total)
    assert total is not None
    return _along_inner(plan, total, torch.add)


def _along_inner(plan: Plan, x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Everybody's rows of T combined along inner, and told to everybody who has them. [R, h] → [R, h]."""
    if plan.inner.comm.size == 1:
        return x
    parts, me = x.split(plan.pieces), plan.inner.comm.rank

    def absorb(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
        where = slice(None) if at is None else at
        own[0][where] = combine(own[0][where], incoming[0])

    (merged,) = plan.inner.merge(lambda p: (cloned(parts[p]) if p == me else parts[p].contiguous(),), absorb)
    return plan.whole(merged)


class Weigh(Function):
    """y[i,c] = Σ over the row's arcs of e[arc,h] x[j,c]; backward: de = ⟨dy[i], x[j]⟩, dx = eᵀ dy."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, x: Tensor, plan: Plan) -> Tensor:
        heads, width = e.shape[1], x.shape[1]
        columns = plan.feature
        ctx.plan, ctx.layout = plan, (width, max(width // heads, 1), columns.first(width), heads)
        _, dim, first, _ = ctx.layout
        cut = columns.split(x.detach().contiguous())
        e = e.detach().contiguous()
        ctx.save_for_backward(e, cut)
        parts = _per_block(plan, e)
        total: Tensor | None = None
        for j, block in plan.row.gather(cut):
            total = weigh(plan.matrix(j), parts[j], block, dim, first, total)
        assert total is not None
        return columns.join(plan.inner.reduce(plan.piece_of(total)), width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (width, dim, first, heads) = ctx.plan, ctx.layout
        e, cut = ctx.saved_tensors
        parts = _per_block(plan, e)
        g = plan.whole(plan.feature.split(grads[0].contiguous()))
        wants_e, wants_x = ctx.needs_input_grad[:2]
        de: list[Tensor] = [e] * len(parts)
        dx = None
        if wants_e:
            for j, block in plan.row.gather(cut):
                de[j] = sddmm_heads(plan.matrix(j), g, block, first, dim, heads)
            found = torch.cat(de)
            feature = plan.feature.comm
            found = found if feature.size == 1 else feature.all_reduce(found, phase="reduce")
        if wants_x:

            def partial(j: int) -> Tensor:
                a = plan.matrix(j)
                return weigh(a.T, parts[j], g, dim, first, permutation=a.permutation)

            dx = plan.feature.join(plan.row.reduce(partial), width)
        return found if wants_e else None, dx, None


class WeighExtremum(Function):
    """y[i,c] = max or min over the row's arcs of e[arc] ⊗ x[j,c]; backward: to who won, by column."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, x: Tensor, plan: Plan, how: Extremum) -> Tensor:
        assert e.shape[1] == 1, "one head at a time"
        columns = plan.feature
        cut = columns.split(x.detach().contiguous())
        parts = _per_block(plan, e.detach().contiguous())
        values = [part.ravel() for part in parts]
        y, winner = plan.best(cut, values, how)
        ctx.plan, ctx.plus = plan, how.plus
        ctx.save_for_backward(e.detach(), cut, winner)
        return columns.join(y, x.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        e, cut, winner = ctx.saved_tensors
        dy = grads[0].contiguous()
        g, arg = plan.whole(plan.feature.split(dy)), plan.whole(winner)
        parts = _per_block(plan, e)
        wants_e, wants_x = ctx.needs_input_grad[:2]
        found = dx = None
        if wants_e:
            de: list[Tensor] = [e] * len(parts)
            for j, block in plan.row.gather(cut):
                a, labels = plan.matrix(j), plan.labels(j)
                some = zip(a.row_of.split(_SOME_ARCS), a.indices.long().split(_SOME_ARCS), strict=True)
                sums = [
                    (g[row] if ctx.plus else g[row] * block[column])
                    .masked_fill(arg[row] != (column if labels is None else labels[column])[:, None], 0)
                    .sum(1)
                    for row, column in some
                ]
                de[j] = torch.cat(sums)[:, None]
            found = torch.cat(de)
            feature = plan.feature.comm
            found = found if feature.size == 1 else feature.all_reduce(found, phase="reduce")
        if wants_x:

            def partial(j: int) -> Tensor:
                a = plan.matrix(j)
                values = None if ctx.plus else parts[j].ravel()[a.permutation]
                return extremum_backward(a.T, g, arg, values, plan.labels(j))

            dx = plan.feature.join(plan.row.reduce(partial), dy.shape[1])
        return found, dx, None, None


def extremum_of(reduce: str | Semiring, dtype: torch.dtype) -> Extremum | None:
    """The maximum or minimum that a reduction or semiring is, where C++ knows it. dtype: of the rows."""
    if isinstance(reduce, Semiring):
        check_semiring(reduce, dtype)
        if not reduce.native or reduce.sum not in ("max", "min"):
            return None
        return Extremum(reduce.sum == "max", reduce.product == "plus", reduce.zero)
    return Extremum(reduce == "max") if reduce in ("max", "min") else None


class Number(Function):
    """A weight among numbers per arc. All ranks of a feature line do the same sum: each takes its share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0] / ctx.ranks, None


class Entries:
    """Numbers at A's entries, and the ways from the vertices to them and back: what `weft.nn.algebra` asks.

        e   [arcs here, h]   this rank's entries; h numbers each, one a head

    >>> import torch
    >>> from .operator import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> A.entries.spread(torch.tensor([[3.0], [4.0]]), "column").ravel()
    tensor([3., 4.])
    """

    def __init__(self, A: Operator):
        self.A, self.plan = A, A.plan

    @property
    def plain(self) -> bool:
        """Whether every entry of A is 1."""
        return all(a.values is None for a in self.plan.matrices) and not self.plan.mean

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        """A's own values, [arcs, 1]; as they are stored where no type is named."""
        parts = []
        for a in self.plan.blocks():
            ones = torch.ones(a.arcs if a.values is None else 0, dtype=dtype, device=a.indices.device)
            parts.append(ones if a.values is None else a.values)
        values = torch.cat(parts)
        if self.plan.mean:
            a = self.plan.matrix(0)
            values = values / a.counts[a.row_of].to(values.dtype)
        return values.to(dtype or values.dtype)[:, None]

    def spread(self, x: Tensor, side: str) -> Tensor:
        """e[arc] = x[i] (side "row") or x[j] (side "column"). [n_own, h] → [arcs, h]."""
        if side == "row":
            return _Linear.apply(x, self.plan, rows_to_arcs, arcs_to_rows)
        return _Linear.apply(x, self.plan, columns_to_arcs, arcs_to_columns)

    def dots(self, x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
        """e[arc, h] = ⟨x[i], y[j]⟩ in head h. [n_own, heads · d], twice → [arcs, heads].

        x is a row operand: it has A's rows.
        """
        self.A.check({"x": x}, {"y": y})
        e = Dots.apply(x, y, self.plan, heads)
        return self.A.sync(e) if self.A.in_columns(y) else e

    def data(self, name: str) -> Tensor:
        """What the arcs carry under this name, [arcs, …], to be read; no gradient goes there."""
        return _joined([a.data[name] for a in self.plan.blocks()])

    def lookup(self, table: Tensor, name: str) -> Tensor:
        """e[arc] = table[kind of the arc], a whole number that the arc carries. [kinds, h] → [arcs, h].

        The table is a weight: it is counted once, however many ranks share an arc.
        """
        kinds = self.data(name)
        if not kinds.is_meta and kinds.numel() and int(kinds.max()) >= table.shape[0]:
            raise ValueError(f"an arc is of kind {int(kinds.max())}, the table has {table.shape[0]} rows")
        return self.number(table)[kinds.ravel()] if not kinds.is_meta else table[:1].expand(kinds.numel(), -1)

    def share_of_kind(self, name: str, kinds: int) -> Tensor:
        """e[arc] = 1 / how many arcs of its row are of its kind, whoever holds them. [arcs, 1], made once."""
        made = self.A.made_once
        key = ("share of kind", name)
        if key not in made:
            kind, at = self.data(name).ravel(), torch.float64
            count = torch.zeros(kind.numel(), 1, dtype=at, device=kind.device)
            # Some kinds at a time: [arcs, kinds] would be as large as what this avoids.
            for first in range(0, kinds, _KINDS):
                some = torch.arange(first, min(first + _KINDS, kinds), device=kind.device)
                hit = (kind[:, None] == some).to(at)
                rows = self.spread(self.sum(hit), "row")
                count += (hit * rows).sum(1, keepdim=True)
            made[key] = 1 / count.clamp(min=1)
        return made[key]

    def project(self, name: str, weight: Tensor) -> Tensor:
        """e[arc] = f[arc] W, f what the arcs carry. W [t, h] → [arcs, h]."""
        return self.data(name).to(weight.dtype) @ self.number(weight)

    def data_dots(self, x: Tensor, name: str, heads: int = 1) -> Tensor:
        """e[arc, h] = ⟨x[i,h,:], f[arc]⟩, f what the arc carries. [n_own, heads · t] → [arcs, heads]."""
        self.A.check({"x": x}, {})
        forward = functools.partial(rows_to_data, name=name, heads=heads)
        return _Linear.apply(x, self.plan, forward, functools.partial(data_to_rows, name=name))

    def data_sums(self, e: Tensor, name: str) -> Tensor:
        """y[i,h,:] = Σ over the arcs of row i of e[arc,h] f[arc]. [arcs, heads] → [n_own, heads · t]."""
        self._check_counted(e)
        back = functools.partial(rows_to_data, name=name, heads=e.shape[1])
        return _Linear.apply(e, self.plan, functools.partial(data_to_rows, name=name), back)

    def sum(self, e: Tensor) -> Tensor:
        """y[i] = Σ over the arcs of row i of e[arc]. [arcs, h] → [n_own, h]."""
        self._check_counted(e)
        return _Linear.apply(e, self.plan, arcs_to_rows, rows_to_arcs)

    def softmax(self, e: Tensor) -> Tensor:
        """Softmax over the arcs of each row. [arcs, h] → [arcs, h]."""
        return Softmax.apply(e, self.plan)

    def weigh(self, e: Tensor, x: Tensor, reduce: str | Semiring = "sum") -> Tensor:
        """y[i] = ⊕ over the arcs of row i of e[arc] ⊗ x[j]. [arcs, heads], [n_own, heads · w] → the latter.

        ⊕ is sum, mean, max, min of products, or a semiring's, with its ⊗. A weight that e was made with
        goes through `number` first: along a feature axis its gradient is counted too often else, which is
        refused.
        """
        self.A.check({}, {"x": x})
        self._check_counted(e)
        if x.shape[1] % e.shape[1]:
            raise ValueError(f"S has {e.shape[1]} heads, which do not divide the {x.shape[1]} columns of X")
        e = e.to(x.dtype)
        how = extremum_of(reduce, x.dtype)
        if how is not None:
            return self._each_head(e, x, lambda s, part: WeighExtremum.apply(s, part, self.plan, how))
        if isinstance(reduce, Semiring) and not (reduce.native and reduce.sum == "sum"):
            fold = Fold.of(reduce)
            if fold.native_logsum:
                return self._each_head(e, x, lambda s, part: FoldArcs.apply(part, None, s, self.plan, fold))
            return FoldArcs.apply(x, None, e, self.plan, fold)
        if reduce not in ("sum", "mean") and not isinstance(reduce, Semiring):
            raise unknown("reduction", reduce, ["sum", "mean", "max", "min"])
        y = Weigh.apply(e, x, self.plan)
        return y if reduce != "mean" else y / self.A.degrees.clamp(min=1).to(y.dtype)

    def _each_head(self, e: Tensor, x: Tensor, one: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """What kernels of one number an arc do, for every head."""
        parts = x.unflatten(1, (e.shape[1], x.shape[1] // e.shape[1])).unbind(1)
        made = [one(s, part) for s, part in zip(e.split(1, 1), parts, strict=True)]
        return made[0] if len(made) == 1 else torch.cat(made, 1)

    def turned(self, e: Tensor) -> Tensor:
        """Numbers at A's entries as numbers at those of `A.T`. [arcs, h] → [arcs, h]; nothing moves."""
        return Turned.apply(e, self.A._turn()[1])

    def drop(self, e: Tensor, p: float, stream: Stream) -> Tensor:
        """keep ∘ e / (1 − p): the mask depends on the stream, both vertices and the head alone."""
        if p == 0:
            return e
        parts = []
        for j, a in enumerate(self.plan.blocks()):
            drop = Drop(p, stream.key, self.plan.row_names.long(), self.plan.names_of(j))
            parts.append(drop.factors(a, e.shape[1], e.dtype, e.device))
        return e * torch.cat(parts)

    def _check_counted(self, e: Tensor) -> None:
        check_counted(e, self.plan.feature.comm.size)

    def number(self, x: Tensor) -> Tensor:
        """A weight [heads] or [] among numbers per arc: counted once, though a feature line has f of it."""
        ranks = self.plan.feature.comm.size
        return x if ranks == 1 or not x.requires_grad else Number.apply(x, ranks)

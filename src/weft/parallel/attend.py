"""Attention on any grid: y = Ψ x, Ψ the row softmax of scores at A's entries, never held.

    rank (i, k, f) holds      row, column, x               its vertices' operands, complete rows
    forward   row side        [R, ·]                       gathered along inner
              column side, x  [C_j, ·], [C_j, |C_f|]       gathered along row, block by block
              scores          additive: complete on every rank of the feature line, for they are narrow
                              dot: of columns C_f, then summed along feature
              attend          T [R, |C_f|] and the softmax's maximum and sum, carried from block to block
              merge           T and both along inner, rescaled to the common maximum
    backward  gather along inner: dy and log Σ exp(s) with ⟨dy, y⟩ · along row again: column side, x
              ds = p ∘ (dp − ⟨dy, y⟩), dp = ⟨dy, x⟩ (summed along feature) · reduce along row and inner

The row operand of additive scores, and the column operand, are [n_own, heads]; those of dot are
[n_own, heads · d], cut along feature like x. What was gathered is gathered again for backward: keeping it
would cost the memory of a whole slab.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kernels import CSR, row_products
from ..kernels.attention import (
    Drop,
    Scores,
    attend,
    attend_backward,
    attend_self_backward,
    inverse,
    log_sum,
    weigh,
)  # fmt: skip
from ..kernels.function import Function
from ..kernels.sddmm import head_of, sddmm_heads
from ..memory import empty
from .entries import add_columns_of, add_rows_of
from .exchange import add_up, gather_together
from .propagate import Plan, cloned


@dataclass(frozen=True)
class Attention:
    """What kind of attention: see `weft.kernels.attention.Scores`."""

    kind: str
    heads: int = 1
    slope: float = 1.0
    softmax: bool = True
    drop: tuple[float, int] | None = None
    """Share of arcs dropped in each head, and the generator's key."""


@dataclass
class Operands:
    """The two sides and the values, cut as the grid needs them; `column` is `x` where they are one tensor."""

    row: Tensor
    column: Tensor
    x: Tensor
    gain: Tensor | None = None

    @property
    def together(self) -> bool:
        return self.column is self.x

    @property
    def moving(self) -> list[Tensor]:
        """What is gathered along row."""
        column = [] if self.together else [self.column]
        return [self.x, *column, *([] if self.gain is None else [self.gain])]

    def at(self, block: list[Tensor]) -> Operands:
        """The same with the blocks of one rank of the row line."""
        gain = None if self.gain is None else block[-1]
        return Operands(self.row, block[0] if self.together else block[1], block[0], gain)


def cut(plan: Plan, how: Attention, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None) -> Operands:
    """Complete rows to what travels: dot's operands and x by columns, additive's as they are."""
    columns = plan.feature
    x_cut = columns.split(x)
    if how.kind == "additive":
        return Operands(columns.share(row), columns.share(column), x_cut)
    gain = None if gain is None else columns.share(gain)
    return Operands(columns.split(row), x_cut if column is x else columns.split(column), x_cut, gain)


class Attend(Function):
    """forward y = Ψ x; backward: gradients of both sides of the scores, of the gain and of x."""

    @staticmethod
    def forward(
        ctx: Any, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None, plan: Plan, how: Attention
    ) -> Tensor:
        together = column is x
        row, column, x = (t.detach().contiguous() for t in (row, column, x))
        gain = None if gain is None else gain.detach().contiguous()
        parts = cut(plan, how, row, x if together else column, x, gain)
        ctx.work = work = Work(plan, how, x.shape[1], row.shape[1])
        y, logs = work.forward(parts)
        ctx.together = together
        ctx.save_for_backward(parts.row, None if together else parts.column, parts.x, parts.gain, y, logs)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        row, column, x, gain, y, logs = ctx.saved_tensors
        parts = Operands(row, x if ctx.together else column, x, gain)
        wants_row, *wants_columns = ctx.needs_input_grad[:4]
        found = ctx.work.backward(parts, grads[0].contiguous(), y, logs, wants_row, any(wants_columns))
        return *found, None, None


class SelfAttend(Function):
    """`Attend` where one rank has all of a symmetric A and scores are dot products of x with itself.

        s_ij = row_gain_i gain_j ⟨x_i, x_j⟩     y = Ψ x

    Backward is one walk over A with nothing per arc: row i meets (i, j) and (j, i) together. Where row_gain
    alone is learned (`sloped`), there is no walk: y_i depends on row_gain_i and on no other row's, so forward
    keeps ∂y_i / ∂row_gain_i, and that needs no symmetry either.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, row_gain: Tensor, gain: Tensor, a: CSR, how: Attention,
        names: tuple[Tensor, Tensor], sloped: bool,
    ) -> Tensor:  # fmt: skip
        x, row_gain, gain = (t.detach().contiguous() for t in (x, row_gain, gain))
        drop = None if how.drop is None else Drop(*how.drop, *names)
        ctx.a, ctx.heads, dim = a, how.heads, max(x.shape[1] // how.heads, 1)
        scores = Scores("dot", how.heads, x, x, softmax=how.softmax, drop=drop, gain=gain, row_gain=row_gain)
        ctx.sloped = sloped
        slope = empty(*x.shape, like=x) if sloped else None
        y, state = attend(a, scores, x, dim, slope=slope)
        if slope is not None:
            ctx.save_for_backward(slope)
            return y
        logs = torch.zeros_like(gain) if state is None else log_sum(state)
        ctx.save_for_backward(x, row_gain, gain, y, logs)
        ctx.scores = Scores("dot", how.heads, softmax=how.softmax, drop=drop)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy, heads = grads[0].contiguous(), ctx.heads
        if ctx.sloped:
            (slope,) = ctx.saved_tensors
            return None, row_products(dy, slope, heads), *[None] * 5
        x, row_gain, gain, y, logs = ctx.saved_tensors
        products = row_products(dy, y, heads)
        stat = torch.cat([row_gain, gain, logs, products], 1)
        dx, dgains = attend_self_backward(ctx.a, ctx.scores, stat, dy, x)
        return dx, dgains[:, :heads], dgains[:, heads:], *[None] * 4


@dataclass
class Work:
    """One attention on one rank."""

    plan: Plan
    how: Attention
    width: int
    """Columns of x, over all heads and ranks."""
    key_width: int
    """Columns of the row operand."""

    @property
    def dim(self) -> int:
        return max(self.width // self.how.heads, 1)

    @property
    def inner_dim(self) -> int:
        return max(self.key_width // self.how.heads, 1)

    @property
    def first(self) -> int:
        return self.plan.feature.first(self.width)

    @property
    def split(self) -> bool:
        """Whether features are cut, so that dot products must be summed along feature."""
        return self.plan.feature.comm.size > 1

    def _drop(self, j: int) -> Drop | None:
        if self.how.drop is None:
            return None
        p, key = self.how.drop
        return Drop(p, key, self.plan.row_names.long(), self.plan.names_of(j))

    def _scores(self, j: int, parts: Operands, given: Tensor | None = None) -> Scores:
        how = self.how
        drop = self._drop(j)
        if given is not None:
            return Scores("given", how.heads, given=given, softmax=how.softmax, drop=drop)
        return Scores(
            how.kind, how.heads, parts.row, parts.column, None, how.slope, how.softmax, drop, parts.gain
        )

    def _dots(self, a: CSR, parts: Operands) -> Tensor:
        """This rank's share of ⟨row, column⟩ at A_j's entries."""
        first = self.plan.feature.first(self.key_width)
        return sddmm_heads(a, parts.row, parts.column, first, self.inner_dim, self.how.heads)

    def forward(self, parts: Operands) -> tuple[Tensor, Tensor]:
        """(y_own, log Σ exp(s) of U(i,k))."""
        plan, how = self.plan, self.how
        local = replace(parts, row=plan.whole(parts.row))
        out: Tensor | None = None
        state: Tensor | None = None
        alone = plan.inner.comm.size == 1
        left = plan.row.comm.size
        for j, block in gather_together(plan.row, parts.moving):
            a, here, left = plan.matrix(j), local.at(block), left - 1
            given = None
            if how.kind == "dot" and self.split:
                given = plan.feature.comm.all_reduce(self._dots(a, here), phase="reduce")
                given = given if here.gain is None else given * here.gain[a.indices.long()]
            out, state = attend(
                a, self._scores(j, here, given), here.x, self.dim, self.first, out, state, alone and left == 0
            )
        assert out is not None
        if not how.softmax:
            y = plan.inner.reduce(plan.piece_of(out))
            return plan.feature.join(y, self.width), out.new_empty(0)
        assert state is not None
        if not alone:
            out, state = self._merge(out, state)
        return plan.feature.join(out, self.width), log_sum(state)

    def _head_of(self, out: Tensor) -> Tensor:
        """The head of each of this rank's columns."""
        return head_of(out.shape[1], self.first, self.dim, out.device)

    def _merge(self, out: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Along inner: everybody's T and (maximum, sum) to the common maximum, added up and divided."""
        plan, heads = self.plan, self.how.heads
        head, me = self._head_of(out), plan.inner.comm.rank
        outs, states = out.split(plan.pieces), state.split(plan.pieces)

        def absorb(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
            mine = own if at is None else tuple(t[at] for t in own)
            (y, s), (y2, s2) = mine, incoming
            most = torch.maximum(s[:, :heads], s2[:, :heads])
            # A rank that has no arc of the row has maximum −∞ and nothing to add.
            f, f2 = (torch.where(t[:, heads:] == 0, 0.0, torch.exp(t[:, :heads] - most)) for t in (s, s2))
            total = s[:, heads:] * f + s2[:, heads:] * f2
            y, s = y * f[:, head] + y2 * f2[:, head], torch.cat([most, total], 1)
            if at is None:
                own[0].copy_(y)
                own[1].copy_(s)
            else:
                own[0][at], own[1][at] = y, s

        y, merged = plan.inner.merge(
            lambda p: (cloned(outs[p]), cloned(states[p])) if p == me else (outs[p], states[p].contiguous()),
            absorb,
        )
        return y.mul_(inverse(merged[:, heads:])[:, head]), merged

    def backward(
        self, parts: Operands, dy: Tensor, y: Tensor, logs: Tensor, wants_row: bool, wants_columns: bool
    ) -> tuple[Tensor | None, ...]:
        """(drow, dcolumn, dx, dgain) of this rank's vertices.

        *gather dy and the row side along inner; block by block: ds, then dx and dcolumn to their owners along
        row, drow summed up here; drow along inner*
        """
        plan, how, columns = self.plan, self.how, self.plan.feature
        narrow = []  # [U, ·]: what is needed of every row, besides dy
        if how.softmax:
            products = row_products(dy, y, how.heads)
            narrow += [logs, columns.share(products)]
        if how.kind == "additive":
            narrow.append(parts.row)
        g = plan.whole(columns.split(dy))
        gathered = plan.whole(torch.cat(narrow, 1).contiguous()) if narrow else None
        stat = g.new_zeros(g.shape[0], 2 * how.heads)
        if gathered is not None and how.softmax:
            stat = gathered[:, : 2 * how.heads].contiguous()
        if how.kind == "additive":
            assert gathered is not None
            row = gathered[:, -how.heads :].contiguous()
        else:
            row = plan.whole(parts.row)
        local = replace(parts, row=row)
        drow: Tensor | None = None

        def block_backward(j: int, block: list[Tensor]) -> tuple[Tensor, ...]:
            nonlocal drow
            a, here = plan.matrix(j), local.at(block)
            if self.split:
                dx, dcolumn, dgain, ds = self._unfused(j, a, here, stat, g)
            else:
                dx, dcolumn, dgain, ds = attend_backward(a, self._scores(j, here), stat, g, here.x, self.dim)
            if wants_row:
                drow = self._add_row_side(drow, a, ds, here)
            return dx, *(() if parts.together else (dcolumn,)), *(() if dgain is None else (dgain,))

        dx: Tensor | None = None
        dcolumn: Tensor | None = None
        dgain: Tensor | None = None
        if wants_columns:
            blocks = gather_together(plan.row, parts.moving, mirror=True)
            own = next(blocks)[1]
            me = plan.row.comm.rank
            found = plan.row.merge(
                lambda p: block_backward(p, own if p == me else _next_of(blocks, p)), add_up
            )
            next(blocks, None)  # the last sends are waited for
            dx = columns.join(found[0], self.width)
            if not parts.together:
                additive = how.kind == "additive"
                dcolumn = columns.own(found[1]) if additive else columns.join(found[1], self.key_width)
            if parts.gain is not None:
                dgain = columns.own(found[-1])
        else:
            for j, block in gather_together(plan.row, parts.moving):
                block_backward(j, block)
        if not wants_row:
            return None, dcolumn, dx, dgain
        assert drow is not None
        mine = plan.inner.reduce(plan.piece_of(drow))
        drow = columns.own(mine) if how.kind == "additive" else columns.join(mine, self.key_width)
        return drow, dcolumn, dx, dgain

    def _add_row_side(self, drow: Tensor | None, a: CSR, ds: Tensor, here: Operands) -> Tensor:
        if self.how.kind == "dot":
            return weigh(a, ds, here.column, self.inner_dim, self.plan.feature.first(self.key_width), drow)
        return add_rows_of(a, ds, drow)

    def _unfused(
        self, j: int, a: CSR, here: Operands, stat: Tensor, g: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """`attend_backward` where features are cut: dot products are summed along feature first."""
        how, heads, feature = self.how, self.how.heads, self.plan.feature.comm
        ds = sddmm_heads(a, g, here.x, self.first, self.dim, heads)
        if how.kind == "dot":
            both = feature.all_reduce(torch.cat([ds, self._dots(a, here)], 1), phase="reduce")
            ds, plain = both[:, :heads].contiguous(), both[:, heads:]
            s = plain if here.gain is None else plain * here.gain[a.indices.long()]
        else:
            ds = feature.all_reduce(ds, phase="reduce")
            s = Scores("additive", heads, here.row, here.column, slope=how.slope).of(a)
        drop = self._drop(j)
        keep = None if drop is None else drop.factors(a, heads, ds.dtype, ds.device)
        ds = ds if keep is None else ds * keep
        p = s
        if how.softmax:
            p = torch.exp(s - stat[a.row_of, :heads])
            ds = p * (ds - stat[a.row_of, heads:])
        kept = p if keep is None else p * keep
        t, permutation = a.T, a.permutation
        dx = weigh(t, kept, g, self.dim, self.first, permutation=permutation)
        if how.kind == "additive":
            ds = torch.where(here.row[a.row_of] + here.column[a.indices.long()] > 0, ds, ds * how.slope)
            return dx, add_columns_of(a, ds), None, ds
        dgain = None
        if here.gain is not None:
            dgain = add_columns_of(a, ds * plain)
            ds = ds * here.gain[a.indices.long()]
        first = self.plan.feature.first(self.key_width)
        into = dx if here.together else None
        dcolumn = weigh(t, ds, here.row, self.inner_dim, first, into, permutation)
        return dx, dcolumn, dgain, ds


def _next_of(blocks: Iterator[tuple[int, list[Tensor]]], p: int) -> list[Tensor]:
    found, block = next(blocks)
    assert found == p, f"block {found} came, {p} was due"
    return block

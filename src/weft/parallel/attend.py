"""Attention on any grid: y = Ψ x, Ψ the row softmax of scores at A's entries, never held.

    rank (i, k, f) holds      row, column, x               its vertices' operands, complete rows
    forward   row side        [R, ·]                       gathered along inner
              column side, x  [C_j, ·], [C_j, |C_f|]       gathered along row, block by block
              scores          additive: complete on every rank of the feature line, for they are narrow
                              dot, channel: of columns C_f, then summed along feature
              attend          T [R, |C_f|] and the softmax's maximum and sum, carried from block to block
              merge           T and both along inner, rescaled to the common maximum
    backward  gather along inner: dy and log Σ exp(s) with ⟨dy, y⟩ · along row again: column side, x
              ds = p ∘ (dp − ⟨dy, y⟩), dp = ⟨dy, x⟩ (summed along feature) · reduce along row and inner

The row operand of additive scores, and the column operand, are [n_own, heads]; those of dot and channel are
[n_own, heads · d], cut along feature like x. A bias is a number per entry and head (`entries.py`). Where the
arcs' own data f are values too, Σ p f of each row comes beside y, [n_own, heads · t]: f itself never moves.
What was gathered is gathered again for backward: keeping it would cost the memory of a whole slab.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from ..kernels.channels import Channels, Signs, channel_scores, channel_scores_backward
from ..kernels.function import Function
from ..kernels.sddmm import head_of, sddmm_heads
from ..memory import empty
from .entries import add_columns_of, add_rows_of, data_dots, data_sums
from .exchange import add_up
from .operands import Attention, Kept, Learned, Operands, cut
from .propagate import Plan, cloned


class Attend(Function):
    """forward (y, Σ p f); backward: gradients of all that the scores are made of, and of x."""

    @staticmethod
    def forward(
        ctx: Any, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None, bias: Tensor | None,
        mix: Tensor | None, weight: Tensor | None, plan: Plan, how: Attention,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        together = column is x
        row, column, x = (t.detach().contiguous() for t in (row, column, x))
        gain = None if gain is None else gain.detach().contiguous()
        parts = cut(plan, how, row, x if together else column, x, gain)
        work = Work(plan, how, x.shape[1], row.shape[1])
        work.learned = learned = work.own_of(bias, mix, weight)
        y, logs, sums = work.forward(parts, any(ctx.needs_input_grad))
        ctx.work, ctx.together = work, together
        kept, work.learned, work.kept = work.kept, Learned(), []  # by ctx, which knows when to let go
        ctx.biases = 0 if learned.bias is None else len(learned.bias)
        ctx.signs = [None if k.signs is None else (k.signs.begin, k.signs.end) for k in kept]
        column_kept = None if together else parts.column
        ctx.save_for_backward(
            parts.row, column_kept, parts.x, parts.gain, y, logs, sums, learned.mix, learned.weight,
            *(learned.bias or ()), *(t for k in kept for t in (k.scores, k.signs and k.signs.bits)),
        )  # fmt: skip
        return y, sums

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        row, column, x, gain, y, logs, sums, mix, weight, *more = ctx.saved_tensors
        parts = Operands(row, x if ctx.together else column, x, gain)
        work: Work = ctx.work
        work.learned = Learned(more[: ctx.biases] or None, mix, weight)
        pairs = more[ctx.biases :]
        work.kept = [
            Kept(pairs[2 * j], None if rows is None else Signs(pairs[2 * j + 1], *rows))
            for j, rows in enumerate(ctx.signs)
        ]
        dy, dsums = (g.contiguous() for g in grads)
        found = work.backward(parts, dy, y, logs, dsums, sums, ctx.needs_input_grad)
        work.learned, work.kept = Learned(), []
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
    learned: Learned = field(default_factory=Learned)
    kept: list[Kept] = field(default_factory=list)
    """Per block, of channel scores."""

    def own_of(self, bias: Tensor | None, mix: Tensor | None, weight: Tensor | None) -> Learned:
        """This rank's part: the bias by blocks, of mix [heads · d] and weight [t, heads · d] its columns."""
        columns = slice(self.key_first, self.key_first + self._key_columns)
        return Learned(
            None if bias is None else [b.contiguous() for b in bias.detach().split(self.plan.arcs)],
            None if mix is None else mix.detach()[columns].contiguous(),
            None if weight is None else weight.detach()[:, columns].contiguous(),
        )

    def whole_of(self, own: Tensor | None) -> Tensor | None:
        """The gradient of all of mix or weight from that of the own columns: other ranks add theirs."""
        if own is None or not self.split:
            return own
        after = self.key_width - self.key_first - own.shape[-1]
        return torch.nn.functional.pad(own, (self.key_first, after))

    @property
    def key_first(self) -> int:
        return self.plan.feature.first(self.key_width)

    @property
    def _key_columns(self) -> int:
        return self.plan.feature.columns(self.key_width)[self.plan.feature.comm.rank]

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

    def _features(self, a: CSR) -> Tensor | None:
        return a.data[self.how.features] if self.how.features else None

    def _scores(self, j: int, a: CSR, parts: Operands, given: Tensor | None = None) -> Scores:
        how = self.how
        drop = self._drop(j)
        if given is not None:
            return Scores("given", how.heads, given=given, softmax=how.softmax, drop=drop)
        learned = self.learned
        return Scores(
            how.kind, how.heads, parts.row, parts.column, None, how.slope, how.softmax, drop, parts.gain,
            bias=learned.bias_of(j), mix=learned.mix, features=self._features(a), weight=learned.weight,
        )  # fmt: skip

    def _channels(self, a: CSR, parts: Operands) -> Channels:
        return Channels(parts.column, parts.row, self._features(a), self.learned.weight)

    def _sums_of_columns(self, a: CSR, parts: Operands, signs: Signs | None = None) -> Tensor:
        """This rank's share of wide scores at A_j's entries, before gain and bias. [arcs, heads]."""
        first, how = self.key_first, self.how
        if how.kind == "dot":
            return sddmm_heads(a, parts.row, parts.column, first, self.inner_dim, how.heads)
        assert self.learned.mix is not None
        return channel_scores(
            a, self._channels(a, parts), self.learned.mix, how.slope, first, self.inner_dim, how.heads, signs
        )

    def _complete(self, j: int, a: CSR, parts: Operands, plain: Tensor) -> Tensor:
        """Wide scores from their sum over all columns."""
        s = plain if parts.gain is None else plain * parts.gain[a.indices.long()]
        bias = self.learned.bias_of(j)
        return s if bias is None else s + bias

    def forward(self, parts: Operands, trained: bool) -> tuple[Tensor, Tensor, Tensor]:
        """(y_own, log Σ exp(s) of U(i,k), Σ p f of the own rows)."""
        plan, how = self.plan, self.how
        local = replace(parts, row=plan.whole(parts.row))
        out: Tensor | None = None
        state: Tensor | None = None
        alone = plan.inner.comm.size == 1
        left = plan.row.comm.size
        raw: list[Tensor] = [parts.x] * len(plan.matrices)
        kept: list[Kept | None] = [None] * len(raw)
        for j, block in plan.row.gather_together(parts.moving):
            a, here, left = plan.matrix(j), local.at(block), left - 1
            given, signs = None, None
            if how.kind == "channel" and trained:
                ch = self._channels(a, here)
                signs = Signs.room(a, ch, self.key_first, self.inner_dim, share=len(raw))
            if how.wide and self.split:
                mine = self._sums_of_columns(a, here, signs)
                given = self._complete(j, a, here, plan.feature.comm.all_reduce(mine, phase="reduce"))
            if how.values or (how.kind == "channel" and trained):
                raw[j] = empty(a.arcs, how.heads, like=here.x)
                kept[j] = Kept(raw[j], signs)
            out, state = attend(
                a, self._scores(j, a, here, given), here.x, self.dim, self.first, out, state,
                alone and left == 0, raw=None if kept[j] is None else raw[j], signs=signs,
            )  # fmt: skip
        if how.kind == "channel":
            self.kept = [k for k in kept if k is not None]
        assert out is not None
        if not how.softmax:
            y, logs = plan.inner.reduce(plan.piece_of(out)), out.new_empty(0)
        else:
            assert state is not None
            if not alone:
                out, state = self._merge(out, state)
            y, logs = out, log_sum(state)
        sums = self._values_of(raw, logs) if how.values else y.new_empty(0)
        return plan.feature.join(y, self.width), logs, sums

    def _values_of(self, raw: list[Tensor], logs: Tensor) -> Tensor:
        """Σ over a row's arcs of keep p f, [n_own, heads · t], from the scores."""
        plan, how = self.plan, self.how
        whole = plan.whole(logs) if how.softmax else None
        total: Tensor | None = None
        for j, s in enumerate(raw):
            a = plan.matrix(j)
            p = s if whole is None else torch.exp(s - whole[a.row_of])
            drop = self._drop(j)
            p = p if drop is None else p * drop.factors(a, how.heads, p.dtype, p.device)
            total = data_sums(a, p, how.values, total)
        assert total is not None
        return plan.feature.own(plan.inner.reduce(plan.piece_of(total)))

    def _head_of(self, out: Tensor) -> Tensor:
        """The head of each of this rank's columns."""
        return head_of(out.shape[1], self.first, self.dim, out.device)

    def _merge(self, out: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Along inner: everybody's T and (maximum, sum) to the common maximum, added up and divided."""
        plan, heads = self.plan, self.how.heads
        head, me = self._head_of(out), plan.inner.comm.rank
        outs, states = out.split(plan.pieces), state.split(plan.pieces)

        def absorb(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
            if own[0].is_meta:  # torch takes its time with numbers that are not there
                return
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
        self, parts: Operands, dy: Tensor, y: Tensor, logs: Tensor, dsums: Tensor, sums: Tensor,
        wants: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """(drow, dcolumn, dx, dgain, dbias, dmix, dweight) of this rank's vertices, entries and columns.

        *gather dy and the row side along inner; block by block: ds, then dx and dcolumn to their owners along
        row, drow summed up here; drow along inner*
        """
        plan, how, columns = self.plan, self.how, self.plan.feature
        wants_row, wants_bias = wants[0], wants[4]
        narrow = []  # [U, ·]: what is needed of every row, besides dy
        if how.softmax:
            products = row_products(dy, y, how.heads)
            products = products + row_products(dsums, sums, how.heads) if how.values else products
            narrow += [logs, columns.share(products)]
        if how.values:
            narrow.append(columns.share(dsums))
        if not how.wide:
            narrow.append(parts.row)
        g = plan.whole(columns.split(dy))
        gathered = plan.whole(torch.cat(narrow, 1).contiguous()) if narrow else None
        stat, dvalues = g.new_zeros(g.shape[0], 2 * how.heads), None
        if gathered is not None and how.softmax:
            stat = gathered[:, : 2 * how.heads].contiguous()
        if gathered is not None and how.values:
            begin = 2 * how.heads if how.softmax else 0
            dvalues = gathered[:, begin : begin + dsums.shape[1]].contiguous()
        if not how.wide:
            assert gathered is not None
            row = gathered[:, -how.heads :].contiguous()
        else:
            row = plan.whole(parts.row)
        local = replace(parts, row=row)
        drow: Tensor | None = None
        dlearned: list[Tensor | None] = [None, None]
        dbias: list[Tensor] = [g] * len(plan.matrices)

        def block_backward(j: int, block: list[Tensor]) -> tuple[Tensor, ...]:
            nonlocal drow
            a, here = plan.matrix(j), local.at(block)
            extra = None if dvalues is None else data_dots(a, dvalues, how.values, how.heads)
            dcolumn: Tensor | None
            if self.split:
                dx, dcolumn, dgain, ds = self._unfused(j, a, here, stat, g, extra)
            else:
                given = self.kept[j].scores if how.kind == "channel" else None
                dx, dcolumn, dgain, ds = attend_backward(
                    a, self._scores(j, a, here, given), stat, g, here.x, self.dim, extra
                )
            dbias[j] = ds
            if how.kind == "channel":
                dcolumn, drow = self._channel_sides(j, a, ds, here, dx, drow, dlearned)
            elif wants_row:
                drow = self._add_row_side(drow, a, ds, here)
            sides = () if parts.together or dcolumn is None else (dcolumn,)
            return dx, *sides, *(() if dgain is None else (dgain,))

        dx: Tensor | None = None
        dcolumn: Tensor | None = None
        dgain: Tensor | None = None
        if any(wants[1:4]):
            blocks = plan.row.gather_together(parts.moving, mirror=True)
            own = next(blocks)[1]
            me = plan.row.comm.rank
            found = plan.row.merge(
                lambda p: block_backward(p, own if p == me else _next_of(blocks, p)), add_up
            )
            next(blocks, None)  # the last sends are waited for
            dx = columns.join(found[0], self.width)
            if not parts.together:
                dcolumn = columns.join(found[1], self.key_width) if how.wide else columns.own(found[1])
            if parts.gain is not None:
                dgain = columns.own(found[-1])
        else:
            for j, block in plan.row.gather_together(parts.moving):
                block_backward(j, block)
        rest = (
            dcolumn, dx, dgain, torch.cat(dbias) if wants_bias else None, *map(self.whole_of, dlearned)
        )  # fmt: skip
        if not wants_row:
            return None, *rest
        assert drow is not None
        mine = plan.inner.reduce(plan.piece_of(drow))
        return columns.join(mine, self.key_width) if how.wide else columns.own(mine), *rest

    def _add_row_side(self, drow: Tensor | None, a: CSR, ds: Tensor, here: Operands) -> Tensor:
        if self.how.kind == "dot":
            return weigh(a, ds, here.column, self.inner_dim, self.key_first, drow)
        return add_rows_of(a, ds, drow)

    def _channel_sides(
        self, j: int, a: CSR, ds: Tensor, here: Operands, dx: Tensor, drow: Tensor | None,
        dlearned: list[Tensor | None],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(dcolumn, drow with this block's share) from ds; dcolumn is added to dx where columns are x."""
        assert self.learned.mix is not None
        found, dcolumn, dweight, dmix = channel_scores_backward(
            a, self._channels(a, here), ds.contiguous(), self.learned.mix, self.how.slope, self.key_first,
            self.inner_dim, self.kept[j].signs, dx if here.together else None,
        )  # fmt: skip
        for k, grad in enumerate((dmix, dweight)):
            old = dlearned[k]
            dlearned[k] = grad if old is None or grad is None else old + grad
        return dcolumn, found if drow is None else drow.add_(found)

    def _unfused(
        self, j: int, a: CSR, here: Operands, stat: Tensor, g: Tensor, extra: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """`attend_backward` where features are cut: sums over columns are completed along feature first."""
        how, heads, feature = self.how, self.how.heads, self.plan.feature.comm
        ds = sddmm_heads(a, g, here.x, self.first, self.dim, heads)
        if how.kind == "dot":
            both = feature.all_reduce(torch.cat([ds, self._sums_of_columns(a, here)], 1), phase="reduce")
            ds, plain = both[:, :heads].contiguous(), both[:, heads:]
            s = self._complete(j, a, here, plain)
        else:
            ds = feature.all_reduce(ds, phase="reduce")
            s = self.kept[j].scores if how.kind == "channel" else self._scores(j, a, here).of(a)
        ds = ds if extra is None else ds + extra
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
            ds = torch.where(self._scores(j, a, here).sums(a) > 0, ds, ds * how.slope)
            return dx, add_columns_of(a, ds), None, ds
        if how.kind == "channel":
            return dx, None, None, ds
        dgain = None
        if here.gain is not None:
            dgain = add_columns_of(a, ds * plain)
            ds = ds * here.gain[a.indices.long()]
        into = dx if here.together else None
        dcolumn = weigh(t, ds, here.row, self.inner_dim, self.key_first, into, permutation)
        return dx, dcolumn, dgain, ds


def _next_of(blocks: Iterator[tuple[int, list[Tensor]]], p: int) -> list[Tensor]:
    found, block = next(blocks)
    assert found == p, f"block {found} came, {p} was due"
    return block

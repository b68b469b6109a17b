"""Messages that arcs make column by column (`weft.kernels.channels`), summed up by row on any grid.

    z_ij = row_i + column_j + f_ij W        f_ij what the arc carries, which never moves

    rank (i, k, f) holds      row, column, x               its vertices' operands, complete rows
    forward   split           [|U(i,k)|, |C_f|]            every operand; of W the columns C_f
              gather          row along inner, column and x along row, block by block
              walk            T [R, |C_f|]                 Σ_j over A_j's arcs, z made a tile at a time
              reduce, join    along inner, then to complete rows
    backward  the operands are gathered again; z is made again, where its signs were not enough or not kept
              (`weft.kernels.channels.Signs`); dcolumn and dx to their owners along row

Each column is on one rank of the feature line: nothing is summed there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels import CSR
from ..kernels.channels import (
    Channels,
    Signs,
    channel_stats,
    channel_stats_backward,
    channel_sum,
    channel_sum_backward,
)
from ..kernels.function import Function
from .exchange import add_up
from .propagate import Plan, cloned, take_better


def _columns(plan: Plan, weight: Tensor | None, width: int) -> Tensor | None:
    """This rank's columns C_f of a weight [t, width]."""
    if weight is None:
        return None
    first = plan.feature.first(width)
    return weight.detach()[
        :, first : first + plan.feature.columns(width)[plan.feature.comm.rank]
    ].contiguous()


def _padded(plan: Plan, grad: Tensor | None, width: int) -> Tensor | None:
    """The gradient of a whole weight from that of the columns C_f: other ranks add theirs."""
    if grad is None or plan.feature.comm.size == 1:
        return grad
    first = plan.feature.first(width)
    return torch.nn.functional.pad(grad, (first, width - first - grad.shape[-1]))


def _add(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None or more is None else total + more


def _data(a: CSR, name: str) -> Tensor | None:
    return a.data[name] if name else None


def _rows_of(plan: Plan, row: Tensor | None, same: bool) -> Tensor | None:
    """The row operand of all rows that this rank walks over; `same`: of one vector, which nobody sends."""
    if row is None:
        return None
    return row.expand(plan.matrix(0).shape[0], -1).contiguous() if same else plan.whole(row)


class ChannelSum(Function):
    """y_i = Σ_j max(z_ij, 0), or Σ_j σ(z_ij) ∘ (x_j + f_ij U).

    A row operand [w] is the same for every row. Where nobody wants the column's gradient, and it would
    not have moved, its walk over Aᵀ is left out.
    """

    @staticmethod
    def forward(
        ctx: Any, row: Tensor | None, column: Tensor, x: Tensor | None, weight: Tensor | None,
        value_weight: Tensor | None, plan: Plan, kind: str, name: str,
    ) -> Tensor:  # fmt: skip
        width = column.shape[1]
        same = row is not None and row.dim() == 1
        cut = [
            None if t is None else _columns(plan, t[None], width) if same and t is row
            else plan.feature.split(t.detach().contiguous())
            for t in (row, column, x)
        ]  # fmt: skip
        own = [_columns(plan, w, width) for w in (weight, value_weight)]
        ctx.plan, ctx.how = plan, (kind, name, width, same)
        whole = _rows_of(plan, cut[0], same)
        moving = [t for t in cut[1:] if t is not None]
        total: Tensor | None = None
        kept: list[Signs | None] = [None] * len(plan.matrices)
        for j, block in plan.row.gather_together(moving):
            a = plan.matrix(j)
            ch = Channels(block[0], whole, _data(a, name), own[0])
            if kind == "relu" and any(ctx.needs_input_grad):
                kept[j] = Signs.room(a, ch, 0, ch.width, share=len(kept))
            total = channel_sum(a, ch, kind, block[1] if x is not None else None, own[1], total, kept[j])
        assert total is not None
        ctx.signs = [None if k is None else (k.begin, k.end) for k in kept]
        ctx.save_for_backward(*cut, *own, *(None if k is None else k.bits for k in kept))
        return plan.feature.join(plan.inner.reduce(plan.piece_of(total)), width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (kind, name, width, same) = ctx.plan, ctx.how
        row, column, x, weight, value_weight, *bits = ctx.saved_tensors
        signs = [None if at is None else Signs(b, *at) for b, at in zip(bits, ctx.signs, strict=True)]
        g = plan.whole(plan.feature.split(grads[0].contiguous()))
        whole = _rows_of(plan, row, same)
        wanted = ctx.needs_input_grad[1] or kind == "gate" or plan.row.comm.size > 1
        moving = [t for t in (column, x) if t is not None]
        blocks, me = plan.row.gather_together(moving, mirror=True), plan.row.comm.rank
        own = next(blocks)[1]
        drow: Tensor | None = None
        dweight: Tensor | None = None
        dvalue: Tensor | None = None

        def partial(j: int) -> tuple[Tensor, ...]:
            nonlocal drow, dweight, dvalue
            block = own if j == me else next(blocks)[1]
            a = plan.matrix(j)
            ch = Channels(block[0], whole, _data(a, name), weight)
            values = block[1] if x is not None else None
            found = channel_sum_backward(a, ch, kind, g, values, value_weight, signs[j], wanted)
            dweight, dvalue = _add(dweight, found.weight), _add(dvalue, found.value_weight)
            drow = _add(drow, found.row)
            return tuple(t for t in (found.column, found.x) if t is not None)

        sides = plan.row.merge(partial, add_up) if wanted else partial(me)
        next(blocks, None)  # the last sends are waited for
        joined = [plan.feature.join(t, width) for t in sides]
        dcolumn, dx = (joined[0], joined[1:]) if wanted else (None, [])
        if drow is not None and same:
            drow = _padded(plan, drow.sum(0), width)
        elif drow is not None:
            drow = plan.feature.join(plan.inner.reduce(plan.piece_of(drow)), width)
        learned = (_padded(plan, t, width) for t in (dweight, dvalue))
        return drow, dcolumn, dx[0] if dx else None, *learned, None, None, None


class ChannelStats(Function):
    """(Σ_j z_ij, Σ_j z_ij², max_j z_ij, min_j z_ij), z_ij = column_j + f_ij W."""

    @staticmethod
    def forward(ctx: Any, column: Tensor, weight: Tensor | None, plan: Plan, name: str) -> tuple[Tensor, ...]:
        width = column.shape[1]
        cut, own = plan.feature.split(column.detach().contiguous()), _columns(plan, weight, width)
        found: tuple[Tensor, ...] | None = None
        for j, block in plan.row.gather(cut):
            a = plan.matrix(j)
            stats = list(channel_stats(a, Channels(block, None, _data(a, name), own)))
            if plan.names is not None and plan.names[j].numel():
                names = plan.names[j].to(stats[4].device)  # dry, nobody knows who won
                stats[4:] = [torch.where(w < 0, w, names[w.clamp(min=0).long()]) for w in stats[4:]]
            if found is None:
                found = tuple(stats)
            else:
                _absorb(found, None, tuple(stats))
        assert found is not None
        if plan.inner.comm.size > 1:
            pieces, me = [t.split(plan.pieces) for t in found], plan.inner.comm.rank
            found = plan.inner.merge(
                lambda p: tuple(cloned(t[p]) if p == me else t[p].contiguous() for t in pieces), _absorb
            )
        ctx.plan, ctx.how = plan, (width, name)
        ctx.save_for_backward(cut, own, *found[4:])
        return tuple(plan.feature.join(t, width) for t in found[:4])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (width, name) = ctx.plan, ctx.how
        cut, weight, *args = ctx.saved_tensors
        whole = tuple(plan.whole(plan.feature.split(g.contiguous())) for g in grads)
        winners = plan.whole(args[0]), plan.whole(args[1])
        blocks, me = plan.row.gather_together([cut], mirror=True), plan.row.comm.rank
        own = next(blocks)[1][0]
        dweight: Tensor | None = None

        def partial(j: int) -> tuple[Tensor]:
            nonlocal dweight
            block = own if j == me else next(blocks)[1][0]
            a = plan.matrix(j)
            ch = Channels(block, None, _data(a, name), weight)
            labels = None if plan.names is None else plan.names[j]
            dcolumn, more = channel_stats_backward(a, ch, whole, winners, labels, True)
            dweight = _add(dweight, more)
            return (dcolumn,)

        (dcolumn,) = plan.row.merge(partial, add_up)
        next(blocks, None)
        return plan.feature.join(dcolumn, width), _padded(plan, dweight, width), None, None


def _absorb(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
    """Others' statistics of the same rows, into the own ones."""
    for k in (0, 1):
        if at is None:
            own[k].add_(incoming[k])
        else:
            own[k].index_add_(0, at, incoming[k])
    for k, largest in ((2, True), (3, False)):
        take_better((own[k], own[k + 2]), at, (incoming[k], incoming[k + 2]), largest)

"""Messages of any function, reduced by any function (`weft.kernels.fold`), on any grid.

    rank (i, k, f) holds      h, and where the message asks for it the target's row    its vertices' rows
    forward   split           [|U(i,k)|, |C_f|]            each column on one rank: messages go by columns
              gather          h along row, block by block; the targets' rows along inner
              fold            t_j [R, |C_f|]               of A_j's arcs, some at a time; t = t_0 ⊕ t_1 ⊕ …
              merge           along inner by ⊕             keep U(i,k)
              join            to complete rows
    backward  gather dy along inner (with y or the winners, where ⊕'s gradient needs them), h again along row;
              messages are made again; reduce dh along row, the targets' part along inner

Where the gradient of ⊕ is autograd's, the owner of a row kept everybody's share of it, and *deals* each rank
the gradient of its own: as many words as a gather.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..kernels.fold import Fold, Folded, Operands, check_columns, fold_arcs, fold_backward
from ..kernels.function import Function
from .exchange import add_up
from .propagate import Extremum, Plan, cloned, take_better


def _operands(
    ctx_how: tuple[Any, ...], plan: Plan, j: int, block: Tensor, arc: Tensor | None, row: Tensor | None,
    learned: tuple[Tensor, ...],
) -> Operands:  # fmt: skip
    """What A_j's messages are made of: numbers that came with the call, what arcs carry, or A's entries."""
    (name, span), width, fold = ctx_how
    a = plan.matrix(j)
    first, here = plan.feature.first(width), block.shape[1]
    if arc is not None:
        given = arc.split(plan.arcs)[j]
        heads = given.shape[1]
        index = None
        if heads > 1:
            column = first + torch.arange(here, device=block.device)
            index = torch.div(column, max(width // heads, 1), rounding_mode="floor")
        return Operands(block, given, row, index, learned)
    if name:
        data = a.data[name]
        data = data if not data.is_floating_point() else data.to(block.dtype)
        # Data as wide as h go with it, column by column; h itself may be some columns of the input.
        skip, whole = span or (0, width)
        wide = data.dim() == 2 and data.shape[1] == whole > 1
        begin = skip + first
        return Operands(block, data[:, begin : begin + here] if wide else data, row, None, learned)
    values = None if a.values is None or fold.what != "multiply" else a.values.to(block.dtype)[:, None]
    return Operands(block, values, row, None, learned)


class FoldArcs(Function):
    """y_i = 0 ⊕ message(h_j, arc_e, row_i) ⊕ …

    column   [n_own, w]         row  [n_own, w] or None
    arc      [arcs, heads]      numbers of one's own; None: A's entries, or what arcs carry
    source   (name of what they carry, (first, all) where h is some columns of the input)
    learned  weights inside the message
    """

    @staticmethod
    def forward(
        ctx: Any, column: Tensor, row: Tensor | None, arc: Tensor | None, plan: Plan, fold: Fold,
        source: tuple[str, tuple[int, int] | None] = ("", None), *learned: Tensor,
    ) -> Tensor:  # fmt: skip
        width = column.shape[1]
        how = (source, width, fold)
        cut = plan.feature.split(column.detach().contiguous())
        cut_row = None if row is None else plan.feature.split(row.detach().contiguous())
        whole = None if cut_row is None else plan.whole(cut_row)
        numbers = None if arc is None else arc.detach().contiguous()
        weights = tuple(w.detach() for w in learned)
        asked = any(ctx.needs_input_grad)  # else nobody needs to know who won
        shares: list[Tensor] = []
        found: Folded | None = None
        for j, block in plan.row.gather(cut):
            ops = _operands(how, plan, j, block, numbers, whole, weights)
            if found is None and plan.feature.comm.size > 1 and not block.is_meta:
                check_columns(fold, ops)
            part = fold_arcs(plan.matrix(j), fold, ops, asked or not plan.alone)
            if part.winner is not None:
                part = Folded(part.y, plan.named(part.winner, j))
            if fold.by_tree:
                shares.append(part.y)
            found = part if found is None else _merged(fold, found, part)
        assert found is not None
        y, winner, came = _along_inner(plan, fold, found)
        if winner is not None:
            y, winner = Extremum(fold.kind == "max", zero=fold.zero).with_zero(y, winner)
        elif fold.wins:
            y = Extremum(fold.kind == "max", zero=fold.zero).without_winners(y, plan.matrix(0).counts)
        ctx.plan, ctx.how, ctx.came_at = plan, how, [at for at, _ in came]
        kept = shares if len(shares) > 1 else []
        ctx.kept = len(kept)
        own = [cloned(found.y.split(plan.pieces)[plan.inner.comm.rank])] if came else []
        known = y if fold.add_gradient is not None else None
        ctx.save_for_backward(cut, cut_row, numbers, known, winner, *kept, *own, *(t for _, t in came))
        ctx.learned = learned
        return plan.feature.join(y, width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        fold: Fold = ctx.how[2]
        width: int = ctx.how[1]
        cut, cut_row, numbers, known, winner, *more = ctx.saved_tensors
        shares = more[: ctx.kept]
        own, came = more[len(shares) : len(shares) + 1], more[len(shares) + 1 :]
        learned = ctx.learned
        dy = plan.feature.split(grads[0].contiguous())
        whole = None if cut_row is None else plan.whole(cut_row)
        if fold.by_tree:
            each = _dealt(plan, fold, dy, own, list(zip(ctx.came_at, came, strict=True)))
            each_block = _parted(fold, each, shares)
            folded = Folded(each, None)
        else:
            each_block = [plan.whole(dy)] * len(plan.matrices)
            y = each_block[0] if known is None else plan.whole(known)
            folded = Folded(y, None if winner is None else plan.whole(winner))
        wants_column, wants_row, wants_arc = ctx.needs_input_grad[:3]
        wants = (wants_column, wants_row and whole is not None, wants_arc)
        drow: Tensor | None = None
        darcs: list[Tensor | None] = [None] * len(plan.matrices)
        totals: list[Tensor | None] = [None] * len(learned)
        me = plan.row.comm.rank
        order = [me, *(source for _, source in plan.row._stages)]  # as forward met them

        def partial(j: int) -> tuple[Tensor]:
            block = mine if j == me else next(blocks)[1][0]
            return (cast(Tensor, back(j, block)),)

        def back(j: int, block: Tensor) -> Tensor | None:
            nonlocal drow, totals
            ops = _operands(ctx.how, plan, j, block, numbers, whole, learned)
            at = order.index(j) if len(each_block) > 1 and fold.by_tree else 0
            found = fold_backward(
                plan.matrix(j), fold, ops, folded, each_block[at].contiguous(), wants, plan.labels(j)
            )
            drow = _sum(drow, found.row)
            totals = [_sum(total, new) for total, new in zip(totals, found.learned, strict=True)]
            darcs[j] = found.arc
            return found.column

        out = None
        if wants_column:
            blocks = plan.row.gather_together([cut], mirror=True)
            mine = next(blocks)[1][0]
            (dcolumn,) = plan.row.merge(partial, add_up)
            next(blocks, None)  # the last sends are waited for
            out = plan.feature.join(dcolumn, width)
        else:
            for j, block in plan.row.gather(cut):
                back(j, block)
        back_row = None
        if drow is not None:
            back_row = plan.feature.join(plan.inner.reduce(plan.piece_of(drow)), width)
        darc = None
        if wants_arc and numbers is not None:
            darc = torch.cat([d if d is not None else numbers[:0] for d in darcs])
            line = plan.feature.comm
            darc = darc if line.size == 1 else line.all_reduce(darc, phase="reduce")
        return out, back_row, darc, None, None, None, *totals


def _sum(total: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if total is None else total if new is None else total + new


def _merged(fold: Fold, own: Folded, new: Folded) -> Folded:
    """Two blocks' results of the same rows."""
    if fold.wins:
        assert own.winner is not None
        assert new.winner is not None
        take_better((own.y, own.winner), None, (new.y, new.winner), fold.kind == "max")
        return own
    return Folded(fold.combine(own.y, new.y), None)


def _along_inner(
    plan: Plan, fold: Fold, found: Folded
) -> tuple[Tensor, Tensor | None, list[tuple[Tensor | None, Tensor]]]:
    """(y, winners, what came and for which rows, where backward needs it) of U(i,k)."""
    if plan.inner.comm.size == 1:
        return found.y, found.winner, []
    if found.winner is not None:
        y, winner = plan.best_along_inner((found.y, found.winner), fold.kind == "max")
        return y, winner, []
    came: list[tuple[Tensor | None, Tensor]] = []

    def absorb(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
        where = slice(None) if at is None else at
        if fold.by_tree:
            came.append((at, cloned(incoming[0])))
        own[0][where] = fold.combine(own[0][where], incoming[0])

    parts, me = found.y.split(plan.pieces), plan.inner.comm.rank
    (y,) = plan.inner.merge(lambda p: (cloned(parts[p]) if p == me else parts[p],), absorb)
    return y, None, came


def _dealt(
    plan: Plan, fold: Fold, dy: Tensor, own: list[Tensor], came: list[tuple[Tensor | None, Tensor]]
) -> Tensor:
    """The gradient [R, |C_f|] of what this rank gave to the rows of T, from their owners."""
    if plan.inner.comm.size == 1:
        return dy
    me = plan.inner.comm.rank
    start = own[0].detach().requires_grad_()
    others = [t.detach().requires_grad_() for _, t in came]
    with torch.enable_grad():
        y = start
        for (at, _), t in zip(came, others, strict=True):
            part = fold.combine(y if at is None else y[at], t)
            y = part if at is None else y.index_copy(0, at, part)
    gradients = torch.autograd.grad(y, [start, *others], dy)
    sources = [source for _, source in plan.inner._stages]
    parts = {me: gradients[0], **dict(zip(sources, gradients[1:], strict=True))}
    whole = torch.empty(sum(plan.pieces), dy.shape[1], dtype=dy.dtype, device=dy.device)
    rooms = whole.split(plan.pieces)
    for p, block in plan.inner.deal(lambda p: parts[p].contiguous()):
        rooms[p].copy_(block)
    return whole


def _parted(fold: Fold, dt: Tensor, shares: list[Tensor]) -> list[Tensor]:
    """The gradient of each block's share of t = t_0 ⊕ t_1 ⊕ …, in the order in which they were combined."""
    if not shares:
        return [dt]
    leaves = [t.detach().requires_grad_() for t in shares]
    with torch.enable_grad():
        y = leaves[0]
        for t in leaves[1:]:
            y = fold.combine(y, t)
    return list(torch.autograd.grad(y, leaves, dt))

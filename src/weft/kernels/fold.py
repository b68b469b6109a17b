"""Messages made by any function, reduced by any function, some arcs at a time. No autograd, both directions.

    m_e = message(source_j, arc_e, target_i)          e = (i, j), entry by entry
    y_i = 0 ⊕ m_e ⊕ …                                 over the arcs of row i

Nothing of arcs × width is kept: a chunk's messages are made, reduced and forgotten, and made again in
backward, where torch's autograd looks at one chunk. How ⊕ goes back is one of four:

    sum          dm = dy
    max, min     dm = dy at the arc that won, the first of equals
    known y      dm = add_gradient(m, y, dy): log-sum-exp, and what the user says
    tree         autograd, through the tree in which the chunk was reduced
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError
from ..memory import empty
from ..meter import metered
from . import dry, native
from .csr import CSR
from .rows import pack_rows, scatter_rows_
from .segments import Chunk, Group, Segments
from .semiring import Binary, ProductGradient, Semiring, SumGradient, check_made

Message = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""(source [k, w], arc [k, ·], target [k, w]) → [k, w]."""


@dataclass(frozen=True)
class Fold:
    """How arcs' messages are made and reduced; `of` a semiring, or of a message of one's own.

    kind    ⊕ by name: sum, max, min, logsum, own
    zero    None, of max and min alone: 0 in empty rows, and elsewhere nothing competes
    native_logsum  whether C++'s log-sum-exp does it all
    what    what the user calls the message
    """

    message: Message
    kind: str
    add: Binary
    zero: float | None
    add_gradient: SumGradient | None = None
    product_gradient: ProductGradient | None = None
    native_logsum: bool = False
    what: str = "scatter"

    @classmethod
    def of(cls, semiring: Semiring) -> Fold:
        def message(source: Tensor, arc: Tensor | None, target: Tensor | None) -> Tensor:
            return semiring.multiply(source.new_ones(source.shape[0], 1) if arc is None else arc, source)

        return cls(
            message, semiring.sum, semiring.add, semiring.zero,
            semiring.reduction.known_gradient,
            semiring.multiply_gradient, semiring.native and semiring.sum == "logsum", "multiply",
        )  # fmt: skip

    @property
    def wins(self) -> bool:
        """Whether one arc wins a column: its gradient goes there."""
        return self.kind in ("max", "min")

    @property
    def by_tree(self) -> bool:
        """Whether autograd must see how messages were combined."""
        return self.kind == "own" and self.add_gradient is None

    def combine(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a, b) if self.kind == "sum" else self.add(a, b)

    @property
    def neutral(self) -> float:
        """What rows begin with, and a padded place holds."""
        return 0.0 if self.wins or self.zero is None else self.zero

    def reduce(self, m: Tensor) -> Tensor:
        """[size, k, w] → [k, w]."""
        if self.kind == "sum":
            return m.sum(0)
        if self.kind == "logsum":
            return torch.logsumexp(m, 0)
        if self.wins:
            return _tree(torch.maximum if self.kind == "max" else torch.minimum, m)
        return self.add(torch.full_like(m[0], self.neutral), _tree(self.add, m))


def _tree(add: Binary, m: Tensor) -> Tensor:
    """Halves combined with halves; the odd ones out wait until the end. [size, …] → […]"""
    left = []
    while m.shape[0] > 1:
        half = m.shape[0] // 2
        if m.shape[0] % 2:
            left.append(m[-1])
        m = add(m[:half], m[half : 2 * half])
    out = m[0]
    for one in left:
        out = add(out, one)
    return out


class Folded(NamedTuple):
    """y [rows, w], and where one arc wins a column its j, −1 in empty rows; else None."""

    y: Tensor
    winner: Tensor | None


class Operands(NamedTuple):
    """What messages are made of.

    column  [columns, w]   arc [arcs, ·] or None   row [rows, w] or None
    heads   [w] which number of an arc belongs to a column; None: all of them are given to the message
    learned  weights inside the message, for their gradients
    """

    column: Tensor
    arc: Tensor | None = None
    row: Tensor | None = None
    heads: Tensor | None = None
    learned: Sequence[Tensor] = ()


def check_columns(fold: Fold, ops: Operands) -> None:
    """Refuse a message that makes a column of others: tried on two rows, one column of which changes.

    Where the columns of h are cut among ranks, each has some of them, and would make another message.
    """
    width = max(2, ops.column.shape[1])
    source = torch.linspace(0.25, 1.75, 2 * width, dtype=ops.column.dtype, device=ops.column.device)
    source = source.view(2, width)
    arc = None
    if ops.arc is not None:
        arc = ops.arc if ops.heads is None else ops.arc[:, ops.heads]
        narrow = arc.dim() > 1 and arc.shape[1] == ops.column.shape[1] < width
        few = arc.shape[0] < 2 or narrow
        arc = arc.new_ones(2, *([1] if narrow else arc.shape[1:])) if few else arc[:2]
    moved = source.clone()
    moved[:, 0] += 0.5
    with torch.no_grad():
        one, two = (fold.message(x, arc, None if ops.row is None else x) for x in (source, moved))
    if not torch.allclose(one[:, 1:], two[:, 1:], rtol=0, atol=0, equal_nan=True):
        raise UserError(
            f"{fold.what} makes columns of a message of other columns of the rows, and on this grid a rank "
            "has some of them. Do that in transform, or use a grid without a feature axis."
        )


class Made(NamedTuple):
    """One chunk's operands as leaves, and its messages."""

    source: Tensor
    arc: Tensor | None
    target: Tensor | None
    m: Tensor


def _make(
    a: CSR, fold: Fold, ops: Operands, chunk: Chunk, wants: Sequence[bool] = (False, False, False)
) -> Made:
    """The messages [size · k, w] of a chunk; `wants` of (column, row, arc) the gradient."""
    at = chunk.arcs.reshape(-1)
    source = pack_rows(ops.column, a.indices[at]).requires_grad_(wants[0])
    arc = None if ops.arc is None else ops.arc[at].requires_grad_(wants[2])
    target = None
    if ops.row is not None:
        target = pack_rows(ops.row, chunk.row).requires_grad_(wants[1])
    size, k = chunk.arcs.shape
    given = arc if arc is None or ops.heads is None else arc[:, ops.heads]
    ends = None if target is None else target.expand(size, k, -1).reshape(size * k, -1)
    m = fold.message(source, given, ends)
    check_made(fold.what, m, source)
    return Made(source, arc, target, m)


def _padded(fold: Fold, m: Tensor, chunk: Chunk) -> Tensor:
    """[size · k, w] → [size, k, w], spare places filled; under max and min they may repeat an arc."""
    m = m.reshape(*chunk.arcs.shape, m.shape[-1])
    return m if chunk.spare is None or fold.wins else torch.where(chunk.spare[:, :, None], fold.neutral, m)


@metered("fold")
@torch.no_grad()
def fold_arcs(a: CSR, fold: Fold, ops: Operands, wants_winners: bool = True) -> Folded:
    """(y, winners) of a matrix. Rows without arcs: `zero`; of max and min 0, and the winner −1.

    >>> from .semiring import Semiring
    >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))
    >>> narrow = Fold.of(Semiring(torch.fmin, torch.mul, torch.inf))
    >>> fold_arcs(a, narrow, Operands(torch.tensor([[1.0, 8.0], [3.0, 4.0]]))).y
    tensor([[1., 4.],
            [inf, inf]])
    """
    rows, width = a.shape[0], ops.column.shape[1]
    if fold.native_logsum and native.served(ops.column, a.indices, ops.arc) and ops.heads is None:
        return Folded(_logsum(a, ops), None)
    if dry.is_dry(ops.column, ops.arc, ops.row, a.indices):
        _dry_message(fold, ops)
        wins = fold.wins and wants_winners
        winner = dry.blank(rows, width, dtype=a.indices.dtype) if wins else None
        return Folded(dry.blank(rows, width, dtype=ops.column.dtype), winner)
    wins = fold.wins and wants_winners
    y, won = _walk(a, fold, lambda chunk: _make(a, fold, ops, chunk).m, ops.column, wins)
    if won is None:
        return Folded(y, None)
    return Folded(y, torch.cat([a.indices, a.indices.new_full((1,), -1)])[won])


def _dry_message(fold: Fold, ops: Operands) -> None:
    """A message of one arc without numbers: its shape is checked where words are foretold, too."""

    def blank(x: Tensor | None) -> Tensor | None:
        return None if x is None else dry.blank(1, *x.shape[1:], dtype=x.dtype)

    arc, source = blank(ops.arc), dry.blank(1, ops.column.shape[1], dtype=ops.column.dtype)
    arc = arc if arc is None or ops.heads is None else arc[:, :1].expand(-1, ops.heads.numel())
    fold.message(source, arc, None if ops.row is None else source)


def _walk(
    a: CSR, fold: Fold, messages: Callable[[Chunk], Tensor], like: Tensor, wins: bool
) -> tuple[Tensor, Tensor | None]:
    """(y, the arc that won or a.arcs, where `wins`) of messages that are made chunk by chunk."""
    seg, width = Segments.of(a), like.shape[1]

    def room(rows: int) -> tuple[Tensor, Tensor | None]:
        won = torch.full((rows, width), a.arcs, device=like.device) if wins else None
        return empty(rows, width, like=like).fill_(fold.neutral), won

    y, won = room(a.shape[0])
    _reduce(seg.whole, fold, messages, y, won)
    if seg.above is not None:
        parts, part_won = room(seg.count)
        _reduce(seg.pieces, fold, messages, parts, part_won)
        whole, which = _walk(seg.above, fold, lambda chunk: parts[chunk.arcs.reshape(-1)], parts, wins)
        long = (seg.above.counts > 0).nonzero().ravel()
        y[long] = whole[long]
        if won is not None and which is not None and part_won is not None:
            won[long] = part_won.gather(0, which[long])
    return y, won


def _reduce(
    groups: list[Group], fold: Fold, messages: Callable[[Chunk], Tensor], y: Tensor, won: Tensor | None
) -> None:
    for group in groups:
        for chunk in group.chunks(y.shape[1]):
            m = _padded(fold, messages(chunk), chunk)
            if won is None:
                y.index_copy_(0, chunk.to, fold.reduce(m))
            else:
                best, at = m.max(0) if fold.kind == "max" else m.min(0)
                each = torch.arange(at.shape[0], device=at.device)[:, None]
                y.index_copy_(0, chunk.to, best)
                won.index_copy_(0, chunk.to, chunk.arcs[at, each])


class FoldGradients(NamedTuple):
    column: Tensor | None
    arc: Tensor | None
    row: Tensor | None
    learned: list[Tensor | None]


@metered("fold")
def fold_backward(
    a: CSR, fold: Fold, ops: Operands, folded: Folded, dy: Tensor, wants: Sequence[bool],
    labels: Tensor | None = None,
) -> FoldGradients:  # fmt: skip
    """Gradients of (column, row, arc) that are wanted, and of the learned weights in the message.

    folded  y and the winners of the whole row, whoever holds its other arcs; of a tree nothing is read
    dy      [rows, w]; of a tree: the gradient of what this matrix gave
    labels  [columns] what winners call column j, where not j itself
    """
    column, row, arc = wants
    learned: list[Tensor | None] = [None] * len(ops.learned)
    if dry.is_dry(dy, ops.column, ops.arc, a.indices):

        def blank(t: Tensor | None, wanted: bool) -> Tensor | None:
            return dry.blank(*t.shape, dtype=t.dtype) if wanted and t is not None else None

        sides = blank(ops.column, column), blank(ops.arc, arc), blank(ops.row, row)
        return FoldGradients(*sides, [blank(t, True) for t in ops.learned])
    if fold.native_logsum and native.served(ops.column, a.indices, ops.arc) and ops.heads is None and not arc:
        return FoldGradients(_logsum_backward(a, ops, folded.y, dy), None, None, learned)
    dcolumn = empty(*ops.column.shape, like=dy).zero_() if column else None
    drow = torch.zeros_like(ops.row) if row and ops.row is not None else None
    darc = torch.zeros_like(ops.arc) if arc and ops.arc is not None else None
    for chunk, g in _gradient_chunks(a, fold, ops, dy):
        with torch.enable_grad():
            made = _make(a, fold, ops, chunk, wants)
        found, more = _back(a, fold, ops, folded, chunk, made, g, labels)
        dsource, dtarget, dentry = found
        if dcolumn is not None and dsource is not None:
            index = a.indices[chunk.arcs.reshape(-1)]
            scatter_rows_(dcolumn, index, dsource)
        if drow is not None and dtarget is not None:
            scatter_rows_(drow, chunk.row, dtarget)
        if darc is not None and dentry is not None:
            real = slice(None) if chunk.spare is None else ~chunk.spare.reshape(-1)
            darc[chunk.arcs.reshape(-1)[real]] = dentry[real]
        learned = [_plus(total, new) for total, new in zip(learned, more, strict=True)]
    return FoldGradients(dcolumn, darc, drow, learned)


def _plus(total: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if total is None else total if new is None else total + new


def _gradient_chunks(a: CSR, fold: Fold, ops: Operands, dy: Tensor) -> Iterator[tuple[Chunk, Tensor]]:
    """Every chunk with the gradient [k, w] of its rows, or by tree of what it gave."""
    seg, width = Segments.of(a), dy.shape[1]
    dparts: Tensor | None = None
    if fold.by_tree and seg.above is not None:
        # What the pieces of long rows gave is made again: their combination is a tree like any other.
        parts = dy.new_full((seg.count, width), fold.neutral)
        with torch.no_grad():
            _reduce(seg.pieces, fold, lambda chunk: _make(a, fold, ops, chunk).m, parts, None)
        same = replace(fold, message=lambda source, arc, target: source, product_gradient=None)
        dparts = fold_backward(
            seg.above, same, Operands(parts), Folded(parts, None), dy, (True, False, False)
        ).column
    for groups in (seg.whole, seg.pieces):
        for group in groups:
            for chunk in group.chunks(width):
                from_parts = dparts is not None and groups is seg.pieces
                yield chunk, dparts[chunk.to] if from_parts and dparts is not None else dy[chunk.row]


def _back(
    a: CSR, fold: Fold, ops: Operands, folded: Folded, chunk: Chunk, made: Made, g: Tensor,
    labels: Tensor | None,
) -> tuple[list[Tensor | None], list[Tensor | None]]:  # fmt: skip
    """([of source, target, arc], of the learned weights) from the gradient g [k, w] of a chunk's rows."""
    leaves = [t if t is not None and t.requires_grad else None for t in (made.source, made.target, made.arc)]
    asked = [t for t in (*leaves, *ops.learned) if t is not None]
    if not asked:
        return [None] * 3, [None] * len(ops.learned)
    if fold.by_tree:
        with torch.enable_grad():
            result = fold.reduce(_padded(fold, made.m, chunk))
        gradients = _grad(result, asked, g)
    else:
        dm = _of_messages(a, fold, folded, chunk, made.m.detach(), g, labels)
        if fold.product_gradient is not None and made.target is None and not ops.learned:
            return _by_hand(fold, ops, made, dm, leaves), []
        gradients = _grad(made.m, asked, dm)
    each = iter(gradients)
    found = [None if t is None else next(each) for t in leaves]
    return found, list(each)


def _grad(y: Tensor, asked: list[Tensor], dy: Tensor) -> Sequence[Tensor | None]:
    if not y.requires_grad:  # constant messages
        return [None] * len(asked)
    return torch.autograd.grad(y, asked, dy, allow_unused=True)


def _of_messages(
    a: CSR, fold: Fold, folded: Folded, chunk: Chunk, m: Tensor, g: Tensor, labels: Tensor | None
) -> Tensor:
    """dm [size · k, w], where ⊕'s gradient follows from the whole sum."""
    size, k = chunk.arcs.shape
    m = m.view(size, k, -1)
    if fold.wins:
        assert folded.winner is not None
        column = a.indices[chunk.arcs]
        name = column if labels is None else labels[column.long()]
        if chunk.spare is not None:  # they repeat an arc, and win nothing
            name = name.masked_fill(chunk.spare, -2)
        dm = torch.where(folded.winner[chunk.row] == name[:, :, None], g, 0.0)
        return dm.reshape(size * k, -1)
    if fold.add_gradient is not None:
        whole = folded.y[chunk.row].expand(size, k, -1)
        dm = fold.add_gradient(m, whole, g.expand(size, k, -1))
    else:
        dm = g.expand(size, k, -1)
    if chunk.spare is not None:
        dm = dm.masked_fill(chunk.spare[:, :, None], 0)
    return dm.reshape(size * k, -1)


def _by_hand(
    fold: Fold, ops: Operands, made: Made, dm: Tensor, leaves: list[Tensor | None]
) -> list[Tensor | None]:
    """Through the user's gradient of ⊗."""
    assert fold.product_gradient is not None
    source = made.source.detach()
    arc = source.new_ones(source.shape[0], 1) if made.arc is None else made.arc.detach()
    wide = arc if ops.heads is None else arc[:, ops.heads]
    da, dh = fold.product_gradient(wide, source, dm)
    if leaves[2] is not None:
        if ops.heads is not None:
            da = torch.zeros_like(arc).index_add_(1, ops.heads, da.expand_as(dm))
        elif da.shape != arc.shape:
            da = da.sum(1, keepdim=True)
    return [dh if leaves[0] is not None else None, None, da if leaves[2] is not None else None]


# Log-sum-exp in C++.


def _values(ops: Operands) -> Tensor | None:
    return None if ops.arc is None else ops.arc.reshape(-1).contiguous()


def _logsum(a: CSR, ops: Operands) -> Tensor:
    x, values = ops.column.contiguous(), _values(ops)
    y = empty(a.shape[0], x.shape[1], like=x)
    native.kernel("spmm_logsum", x, a.indices)(
        a.shape[0], *map(native.address, (a.indptr, a.indices, values, x)), x.shape[1], native.address(y),
        native.threads(16 * (a.arcs + a.shape[0]) * x.shape[1]),
    )  # fmt: skip
    return y


def _logsum_backward(a: CSR, ops: Operands, y: Tensor, dy: Tensor) -> Tensor:
    t, x, values = a.T, ops.column.contiguous(), _values(ops)
    values = None if values is None else values[a.permutation]
    dx = empty(*x.shape, like=x)
    y, dy = y.contiguous(), dy.contiguous()
    native.kernel("spmm_logsum_backward", x, t.indices)(
        t.shape[0], *map(native.address, (t.indptr, t.indices, values, x, y, dy)), x.shape[1],
        native.address(dx), native.threads(16 * (t.arcs + t.shape[0]) * x.shape[1]),
    )  # fmt: skip
    return dx

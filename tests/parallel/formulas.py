"""The papers' formulas, written apart from the code: words and messages of each step, from block sizes alone.

    split   in   Σ over f' ≠ f of |V(i,k,f')| · |C_f|       complete rows of the line become columns
    gather  in   Σ over j ≠ i  of need(j)     · |C_f|       dense: need(j) = |U(j,k)|
    reduce  in   Σ over k' ≠ k of give(k')    · |C_f|       dense: give(k') = |U(i,k)|
    join    in   Σ over f' ≠ f of |V(i,k,f)|  · |C_f'|      columns become complete rows

Backward is the mirror: gather along inner with need, reduce along row with give. Attention is made of the
same steps, and of two more along feature: `share` (complete rows to all) and `total` (sums per arc).
What weft foretells by running its code dry is compared with these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.comm import ledger
from weft.comm.ledger import all_gather
from weft.parallel import Blocks, Operator, Volume
from weft.parallel.exchange import Exchange
from weft.parallel.foretell import Line, dense_lines
from weft.parallel.propagate import Sliced

__all__ = [
    "Count",
    "Line",
    "Move",
    "Tally",
    "count_move",
    "count_moves",
    "dense_lines",
    "line_of",
    "propagation",
]


@dataclass(frozen=True)
class Move:
    """One thing that a layer asks of the graph, as the formulas need it."""

    kind: str
    width: int
    grads: tuple[bool, ...] = (True,)
    heads: int = 1
    key_width: int = 0
    softmax: bool = True
    together: bool = False
    gain: bool = False


def _count(volume: Volume, phase: str, received: Sequence[int]) -> None:
    """Add messages of these many words; empty ones count nothing."""
    if any(received):
        volume.words[phase] = volume.words.get(phase, 0) + sum(received)
        volume.messages[phase] = volume.messages.get(phase, 0) + sum(1 for words in received if words)


def propagation(
    blocks: Blocks, rank: int, width: int, row: Line, inner: Line,
    forward: bool = True, backward: bool = True, winners: bool = False,
) -> Volume:  # fmt: skip
    """What `rank` receives in one propagation; `winners`: max and min, whose names travel."""
    count = Count(blocks, rank, row, inner)
    count_move(count, Move("extremum" if winners else "propagate", width), forward, backward)
    return count.volume


def line_of(exchange: Exchange) -> Line:
    me = exchange.comm.rank
    return Line(
        [rows for p, rows in enumerate(exchange.need_sizes) if p != me],
        [rows for p, rows in enumerate(exchange.give_sizes) if p != me],
    )


def count_moves(A: Operator, moves: Sequence[Move], forward: bool = True, backward: bool = True) -> Volume:
    """What this rank receives for these moves, by the formulas, with the sizes of A's plan."""
    adjacency = Volume()
    for a in A.plan.matrices:
        if isinstance(a, Sliced):
            for sizes in (a.rows, a.sizes, *([] if a.values is None else [a.sizes])):
                traffic = all_gather(sizes, a.comm.rank)
                if traffic.words:
                    adjacency = adjacency + Volume(
                        {"adjacency": traffic.words}, {"adjacency": traffic.messages}
                    )
    lines = line_of(A.plan.row), line_of(A.plan.inner)
    count = Count(A.layout.blocks, A.layout.comm.rank, *lines, A.plan.arcs, adjacency)
    for move in moves:
        count_move(count, move, forward, backward)
    return count.volume


class Count:
    """Adds up what one rank receives, step by step.

    >>> from weft.parallel import Grid
    >>> blocks = Blocks.even(12, Grid(4))
    >>> count = Count(blocks, 0, *dense_lines(blocks, 0))
    >>> count.gather("row", 5)
    >>> count.volume.words  # n·w·(P − 1)/P
    {'gather': 45}
    """

    def __init__(
        self,
        blocks: Blocks,
        rank: int,
        row: Line,
        inner: Line,
        arcs: Sequence[int] = (),
        adjacency: Volume | None = None,
    ):
        self.volume = Volume()
        self.arcs = list(arcs)
        self._blocks, self._rank = blocks, rank
        self._lines = {"row": row, "inner": inner}
        self._adjacency = adjacency or Volume()
        self._feature = blocks.grid.peers(rank, "feature")
        self._place = self._feature.index(rank)

    def mine(self, width: int) -> int:
        """|C_f|."""
        return self._blocks.columns(width)[self._place]

    def split(self, width: int) -> None:
        _count(self.volume, "split", [rows * self.mine(width) for rows in self._others()])

    def share(self, width: int) -> None:
        _count(self.volume, "split", [rows * width for rows in self._others()])

    def join(self, width: int) -> None:
        own, columns = self._blocks.sizes[self._rank], self._blocks.columns(width)
        _count(self.volume, "join", [own * c for place, c in enumerate(columns) if place != self._place])

    def gather(self, axis: str, columns: int) -> None:
        _count(self.volume, "gather", [rows * columns for rows in self._lines[axis].need])

    def reduce(self, axis: str, columns: int) -> None:
        _count(self.volume, "reduce", [rows * columns for rows in self._lines[axis].give])

    def total(self, words: int) -> None:
        """A sum over the feature line of this many numbers."""
        moved = ledger.all_reduce(words, self._place, len(self._feature))
        if moved.words:
            self.volume = self.volume + Volume({"reduce": moved.words}, {"reduce": moved.messages})

    def fetch(self) -> None:
        """A's blocks, once each, where they lie in slices."""
        self.volume = self.volume + self._adjacency

    def _others(self) -> list[int]:
        return [self._blocks.sizes[peer] for peer in self._feature if peer != self._rank]


def _propagate(c: Count, m: Move, forward: bool, backward: bool) -> None:
    mine, names = c.mine(m.width), 2 if m.kind == "extremum" else 1
    for wanted, gathered, reduced, times in (
        (forward, "row", "inner", (1, names)),
        (backward and m.grads[0], "inner", "row", (names, 1)),
    ):
        if wanted:
            c.fetch()
            c.split(m.width)
            for _ in range(times[0]):
                c.gather(gathered, mine)
            for _ in range(times[1]):
                c.reduce(reduced, mine)
            c.join(m.width)


def _attend(c: Count, m: Move, forward: bool, backward: bool) -> None:
    additive, heads, mine = m.kind == "attend additive", m.heads, c.mine(m.width)
    key = heads if additive else c.mine(m.key_width)
    cut: Callable[[int], None] = c.share if additive else c.split

    def column_side() -> None:
        c.gather("row", mine)
        if not m.together:
            c.gather("row", key)
        if m.gain:
            c.gather("row", heads)

    if forward:
        c.fetch()
        c.split(m.width)
        cut(m.key_width)
        if not m.together:
            cut(m.key_width)
        if m.gain:
            c.share(heads)
        c.gather("inner", key)
        column_side()
        for arcs in () if additive else c.arcs:
            c.total(arcs * heads)
        c.reduce("inner", mine)
        if m.softmax:
            c.reduce("inner", 2 * heads)
        c.join(m.width)
    if backward and any(m.grads):
        row, *columns = m.grads
        c.fetch()
        c.split(m.width)
        c.gather("inner", mine)
        if m.softmax:
            c.share(heads)
        narrow = (2 * heads if m.softmax else 0) + (heads if additive else 0)
        if narrow:
            c.gather("inner", narrow)
        if not additive:
            c.gather("inner", key)
        column_side()
        for arcs in c.arcs:
            c.total(arcs * heads * (1 if additive else 2))
        if any(columns):
            if m.gain:
                c.reduce("row", heads)
            c.reduce("row", mine)
            c.join(m.width)
            if not m.together:
                c.reduce("row", key)
                if not additive:
                    c.join(m.key_width)
        if row:
            c.reduce("inner", key)
            if not additive:
                c.join(m.key_width)


def _spread(c: Count, m: Move, forward: bool, backward: bool) -> None:
    axis = "inner" if m.kind == "spread row" else "row"
    if forward:
        c.fetch()
        c.share(m.width)
        c.gather(axis, m.width)
    if backward and m.grads[0]:
        c.fetch()
        c.reduce(axis, m.width)


def _sum(c: Count, m: Move, forward: bool, backward: bool) -> None:
    if forward:
        c.fetch()
        c.reduce("inner", m.width)
    if backward and m.grads[0]:
        c.fetch()
        c.share(m.width)
        c.gather("inner", m.width)


def _dots(c: Count, m: Move, forward: bool, backward: bool) -> None:
    mine = c.mine(m.width)
    if forward:
        c.fetch()
        c.split(m.width)
        c.split(m.width)
        c.gather("inner", mine)
        c.gather("row", mine)
        c.total(sum(c.arcs) * m.heads)
    if backward and any(m.grads):
        c.fetch()
        for axis in ("inner", "row"):
            c.gather(axis, mine)
            c.reduce(axis, mine)
            c.join(m.width)


def _softmax(c: Count, m: Move, forward: bool, backward: bool) -> None:
    # Forward: maxima, then sums; backward: one sum.
    for wanted, times in ((forward, 2), (backward and m.grads[0], 1)):
        if wanted:
            c.fetch()
            for _ in range(times):
                c.reduce("inner", m.width)
                c.gather("inner", m.width)


def _weigh(c: Count, m: Move, forward: bool, backward: bool) -> None:
    mine, names = c.mine(m.width), 2 if m.kind == "weigh extremum" else 1
    if forward:
        c.fetch()
        c.split(m.width)
        c.gather("row", mine)
        for _ in range(names):
            c.reduce("inner", mine)
        c.join(m.width)
    if backward and any(m.grads):
        c.split(m.width)
        for _ in range(names):
            c.gather("inner", mine)
        if m.grads[0]:
            c.fetch()
            c.gather("row", mine)
            c.total(sum(c.arcs) * m.heads)
        if m.grads[1]:
            c.fetch()
            c.reduce("row", mine)
            c.join(m.width)


def _arcs(c: Count, m: Move, forward: bool, backward: bool) -> None:
    if forward:
        c.fetch()


_KINDS: dict[str, Callable[[Count, Move, bool, bool], None]] = {
    "propagate": _propagate, "extremum": _propagate, "attend additive": _attend, "attend dot": _attend,
    "spread row": _spread, "spread column": _spread, "sum": _sum, "dots": _dots, "softmax": _softmax,
    "weigh": _weigh, "weigh extremum": _weigh, "arcs": _arcs,
}  # fmt: skip


def count_move(count: Count, move: Move, forward: bool = True, backward: bool = True) -> None:
    """Add what one move brings to this rank: its step forward, and the way back where gradients are due."""
    if move.kind not in _KINDS:
        raise KeyError(move.kind)
    _KINDS[move.kind](count, move, forward, backward)


class Tally:
    """An operator without vertices that writes down what is asked of it, for the formulas."""

    rows = torch.empty(0)

    def __init__(self, plain: bool = True):
        self.moves: list[Move] = []
        self.plain = plain
        self.entries = self

    def __mul__(self, virtual: Any) -> Any:
        return virtual.sampled_at(self)

    def own(self, h: Tensor) -> Tensor:
        return h

    def in_columns(self, h: Tensor) -> bool:
        return False

    def note(self, what: str, how: str) -> None: ...

    def _note(self, kind: str, width: int, *operands: Tensor | None, **more: Any) -> None:
        grads = tuple(t is not None and t.requires_grad and torch.is_grad_enabled() for t in operands)
        self.moves.append(Move(kind, width, grads, **more))

    def __matmul__(self, h: Tensor) -> Tensor:
        self._note("propagate", h.shape[1], h)
        return h * 1

    def aggregate(self, h: Tensor, reduce: str = "sum") -> Tensor:
        self._note("extremum" if reduce in ("max", "min") else "propagate", h.shape[1], h)
        return h * 1

    def attend(
        self, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None = None,
        scale: Tensor | None = None, kind: str = "additive", heads: int = 1, slope: float = 1.0,
        softmax: bool = True, drop: Any = None, bias: None = None,
    ) -> Tensor:  # fmt: skip
        assert bias is None, "no formula of a bias here"
        # On a grid the scale goes into the row operand, which is then no longer x itself.
        row = row if scale is None else row * scale.sum()
        self._note(
            f"attend {kind}", x.shape[1], row, column, x, gain, heads=heads, key_width=row.shape[1],
            softmax=softmax, together=column is x, gain=gain is not None,
        )  # fmt: skip
        total = row.sum() + column.sum() + (0 if gain is None else gain.sum())
        return x + total

    def spread(self, x: Tensor, side: str) -> Tensor:
        self._note(f"spread {side}", x.shape[1], x)
        return x * 1

    def dots(self, x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
        self._note("dots", x.shape[1], x, y, heads=heads)
        return (x * y)[:, :heads]

    def sum(self, e: Tensor) -> Tensor:
        self._note("sum", e.shape[1], e)
        return e * 1

    def softmax(self, e: Tensor) -> Tensor:
        self._note("softmax", e.shape[1], e)
        return e * 1

    def weigh(self, e: Tensor, x: Tensor, reduce: str = "sum") -> Tensor:
        if reduce in ("max", "min"):  # a head at a time
            for _ in range(e.shape[1]):
                self._note("weigh extremum", x.shape[1] // e.shape[1], e, x)
        else:
            self._note("weigh", x.shape[1], e, x, heads=e.shape[1])
        return x + e.sum()

    def drop(self, e: Tensor, p: float, stream: Any) -> Tensor:
        if p:
            self._note("arcs", e.shape[1], e)
        return e * 1

    def number(self, x: Tensor) -> Tensor:
        return x

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        self._note("arcs", 1)
        return torch.empty(0, 1, dtype=dtype)

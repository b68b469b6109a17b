"""Words and messages of what a layer asks of the graph, from block sizes alone: no graph, no ranks.

    split   in   Σ over f' ≠ f of |V(i,k,f')| · |C_f|       complete rows of the line become columns
    gather  in   Σ over j ≠ i  of need(j)     · |C_f|       dense: need(j) = |U(j,k)|
    reduce  in   Σ over k' ≠ k of give(k')    · |C_f|       dense: give(k') = |U(i,k)|
    join    in   Σ over f' ≠ f of |V(i,k,f)|  · |C_f'|      columns become complete rows

Backward is the mirror: gather along inner with need, reduce along row with give. Attention is made of the
same steps, and of two more along feature: `share` (complete rows to all) and `total` (sums per arc).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..comm import ledger
from ..comm.ledger import Traffic
from ..errors import unknown
from ..kernels import Move
from .blocks import Blocks


@dataclass
class Volume:
    """Words and messages that one rank receives, by phase; volumes add up.

    >>> a = Volume({"gather": 5}, {"gather": 1})
    >>> (a + a).words
    {'gather': 10}
    """

    words: dict[str, int] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Volume) -> Volume:
        def total(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
            return {phase: a.get(phase, 0) + b.get(phase, 0) for phase in [*a, *(p for p in b if p not in a)]}

        return Volume(total(self.words, other.words), total(self.messages, other.messages))

    def count(self, phase: str, received: Sequence[int]) -> None:
        """Add messages of these many words; empty ones count nothing."""
        if any(received):
            self.words[phase] = self.words.get(phase, 0) + sum(received)
            self.messages[phase] = self.messages.get(phase, 0) + sum(1 for words in received if words)

    def add(self, phase: str, traffic: Traffic) -> None:
        """Add what one call moves to this rank (`weft.comm.ledger`)."""
        if traffic.words:
            self.words[phase] = self.words.get(phase, 0) + traffic.words
            self.messages[phase] = self.messages.get(phase, 0) + traffic.messages


@dataclass(frozen=True)
class Line:
    """What a rank reads of the others along an axis, and they of it, in rows; without itself."""

    need: list[int]
    give: list[int]


def dense_lines(blocks: Blocks, rank: int) -> tuple[Line, Line]:
    """(row, inner) of the dense exchange: everybody reads everything."""
    grid = blocks.grid
    i, k, _ = grid.place(rank)

    def size(a: int, b: int) -> int:
        begin, end = blocks.union(a, b)
        return end - begin

    own = size(i, k)
    row = [size(j, k) for j in range(grid.row) if j != i]
    inner = [size(i, j) for j in range(grid.inner) if j != k]
    return Line(row, [own] * len(row)), Line(inner, [own] * len(inner))


class Count:
    """Adds up what one rank receives, step by step.

    >>> from .grid import Grid
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
        self.volume.count("split", [rows * self.mine(width) for rows in self._others()])

    def share(self, width: int) -> None:
        self.volume.count("split", [rows * width for rows in self._others()])

    def join(self, width: int) -> None:
        own, columns = self._blocks.sizes[self._rank], self._blocks.columns(width)
        self.volume.count("join", [own * c for place, c in enumerate(columns) if place != self._place])

    def gather(self, axis: str, columns: int) -> None:
        self.volume.count("gather", [rows * columns for rows in self._lines[axis].need])

    def reduce(self, axis: str, columns: int) -> None:
        self.volume.count("reduce", [rows * columns for rows in self._lines[axis].give])

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
        raise unknown("move", move.kind, _KINDS)
    _KINDS[move.kind](count, move, forward, backward)


def propagation(
    blocks: Blocks, rank: int, width: int, row: Line, inner: Line,
    forward: bool = True, backward: bool = True, winners: bool = False,
) -> Volume:  # fmt: skip
    """What `rank` receives in one propagation of `width` columns.

    `winners`: max and min, whose winners' names travel along inner with the values.

    >>> from .grid import Grid
    >>> blocks = Blocks.even(12, Grid(4))
    >>> propagation(blocks, 0, 5, *dense_lines(blocks, 0), backward=False).words  # n·w·(P − 1)/P
    {'gather': 45}
    """
    count = Count(blocks, rank, row, inner)
    count_move(count, Move("extremum" if winners else "propagate", width), forward, backward)
    return count.volume

"""Words and messages of one propagation, from block sizes alone: closed formulas, no graph, no ranks.

    split   in   Σ over f' ≠ f of |V(i,k,f')| · |C_f|       complete rows of the line become columns
    gather  in   Σ over j ≠ i  of need(j)     · |C_f|       dense: need(j) = |U(j,k)|
    reduce  in   Σ over k' ≠ k of give(k')    · |C_f|       dense: give(k') = |U(i,k)|
    join    in   Σ over f' ≠ f of |V(i,k,f)|  · |C_f'|      columns become complete rows

Backward is the mirror: gather along inner with need, reduce along row with give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..comm.ledger import Traffic
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
    grid = blocks.grid
    line = grid.peers(rank, "feature")
    columns = blocks.columns(width)
    f = line.index(rank)
    own = blocks.sizes[rank]
    split = [blocks.sizes[peer] * columns[f] for peer in line if peer != rank]
    join = [own * columns[g] for g, peer in enumerate(line) if peer != rank]
    names = 2 if winners else 1
    volume = Volume()
    for wanted, gather, reduce, times in (
        (forward, row.need, inner.give, (1, names)),
        (backward, inner.need, row.give, (names, 1)),
    ):
        if wanted:
            volume.count("split", split)
            for _ in range(times[0]):
                volume.count("gather", [rows * columns[f] for rows in gather])
            for _ in range(times[1]):
                volume.count("reduce", [rows * columns[f] for rows in reduce])
            volume.count("join", join)
    return volume

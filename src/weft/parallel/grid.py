"""The grid of ranks, and its named points.

The work of Y = A·H is a box: n output rows × n inner vertices × f features. A grid of `row × inner ×
feature` ranks cuts that box; every full-graph algorithm is a shape of it (DESIGN section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..comm import Communicator
from ..errors import UserError, unknown

AXES = ("row", "inner", "feature")


@dataclass(frozen=True)
class Grid:
    """`row × inner × feature` ranks; rank (i, k, f) is number (i · inner + k) · feature + f.

    >>> grid = Grid(2, 3, 4)
    >>> grid.size, grid.place(17), grid.rank(1, 1, 1)
    (24, (1, 1, 1), 17)
    >>> str(grid)
    '2x3x4'
    """

    row: int
    inner: int = 1
    feature: int = 1

    @property
    def size(self) -> int:
        """The number of ranks, P."""
        return self.row * self.inner * self.feature

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.row, self.inner, self.feature

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))

    def rank(self, i: int, k: int, f: int) -> int:
        """The number of rank (i, k, f)."""
        return (i * self.inner + k) * self.feature + f

    def place(self, rank: int) -> tuple[int, int, int]:
        """(i, k, f) of a rank."""
        return rank // (self.inner * self.feature), rank // self.feature % self.inner, rank % self.feature

    def peers(self, rank: int, axis: str) -> list[int]:
        """The ranks on the line through `rank` along an axis, in the order of that axis.

        >>> Grid(2, 3, 1).peers(4, "row"), Grid(2, 3, 1).peers(4, "inner")
        ([1, 4], [3, 4, 5])
        """
        i, k, f = self.place(rank)
        if axis == "row":
            return [self.rank(j, k, f) for j in range(self.row)]
        if axis == "inner":
            return [self.rank(i, j, f) for j in range(self.inner)]
        return [self.rank(i, k, j) for j in range(self.feature)]

    def along(self, comm: Communicator, axis: str) -> Communicator:
        """The communicator of this rank's line along an axis."""
        line = self.peers(comm.rank, axis)
        part = comm.split(color=line[0], key=line.index(comm.rank), name=axis)
        assert part is not None
        return part


def parse(text: str, ranks: int | None = None) -> tuple[int, ...]:
    """`4x2x2` as numbers.

    >>> parse("4x2x2")
    (4, 2, 2)
    """
    try:
        sides = tuple(int(side) for side in text.lower().split("x"))
    except ValueError:
        raise UserError(f"grid {text!r} is not numbers with x between. Write --grid 4x2x2.") from None
    if min(sides) < 1:
        raise UserError(f"grid {text!r} has a side below 1. Write --grid 4x2x2.")
    return sides


def most_even(ranks: int, sides: int) -> tuple[int, ...]:
    """`ranks` as a product of `sides` factors as equal as can be, the larger ones first.

    >>> most_even(12, 2), most_even(27, 3), most_even(8, 3), most_even(7, 2)
    ((4, 3), (3, 3, 3), (2, 2, 2), (7, 1))
    """
    if sides == 1:
        return (ranks,)
    best: tuple[int, ...] | None = None
    for first in range(1, ranks + 1):
        if ranks % first == 0:
            split = (first, *most_even(ranks // first, sides - 1))
            if list(split) == sorted(split, reverse=True) and (best is None or max(split) < max(best)):
                best = split
    assert best is not None
    return best


@dataclass(frozen=True)
class Strategy:
    """A named point of the grid: its sides from the ranks, and how rows move."""

    sides: int
    """How many sides `--grid` gives; 0: the grid follows from the ranks."""
    meaning: str
    """What those sides are."""
    grid: Callable[[tuple[int, ...]], Grid]
    exchange: str = "dense"


STRATEGIES = {
    "1d": Strategy(0, "", lambda s: Grid(s[0], 1, 1)),
    "halo": Strategy(0, "", lambda s: Grid(s[0], 1, 1), "sparse"),
    "1.5d": Strategy(2, "row x inner", lambda s: Grid(s[0], s[1], 1)),
    "a-stationary": Strategy(2, "row x inner", lambda s: Grid(s[0], s[1], 1)),
    "2d": Strategy(2, "row x feature", lambda s: Grid(s[0], 1, s[1])),
    "3d": Strategy(3, "row x inner x feature", lambda s: Grid(*s)),
    "feature": Strategy(0, "", lambda s: Grid(1, 1, s[0])),
    "grid": Strategy(3, "row x inner x feature", lambda s: Grid(*s)),
}
"""Every algorithm of the papers, a line each."""


def choose(
    strategy: str, ranks: int, grid: str = "", replication: int = 0, exchange: str = ""
) -> tuple[Grid, str]:
    """The grid and the kind of exchange that a strategy means for so many ranks.

    >>> choose("2d", 6)
    (Grid(row=3, inner=1, feature=2), 'dense')
    >>> choose("1.5d", 8, replication=2)[0]
    Grid(row=4, inner=2, feature=1)
    >>> choose("2d", 6, grid="4x2")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: 2d needs a grid of row x feature; 6 ranks were given as 4x2. Use --grid 3x2, ...
    """
    if strategy not in STRATEGIES:
        raise unknown("strategy", strategy, STRATEGIES)
    if exchange not in ("", "dense", "sparse"):
        raise unknown("exchange", exchange, ["dense", "sparse"])
    if ranks < 1:
        raise UserError(f"{ranks} ranks were asked for. Use --ranks 1 or more.")
    chosen = STRATEGIES[strategy]
    even = most_even(ranks, max(chosen.sides, 1))
    sides = even
    if replication and strategy != "1.5d":
        raise UserError(f"--replication is for 1.5d, the strategy is {strategy}. Use --strategy 1.5d.")
    if replication:
        if replication < 0 or ranks % replication:
            divisors = ", ".join(map(str, _divisors(ranks)))
            raise UserError(
                f"replication {replication} does not divide {ranks} ranks. Use one of {divisors}."
            )
        if grid:
            raise UserError(
                f"1.5d takes --replication or --grid, not both ({replication} and {grid}). Drop one."
            )
        sides = (ranks // replication, replication)
    elif grid:
        sides = parse(grid)
        example = "x".join(map(str, even))
        if not chosen.sides:
            raise UserError(
                f"{strategy} takes no grid, its grid follows from the ranks. Drop --grid {grid}, or use "
                "--strategy grid."
            )
        if len(sides) != chosen.sides:
            raise UserError(
                f"{strategy} needs a grid of {chosen.meaning}; {grid} was given. Use --grid {example}."
            )
        if Grid(*sides).size != ranks:
            raise UserError(
                f"{strategy} needs a grid of {chosen.meaning}; {ranks} ranks were given as {grid}. "
                f"Use --grid {example}, or --ranks {Grid(*sides).size}."
            )
    elif strategy == "grid" and ranks > 1:
        raise UserError(
            f"strategy grid needs its grid. Use --grid {'x'.join(map(str, even))}, or --strategy 3d."
        )
    return chosen.grid(sides), exchange or chosen.exchange


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]

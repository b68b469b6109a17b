"""The grid's places and lines, and the named points."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.parallel import STRATEGIES, Grid, choose
from weft.parallel.grid import AXES, most_even, parse

side = st.integers(1, 5)


@given(side, side, side)
def test_rank_and_place_are_inverse_and_in_order(r, k, f):
    grid = Grid(r, k, f)
    places = [(a, b, c) for a in range(r) for b in range(k) for c in range(f)]
    assert [grid.place(p) for p in range(grid.size)] == places
    assert [grid.rank(*place) for place in places] == list(range(r * k * f))


@given(side, side, side)
def test_lines_along_an_axis_differ_in_that_axis_alone_and_cover_all_ranks(r, k, f):
    grid = Grid(r, k, f)
    for number, axis in enumerate(AXES):
        lines = {tuple(grid.peers(p, axis)) for p in range(grid.size)}
        assert sorted(p for line in lines for p in line) == list(range(grid.size))
        for line in lines:
            assert [grid.place(p)[number] for p in line] == list(range(grid.shape[number]))
            assert len({grid.place(p)[:number] + grid.place(p)[number + 1 :] for p in line}) == 1


def test_along_is_the_communicator_of_the_line():
    grid = Grid(2, 3, 2)

    def work(comm: Communicator) -> list[tuple[int, int, list[int]]]:
        lines = [grid.along(comm, axis) for axis in AXES]
        return [(line.rank, line.size, line.all_gather_json(comm.rank)) for line in lines]

    for rank, lines in enumerate(run_ranks(work, 12, "threads")):
        for number, axis in enumerate(AXES):
            assert lines[number] == (grid.place(rank)[number], grid.shape[number], grid.peers(rank, axis))


@given(st.integers(1, 200), st.integers(1, 3))
def test_the_most_even_grid_multiplies_up_and_has_the_smallest_largest_side(ranks, sides):
    made = most_even(ranks, sides)
    assert math.prod(made) == ranks
    assert len(made) == sides
    assert list(made) == sorted(made, reverse=True)
    divisors = [d for d in range(1, ranks + 1) if ranks % d == 0]
    if sides == 2:
        assert made[0] == min(d for d in divisors if d * d >= ranks)


NAMED = {
    ("1d", 6): ((6, 1, 1), "dense"),
    ("halo", 6): ((6, 1, 1), "sparse"),
    ("1.5d", 6): ((3, 2, 1), "dense"),
    ("a-stationary", 16): ((4, 4, 1), "dense"),
    ("2d", 6): ((3, 1, 2), "dense"),
    ("3d", 27): ((3, 3, 3), "dense"),
    ("3d", 12): ((3, 2, 2), "dense"),
    ("feature", 6): ((1, 1, 6), "dense"),
    ("grid", 1): ((1, 1, 1), "dense"),
}


@pytest.mark.parametrize(("strategy", "ranks"), NAMED)
def test_a_name_and_the_ranks_give_the_grid(strategy, ranks):
    grid, exchange = choose(strategy, ranks)
    assert (grid.shape, exchange) == NAMED[strategy, ranks]


def test_every_strategy_makes_a_grid_of_any_number_of_ranks():
    assert {strategy for strategy, _ in NAMED} == set(STRATEGIES)
    for ranks in range(1, 30):
        for strategy in STRATEGIES:
            sides = "x".join(map(str, most_even(ranks, 3))) if strategy == "grid" else ""
            assert choose(strategy, ranks, sides)[0].size == ranks


def test_sides_mean_what_the_strategy_says():
    assert choose("2d", 6, grid="2x3")[0] == Grid(2, 1, 3)
    assert choose("a-stationary", 6, grid="2x3")[0] == Grid(2, 3, 1)
    assert choose("1.5d", 6, grid="2x3")[0] == Grid(2, 3, 1)
    assert choose("3d", 24, grid="2X3x4")[0] == Grid(2, 3, 4)
    assert choose("grid", 24, grid="1x24x1", exchange="sparse") == (Grid(1, 24, 1), "sparse")
    assert choose("1.5d", 12, replication=3)[0] == Grid(4, 3, 1)
    assert choose("halo", 3, exchange="dense")[1] == "dense"
    assert parse("7") == (7,)


MISTAKES: list[tuple[tuple, str]] = [
    (
        ("2d", 6, "4x2"),
        "2d needs a grid of row x feature; 6 ranks were given as 4x2. Use --grid 3x2, or --ranks 8.",
    ),
    (
        ("grid", 8, "3x3x1"),
        "grid needs a grid of row x inner x feature; 8 ranks were given as 3x3x1. "
        "Use --grid 2x2x2, or --ranks 9.",
    ),
    (("2d", 8, "2x2x2"), "2d needs a grid of row x feature; 2x2x2 was given. Use --grid 4x2."),
    (
        ("1d", 8, "4x2"),
        "1d takes no grid, its grid follows from the ranks. Drop --grid 4x2, or use --strategy grid.",
    ),
    (("1.5d", 8, "", 3), "replication 3 does not divide 8 ranks. Use one of 1, 2, 4, 8."),
    (("1.5d", 8, "", -2), "replication -2 does not divide 8 ranks. Use one of 1, 2, 4, 8."),
    (("1.5d", 8, "4x2", 2), "1.5d takes --replication or --grid, not both (2 and 4x2). Drop one."),
    (("2d", 8, "", 2), "--replication is for 1.5d, the strategy is 2d. Use --strategy 1.5d."),
    (("grid", 8), "strategy grid needs its grid. Use --grid 2x2x2, or --strategy 3d."),
    (("2d", 8, "4y2"), "grid '4y2' is not numbers with x between. Write --grid 4x2x2."),
    (("2d", 8, "0x8"), "grid '0x8' has a side below 1. Write --grid 4x2x2."),
    (("1d", 0), "0 ranks were asked for. Use --ranks 1 or more."),
    (("1d", 4, "", 0, "spars"), "unknown exchange 'spars'. Did you mean 'sparse'? Known: dense, sparse."),
    (
        ("2.5d", 4),
        "unknown strategy '2.5d'. Did you mean '1.5d'? "
        "Known: 1d, halo, 1.5d, a-stationary, 2d, 3d, feature, grid.",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_with_the_remedy(arguments, message):
    with pytest.raises(UserError) as caught:
        choose(*arguments)
    assert str(caught.value) == message

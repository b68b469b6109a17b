"""Which vertex stands where: by arithmetic or by a table, one and the same interface."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

import weft.parallel.numbering as module
from weft.comm import run_ranks
from weft.parallel import Blocks, Grid, Rows
from weft.parallel.blocks import even_sizes
from weft.parallel.numbering import Dealt, InOrder, Listed


@given(st.integers(0, 70), st.integers(1, 9), st.integers(0, 5))
def test_vertices_dealt_out_are_a_permutation_even_and_ascending_within_a_rank(n, ranks, seed):
    dealt, all_ = Dealt(n, ranks, seed), torch.arange(n)
    order = dealt.vertices(all_)
    assert order.sort().values.tolist() == list(range(n))
    assert torch.equal(dealt.places(order), all_)
    for part in order.split(even_sizes(n, ranks)):
        assert torch.equal(part, part.sort().values)
        assert part.div(ranks, rounding_mode="floor").tolist() == list(range(part.numel()))


def test_what_is_dealt_follows_from_the_seed_and_spreads_neighbours():
    one, again, other = (Dealt(999, 4, seed).vertices(torch.arange(999)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    owner = Blocks.even(999, Grid(4), seed=1).parts
    # Vertices of one residue, such as those of a class, lie anywhere: 250 of each, about a quarter a rank.
    for residue in range(4):
        counts = torch.bincount(owner[residue::4], minlength=4)
        assert int(counts.min()) > 35
        assert int(counts.max()) < 90


@given(st.permutations(range(23)))
def test_a_table_is_the_permutation_that_it_was_given(order):
    listed = Listed(torch.tensor(order))
    assert listed.vertices(torch.arange(23)).tolist() == list(order)
    assert [order[p] for p in listed.places(torch.arange(23)).tolist()] == list(range(23))
    assert listed.order.dtype == torch.int32


def test_many_numbers_are_found_piece_by_piece(monkeypatch):
    whole = Dealt(100, 3, 0).places(torch.arange(100))
    monkeypatch.setattr(module, "SOME", 7)
    assert torch.equal(Dealt(100, 3, 0).places(torch.arange(100)), whole)
    shuffled = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Listed(shuffled).places(shuffled), torch.arange(100))


def test_blocks_of_arithmetic_hold_no_array_of_n():
    """At most one number for every P vertices; a table would be caught."""

    def held(blocks: Blocks) -> int:
        return sum(t.numel() for t in vars(blocks.numbering).values() if isinstance(t, torch.Tensor))

    n, grid = 10_000, Grid(5, 2)
    dealt, plain = Blocks.even(n, grid, seed=1), Blocks.even(n, grid)
    for blocks in (dealt, plain):
        blocks.places(torch.arange(9))
        blocks.span(*blocks.own(3))
        assert held(blocks) <= n // 10 + 20
    assert isinstance(plain.numbering, InOrder)
    table = Blocks.of_parts(torch.arange(n) % 10, grid)
    table.places(torch.arange(9))
    assert held(table) == 2 * n


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.integers(0, 4))
def test_sums_of_the_vertices_before_are_those_of_the_whole(parts, seed):
    x = torch.randint(9, (len(parts),), generator=torch.Generator().manual_seed(seed))
    blocks = Blocks.of_parts(torch.tensor(parts), Grid(3))

    def work(comm):
        rows = Rows(comm, blocks)
        return rows.ids, *rows.before(x[rows.ids])

    for ids, before, total in run_ranks(work, 3, "threads"):
        assert total == int(x.sum())
        assert torch.equal(before, (x.cumsum(0) - x)[ids])

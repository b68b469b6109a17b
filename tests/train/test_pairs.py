from __future__ import annotations

import functools

import pytest
import torch

from weft.comm import run_ranks
from weft.comm.threads import single
from weft.errors import UserError
from weft.graph import Graph, karate
from weft.parallel import Blocks, Grid, Rows
from weft.train.pairs import TrainingPairs

from .graphs import small

GRIDS = [Grid(3), Grid(2, 1, 2), Grid(1, 2, 2), Grid(1, 1, 3)]


def whole(graph: Graph) -> Rows:
    """All rows at one rank."""
    return Rows(single(), Blocks.even(graph.num_nodes, Grid(1)))


def batches(comm, graph: Graph, grid: Grid, seed: int | None = 4, **options) -> dict[tuple[int, int], list]:
    """All pairs of two epochs as (name, u, v, true)."""
    layout = Rows(comm, Blocks.even(graph.num_nodes, grid, seed))
    pairs = TrainingPairs(graph, layout, seed=9, size=50, **options)
    out = {}
    for epoch in (1, 2):
        for step in range(pairs.steps):
            b = pairs.batch(epoch, step)
            true = [k < b.true for k in range(b.u.numel())]
            out[epoch, step] = sorted(zip(b.names.tolist(), b.u.tolist(), b.v.tolist(), true, strict=True))
    return out


@pytest.mark.parametrize("graph", [karate(), small()], ids=["undirected", "directed"])
@pytest.mark.parametrize("negatives", ["non-edges", "random"])
def test_every_grid_trains_on_the_same_pairs(graph, negatives):
    options = {"negatives": negatives, "ratio": 2}
    want = batches(single(), graph, Grid(1), None, **options)
    for grid in GRIDS:
        seen = run_ranks(functools.partial(batches, **options), grid.size, "threads", graph, grid)
        for key, all_pairs in want.items():
            assert sorted(p for ours in seen for p in ours[key]) == all_pairs, (grid, key)


@pytest.mark.parametrize("graph", [karate(), small()], ids=["undirected", "directed"])
def test_an_epoch_has_every_true_pair_once_and_false_ones_are_no_arcs(graph):
    arcs = set(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True))
    found = batches(single(), graph, Grid(1))
    for epoch in (1, 2):
        steps = [found[key] for key in found if key[0] == epoch]
        true = [(u, v) for pairs in steps for _, u, v, t in pairs if t]
        false = [(u, v) for pairs in steps for _, u, v, t in pairs if not t]
        assert len(true) == len(false)
        assert set(true) <= arcs
        expected = {(min(a), max(a)) for a in arcs} if graph.is_symmetric else arcs
        assert len(true) == len(expected)
        assert {(min(p), max(p)) if graph.is_symmetric else p for p in true} == expected
        assert not set(false) & arcs
        assert all(u != v for u, v in false)
        for pairs in steps:
            assert len({name for name, *_ in pairs}) == len(pairs)
    assert found[1, 0] != found[2, 0]


def test_false_pairs_are_even_over_all_non_arcs():
    graph = Graph.from_arcs([1, 2, 3, 3, 0], [0, 0, 0, 1, 2], 4)  # 5 arcs, 4 loops: 7 pairs lack
    layout = whole(graph)
    pairs = TrainingPairs(graph, layout, seed=0, ratio=1400)
    batch = pairs.batch(1, 0)
    false = (batch.u * 4 + batch.v)[batch.true :]
    kinds, counts = false.unique(return_counts=True)
    assert kinds.numel() == 7
    assert float((counts - 1000).abs().max()) < 120  # four standard deviations


def test_blocks_in_order_get_even_shares_of_an_undirected_graph():
    n = 60
    pairs = torch.ones(n, n).triu(1).nonzero()
    graph = Graph.from_arcs(pairs[:, 0], pairs[:, 1], n).symmetrised()

    def count(comm):
        layout = Rows(comm, Blocks.even(n, Grid(2)))
        return TrainingPairs(graph, layout, 0, negatives="random").u.numel()

    a, b = run_ranks(count, 2, "threads")
    assert a + b == n * (n - 1) // 2
    assert abs(a - b) <= n


def test_a_complete_graph_has_no_false_pair():
    pairs = torch.ones(5, 5).triu(1).nonzero()
    graph = Graph.from_arcs(pairs[:, 0], pairs[:, 1], 5).symmetrised()
    layout = whole(graph)
    with pytest.raises(UserError, match=r"every pair is an arc.*Use --negatives random"):
        TrainingPairs(graph, layout, 0)
    assert TrainingPairs(graph, layout, 0, negatives="random").total == 10


def test_one_arc_without_its_reverse_makes_a_graph_directed():
    graph = karate()
    layout = whole(graph)
    assert TrainingPairs(graph, layout, 0).undirected
    fewer = Graph.from_arcs(graph.indices[1:], graph.rows[1:], 34)
    pairs = TrainingPairs(fewer, whole(fewer), 0)
    assert not pairs.undirected
    assert pairs.total == 155

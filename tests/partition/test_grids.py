from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from weft.graph import Graph
from weft.partition import arrange, measure, partition_for_grid, partition_graph
from weft.partition.grids import block_imbalance, line_volumes

from .cases import assigned, communities


@given(assigned())
def test_without_an_inner_axis_the_line_volumes_are_the_connectivity(case):
    graph, parts, count = case
    assert line_volumes(graph, parts, (count, 1)) == (measure(graph, parts, count).volume_total, 0)


@given(assigned())
def test_line_volumes_are_those_of_a_loop(case):
    graph, parts, _ = case
    place = (parts % 6).tolist()  # a grid of 3 x 2
    reads, writes = set(), set()
    for row, column in zip(graph.rows.tolist(), graph.indices.tolist(), strict=True):
        if place[row] // 2 != place[column] // 2:
            reads.add((column, place[row] // 2))
        if place[row] % 2 != place[column] % 2:
            writes.add((row, place[column] % 2))
    assert line_volumes(graph, torch.tensor(place), (3, 2)) == (len(reads), len(writes))


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (8, 1), (1, 8)])
def test_an_arrangement_only_renumbers_and_never_costs_more(shape):
    graph = communities()
    shuffle = torch.from_numpy(np.random.default_rng(3).permutation(8))
    parts = shuffle[partition_graph(graph, 8, "metis")]
    made = arrange(graph, parts, shape)
    pairs = set(zip(parts.tolist(), made.tolist(), strict=True))
    assert len(pairs) == 8
    assert sum(line_volumes(graph, made, shape)) <= sum(line_volumes(graph, parts, shape))


def test_an_arrangement_finds_the_pairs_that_exchange_most():
    # Parts 2c and 2c+1 hold community c of four: on 4 x 2 and on 2 x 4 they should share a line.
    graph = communities(classes=4)
    parts = partition_graph(graph, 8, "metis")
    shuffle = torch.from_numpy(np.random.default_rng(5).permutation(8))
    worst = sum(line_volumes(graph, shuffle[parts], (4, 2)))
    assert sum(line_volumes(graph, arrange(graph, shuffle[parts], (4, 2)), (4, 2))) < worst


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 1, 2), (1, 1, 5), (2, 3, 1)])
@pytest.mark.parametrize("method", ["hash", "metis", "hypergraph"])
def test_every_rank_of_a_grid_has_its_share_and_feature_lines_are_even(shape, method):
    parts = partition_for_grid(communities(), shape, method)
    sizes = np.bincount(parts.numpy(), minlength=np.prod(shape)).reshape(-1, shape[2])
    assert sizes.shape[0] == shape[0] * shape[1]
    assert (sizes.max(1) - sizes.min(1)).max() <= 1
    assert sizes.min() > 0


def fans(hubs: int = 12, leaves: int = 30) -> Graph:
    """Each hub reads 30 leaves of its own, and ten leaves that all hubs read."""
    source = [hubs + 10 + h * leaves + v for h in range(hubs) for v in range(leaves)]
    source += [hubs + v for _ in range(hubs) for v in range(10)]
    target = [h for h in range(hubs) for _ in range(leaves)] + [h for h in range(hubs) for _ in range(10)]
    return Graph.from_arcs(source, target, hubs + 10 + hubs * leaves)


def test_with_an_inner_axis_alone_the_rows_that_are_written_are_few_and_columns_are_even():
    graph = fans()
    parts = partition_for_grid(graph, (1, 4, 1), "hypergraph")
    plain = partition_graph(graph, 4, "hypergraph")
    assert line_volumes(graph, parts, (1, 4))[1] < line_volumes(graph, plain, (1, 4))[1]
    assert measure(graph.transposed(), parts, 4).imbalance < 0.1


def test_on_both_axes_both_kinds_of_nets_are_cut():
    graph = communities()
    parts = partition_for_grid(graph, (2, 4, 1), "hypergraph")
    random = partition_graph(graph, 8, "random")
    ours, theirs = (sum(line_volumes(graph, p, (2, 4))) for p in (parts, random))
    assert ours < 0.6 * theirs


@given(assigned())
def test_the_imbalance_of_blocks_is_that_of_a_loop(case):
    graph, parts, _ = case
    place = (parts % 6).tolist()
    arcs = [[0, 0] for _ in range(3)]
    for row, column in zip(graph.rows.tolist(), graph.indices.tolist(), strict=True):
        arcs[place[row] // 2][place[column] % 2] += 1
    flat = [count for line in arcs for count in line]
    wanted = max(flat) * 6 / sum(flat) - 1 if sum(flat) else 0.0
    assert block_imbalance(graph, torch.tensor(place), (3, 2)) == pytest.approx(wanted)

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from weft.partition import arrange, measure, partition_for_grid, partition_graph
from weft.partition.grids import line_volumes

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

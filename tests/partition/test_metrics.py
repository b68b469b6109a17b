from __future__ import annotations

import numpy as np
import torch
from hypothesis import given

from weft.graph import Graph
from weft.partition import Hypergraph, batch_volume, measure

from .cases import assigned, communities, naive


@given(assigned())
def test_volume_messages_and_cut_are_those_of_a_loop_over_every_arc(case):
    graph, parts, count = case
    between, cut = naive(graph, parts.tolist(), count)
    found = measure(graph, parts, count)
    assert found.between.tolist() == between
    assert found.edge_cut == cut
    assert found.volume_max == max(map(sum, between))
    assert found.messages_total == sum(cell > 0 for line in between for cell in line)
    assert found.messages_max == max(sum(cell > 0 for cell in line) for line in between)


@given(assigned())
def test_volume_is_the_connectivity_of_the_column_nets_minus_one(case):
    graph, parts, count = case
    nets = Hypergraph.column_net(graph)
    total = sum(
        len(set(parts[nets.pins[a:b]].tolist())) - 1
        for a, b in zip(nets.starts, nets.starts[1:], strict=False)
    )
    assert measure(graph, parts, count).volume_total == total


@given(assigned())
def test_a_batch_of_all_arcs_has_the_volume_of_the_graph(case):
    graph, parts, count = case
    whole = batch_volume(graph.rows.numpy(), graph.indices.numpy(), parts.numpy(), count)
    assert whole == measure(graph, parts, count).volume_total


def test_imbalance_counts_the_nonzeros_of_a_row_and_its_loop_once():
    graph = Graph.from_arcs([0, 1, 2, 1], [0, 0, 0, 1])  # vertex 0: three arcs, its loop among them
    found = measure(graph, torch.tensor([0, 1, 1]), 2)
    assert found.loads.tolist() == [3, 2]
    assert found.imbalance == 3 / 2.5 - 1
    assert measure(graph, torch.tensor([0, 0, 0]), 2).as_dict()["empty_parts"] == 1


def test_five_hundred_parts_of_many_arcs_are_counted_without_a_loop():
    graph = communities(nodes=2000)
    parts = np.arange(2000) % 512
    found = measure(graph, parts, 512)
    assert found.between.shape == (512, 512)
    assert found.volume_total == int(found.between.sum()) <= graph.num_arcs

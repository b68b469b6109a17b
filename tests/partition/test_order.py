from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph
from weft.parallel import Blocks, Grid
from weft.partition import ORDERS, order_within

from .cases import communities


@pytest.mark.parametrize("how", ORDERS)
def test_an_order_names_every_place_once(how):
    graph = communities(nodes=2100)
    parts = torch.arange(2100) % 3
    key = order_within(graph, parts, how)
    assert sorted(key.tolist()) == list(range(2100))
    blocks = Blocks.of_parts(parts, Grid(3), key)
    assert torch.equal(blocks.parts, parts)
    for rank in range(3):
        begin, end = blocks.own(rank)
        assert bool((key[blocks.order[begin:end]].diff() > 0).all())


def test_rcm_brings_the_ends_of_arcs_together():
    shuffle = np.random.default_rng(0).permutation(500)
    path = Graph.from_arcs(shuffle[:-1], shuffle[1:], 500)  # a path whose vertices are numbered at random
    key = order_within(path, torch.zeros(500, dtype=torch.int64), "rcm")
    assert int((key[path.rows] - key[path.indices.long()]).abs().max()) == 1


def test_the_order_within_a_part_does_not_look_at_other_parts():
    graph, parts = communities(), torch.arange(400) % 2
    inside = parts[graph.rows] == parts[graph.indices.long()]
    cut = Graph.from_arcs(graph.indices[inside], graph.rows[inside], 400)
    assert torch.equal(order_within(graph, parts, "rcm"), order_within(cut, parts, "rcm"))


def test_an_unknown_order_is_named():
    with pytest.raises(UserError, match=r"unknown order 'rmc'. Did you mean 'rcm'"):
        order_within(communities(), torch.zeros(400, dtype=torch.int64), "rmc")

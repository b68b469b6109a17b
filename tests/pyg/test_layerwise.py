"""`job.layerwise`: PyG's layers, some vertices at a time, give what the model gives at once."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as g
from torch import nn

from weft.comm import run_ranks
from weft.errors import UserError
from weft.pyg import ranks
from weft.pyg.layerwise import _reach

from .compare import TOLERANCE, difference
from .graphs import CLASSES as C
from .graphs import WIDTH as W
from .graphs import directed


class Weighted(nn.Module):
    """A layer that also reads data of arcs."""

    def __init__(self):
        super().__init__()
        self.conv = g.GATv2Conv(W, W, edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr).relu()


def layers_of(model):
    return [lambda x, edge_index: model[0](x, edge_index).relu(), model[1], model[2]]


def make():
    torch.manual_seed(2)
    return nn.ModuleList([g.GCNConv(W, W), Weighted(), g.SAGEConv(W, C)]).double().eval()


def on_ranks(comm, data, models):
    with ranks(comm) as job:
        shared = job.share(data, "random")
        model = job.wrap(models[comm.rank])
        out = job.layerwise(layers_of(model), shared, memory=12_000)
        return job.collect(out)


@pytest.mark.parametrize("count", [1, 3])
def test_rows_are_those_of_the_model_at_once(count):
    data, model = directed(), make()
    h = model[0](data.x, data.edge_index).relu()
    want = model[2](model[1](h, data.edge_index, data.edge_attr), data.edge_index)
    for found in run_ranks(on_ranks, count, "threads", data, [make() for _ in range(count)]):
        assert difference(found, want) < TOLERANCE


def test_how_far_a_layer_sees_is_found_out():
    def hops(layer, **more):
        with torch.no_grad():
            return _reach(layer.double().eval(), 0, W, torch.float64, more)[0]

    assert hops(g.SAGEConv(W, C)) == 1
    assert hops(g.GATConv(W, C)) == 1
    assert hops(g.GCNConv(W, C)) == 2  # the degrees of neighbours
    assert hops(g.SGConv(W, C, K=3)) == 4
    with pytest.raises(UserError, match=r"layer 1 \(MeanOf\) reads more than 6 hops"):
        hops(MeanOf())


class MeanOf(nn.Module):
    def forward(self, x, edge_index):
        return x - x.mean(0)


def test_what_cannot_be_done_is_one_line():
    data = directed()
    with ranks() as job:
        shared = job.share(data)
        model = job.wrap(make())
        model[1].train()
        with pytest.raises(UserError, match=r"layer 2 is training, so it may drop rows"):
            job.layerwise(layers_of(model), shared)
        model.eval()
        with pytest.raises(UserError, match="a layer asks for batch, which is no data of arcs"):
            job.layerwise([lambda x, edge_index, batch: x], shared)
        with pytest.raises(UserError, match="memory 'much' is not a size"):
            job.layerwise(layers_of(model), shared, memory="much")
        with pytest.raises(UserError, match=r"layer 1 .* does not give a row a vertex"):
            job.layerwise([lambda x, edge_index: x.mean(0)], shared)
        with pytest.raises(UserError, match="needs layers"):
            job.layerwise([], shared)


def test_on_ranks_the_graph_must_be_shared():
    def work(comm, data):
        with ranks(comm) as job:
            job.layerwise([lambda x, edge_index: x], data)

    with pytest.raises(UserError, match="needs a shared graph"):
        run_ranks(work, 2, "threads", directed())

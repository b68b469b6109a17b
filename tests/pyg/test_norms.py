"""Norms over all ranks' rows, with running statistics; dropout by vertex and arc; whole models."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as g
from torch import nn
from torch.nn import functional

from weft.comm import run_ranks
from weft.pyg import Refused, ranks

from .compare import TOLERANCE, difference, worst
from .graphs import CLASSES, WIDTH, directed

W, C = WIDTH, CLASSES


class Normed(nn.Module):
    """A conv and a norm, twice: the second pass through the norm sees its running statistics."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.conv, self.norm = g.GCNConv(W, W), norm

    def forward(self, x, edge_index):
        return self.norm(self.conv(self.norm(self.conv(x, edge_index)), edge_index))


NORMS = {
    "BatchNorm": lambda: g.BatchNorm(W),
    "BatchNorm, single elements": lambda: g.BatchNorm(W, allow_single_element=True),
    "BatchNorm1d": lambda: nn.BatchNorm1d(W),
    "BatchNorm1d, no statistics": lambda: nn.BatchNorm1d(W, track_running_stats=False),
    "BatchNorm1d, mean of all": lambda: nn.BatchNorm1d(W, momentum=None),
    "GraphNorm": lambda: g.GraphNorm(W),
    "GraphSizeNorm": lambda: g.GraphSizeNorm(),
    "PairNorm": lambda: g.PairNorm(),
    "PairNorm, each": lambda: g.PairNorm(scale_individually=True),
    "InstanceNorm": lambda: g.InstanceNorm(W),
    "InstanceNorm, affine": lambda: g.InstanceNorm(W, affine=True, track_running_stats=True),
    "LayerNorm": lambda: g.LayerNorm(W, mode="graph"),
    "LayerNorm, node": lambda: g.LayerNorm(W, mode="node"),
    "MeanSubtractionNorm": lambda: g.MeanSubtractionNorm(),
    "DiffGroupNorm": lambda: g.DiffGroupNorm(W, groups=3),
    "nn.LayerNorm": lambda: nn.LayerNorm(W),
    "nn.GroupNorm": lambda: nn.GroupNorm(2, W),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_sees_the_rows_of_all_ranks(name):
    """Outputs, gradients and buffers, which are the running statistics."""
    assert worst(Normed(NORMS[name]()), lambda m, d: m(d.x, d.edge_index)) < TOLERANCE


@pytest.mark.parametrize("name", ["BatchNorm", "InstanceNorm, affine"])
def test_a_norm_in_eval_uses_its_statistics(name):
    assert worst(Normed(NORMS[name]()).eval(), lambda m, d: m(d.x, d.edge_index)) < TOLERANCE


def test_message_norm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = g.GCNConv(W, W), g.MessageNorm(learn_scale=True)

        def forward(self, x, edge_index):
            return self.norm(x, self.conv(x, edge_index))

    assert worst(Model(), lambda m, d: m(d.x, d.edge_index)) < TOLERANCE


BASIC = {
    "GCN": lambda: g.GCN(W, 8, 3, C, norm="batch", jk="cat"),
    "GAT": lambda: g.GAT(W, 8, 2, C, heads=2, norm="graph", jk="lstm"),
    "GraphSAGE": lambda: g.GraphSAGE(W, 8, 2, C, norm="pair", jk="max"),
    "GIN": lambda: g.GIN(W, 8, 2, C, norm="layer"),
    "PNA": lambda: g.PNA(
        W, 8, 2, C, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([3, 9, 5])
    ),
    "EdgeCNN": lambda: g.EdgeCNN(W, 8, 2, C),
    "DeepGCN": lambda: g.DeepGCNLayer(g.GENConv(W, W), nn.LayerNorm(W), nn.ReLU(), block="res+"),
    "MLP": lambda: g.MLP([W, 8, C], dropout=0.0),
}


@pytest.mark.parametrize("name", BASIC)
def test_a_model_of_pyg(name):
    def call(model, d):
        return model(d.x) if name == "MLP" else model(d.x, d.edge_index)

    assert worst(BASIC[name](), call) < TOLERANCE


class Dropping(nn.Module):
    """Dropout of vertices' rows, of attention on arcs, as a function, in place, of weights, of heads."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop = g.GATConv(W, C, heads=2, dropout=0.4), nn.Dropout(0.3, inplace=True)

    def forward(self, x, edge_index):
        x = functional.dropout(x, 0.5, self.training)
        h = self.drop(self.conv(x, edge_index)).relu()
        return h * functional.dropout(torch.ones_like(self.conv.bias), 0.5, self.training)


def losses(comm, model, data, partition):
    with ranks(comm, seed=5) as job:
        mine = job.share(data, partition)
        model = job.wrap(model[comm.rank])
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        found = []
        for _ in range(4):
            optimiser.zero_grad()
            out = model(mine.x, mine.edge_index)
            loss = functional.cross_entropy(out[mine.train_mask], mine.y[mine.train_mask])
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        return found, job.collect(out)


def test_dropout_does_not_depend_on_ranks_or_the_partition():
    torch.manual_seed(2)
    model = Dropping().double()

    def on(count, partition):
        return run_ranks(
            losses, count, "threads", [copy.deepcopy(model) for _ in range(count)], directed(), partition
        )

    (alone, rows), *_ = on(1, "block")
    assert len(set(alone)) == 4
    assert float((rows == 0).double().mean()) > 0.2
    for count, partition in ((2, "block"), (3, "random")):
        for found, got in on(count, partition):
            assert found == pytest.approx(alone, rel=1e-10)
            assert difference(got, rows) < TOLERANCE


def test_a_seed_set_in_the_script_starts_dropout_anew():
    def work(comm):
        with ranks(comm, seed=3) as job:
            x = job.share(directed()).x
            out = []
            for seed in (11, 12, 11):
                comm.barrier()
                if comm.rank == 0:  # virtual ranks have one generator
                    torch.manual_seed(seed)
                comm.barrier()
                out.append(job.collect(functional.dropout(x, 0.5)))
            return out

    for first, second, third in run_ranks(work, 2, "threads"):
        assert torch.equal(first, third)
        assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "draw", [torch.rand_like, torch.bernoulli, lambda x: torch.rand(x.size(0)), nn.Dropout1d()]
)
def test_other_random_numbers_by_row_are_refused(draw):
    def work(comm):
        with ranks(comm) as job:
            draw(job.share(directed()).x.sigmoid())

    with pytest.raises(Refused, match="random numbers by row"):
        run_ranks(work, 2, "threads")

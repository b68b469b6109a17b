"""Every layer against its equation in dense float64, in every order of computation, with every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from weft.comm.threads import single
from weft.errors import UserError
from weft.graph import to_pyg
from weft.nn import Chain, GCNLayer, GINLayer, SAGELayer, SGCLayer
from weft.parallel import Grid, Operator

from .graphs import adjacency, directed, matrix_of

WIDTHS = [(5, 3), (3, 5), (4, 4), (1, 1)]


def dense_of(layer: nn.Module, A: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    if isinstance(layer, GCNLayer):  # SGC among them, of several hops
        return torch.linalg.matrix_power(A, layer.hops) @ h @ layer.weight + layer.bias
    if isinstance(layer, GINLayer):
        u = ((1 + layer.epsilon) * h + A @ h) @ layer.weight1 + layer.bias1
        return u.relu() @ layer.weight2 + layer.bias2
    assert isinstance(layer, SAGELayer)
    if layer.reduce == "sum":
        near = A @ h
    else:
        messages = torch.where((A != 0)[:, :, None], h[None], -torch.inf)
        near = torch.where((A != 0).any(1)[:, None], messages.amax(1), 0.0)
    return h @ layer.weight_self + near @ layer.weight_near + layer.bias


LAYERS = [
    ("gcn", GCNLayer, {}),
    ("mean", SAGELayer, {}),
    ("none", SAGELayer, {"aggregate": "max"}),
    ("none", GINLayer, {}),
    ("gcn", SGCLayer, {"hops": 3}),
]


@pytest.mark.parametrize(("norm", "kind", "options"), LAYERS)
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("held", [False, True])
def test_a_layer_is_its_equation_forward_and_every_gradient(norm, kind, options, widths, held):
    a = adjacency(directed(), norm)
    layer = kind(*widths, **options).double()
    for p in layer.parameters():  # biases and ε start at 0, where a wrong use of them would not show
        p.data += 0.1 * torch.randn_like(p)
    h = torch.randn(23, widths[0], dtype=torch.float64, requires_grad=not held)
    dy = torch.randn(23, widths[1], dtype=torch.float64)
    inputs = [*layer.parameters()] + ([] if held else [h])
    A = Operator.local(a)
    if held:
        A.hold(h)
    path = A if layer.hops == 1 else Chain([A] * layer.hops)
    if held:
        layer(path, h)  # what is kept from here on is read again
    y = layer(path, h)
    gradients = torch.autograd.grad(y, inputs, dy)
    wanted = dense_of(layer, a.dense().double(), h)
    wanted_gradients = torch.autograd.grad(wanted, inputs, dy)
    torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
    for got, want in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_a_bias_added_twice_would_be_caught():
    a = adjacency(directed(), "gcn")
    layer = GCNLayer(4, 4).double()
    layer.bias.data.fill_(0.1)
    h = torch.randn(23, 4, dtype=torch.float64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(layer(Operator.local(a), h) + layer.bias, dense_of(layer, a.dense(), h))


def test_the_narrower_side_of_a_whole_graph_is_aggregated(monkeypatch):
    seen = []
    aggregate = Operator.aggregate
    monkeypatch.setattr(
        Operator, "aggregate", lambda A, h, reduce="sum": seen.append(h.shape[1]) or aggregate(A, h, reduce)
    )
    A = Operator.build(directed(), single(), Grid(1))
    for kind in (GCNLayer, SAGELayer, GINLayer, SGCLayer):
        for widths in ((7, 3), (3, 7)):
            layer = kind(*widths)
            layer(A if layer.hops == 1 else Chain([A] * layer.hops), torch.ones(23, widths[0]))
    assert seen == [3, 3] * 3 + [3, 3, 3, 3]


def test_of_a_block_and_of_what_is_held_the_input_is_aggregated(monkeypatch):
    """A block has fewer rows than h, and A X of a fixed X is made once: both come before the weights."""
    seen = []
    aggregate = Operator.aggregate
    monkeypatch.setattr(
        Operator, "aggregate", lambda A, h, reduce="sum": seen.append(h.shape[1]) or aggregate(A, h, reduce)
    )
    x = torch.ones(23, 7)
    whole = Operator.build(directed(), single(), Grid(1))
    whole.hold(x)
    for A in (matrix_of(directed(), "gcn", torch.float32), whole):
        for kind in (GCNLayer, SAGELayer, GINLayer):
            kind(7, 3)(A, x)
    assert seen == [7] * 6


def test_gcn_and_sage_equal_pyg_on_a_directed_graph():
    pyg = pytest.importorskip("torch_geometric.nn", reason="the extra pyg is not installed")
    graph = directed()
    arcs = to_pyg(graph).edge_index
    x = torch.randn(23, 6)
    ours, theirs = GCNLayer(6, 4), pyg.GCNConv(6, 4)
    theirs.lin.weight.data.copy_(ours.weight.T)
    torch.testing.assert_close(ours(matrix_of(graph, "gcn", torch.float32), x), theirs(x, arcs))
    for how in ("mean", "max"):
        sage, other = SAGELayer(6, 4, aggregate=how), pyg.SAGEConv(6, 4, aggr=how)
        other.lin_l.weight.data.copy_(sage.weight_near.T)
        other.lin_r.weight.data.copy_(sage.weight_self.T)
        other.lin_l.bias.data.copy_(sage.bias)
        A = matrix_of(graph, "mean" if how == "mean" else "none", torch.float32)
        torch.testing.assert_close(sage(A, x), other(x, arcs))


def test_an_unknown_aggregation_is_named():
    with pytest.raises(UserError, match="Did you mean 'mean'"):
        SAGELayer(2, 2, aggregate="men")

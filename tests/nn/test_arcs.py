"""Layers over arcs with data equal PyG's, weights copied: forward and every gradient, in float64.

The graph is directed, with self-loops, isolated vertices and weights, which PyG's layers are not given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.comm.threads import single
from weft.graph import Graph
from weft.kernels import use
from weft.nn.arcs import GatedLayer, GATv2Layer, GINELayer, PNALayer, RGCNLayer, TransformerLayer
from weft.nn.attention import GATLayer
from weft.parallel import Grid, Operator

pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")

N, IN, OUT, T, KINDS = 23, 7, 6, 5, 4
Pairs = list[tuple[Tensor, Tensor]]
"""(ours, theirs): a parameter or a gradient each."""


def arcs(loops: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(edge_index by target, features, kinds): directed, loops where asked, vertices 3 and N-1 isolated."""
    generator = torch.Generator().manual_seed(5)
    pairs = torch.randint(0, N * N, (120,), generator=generator)
    pairs = torch.unique(torch.cat([pairs, torch.tensor([0, N + 1, 4 * N + 4])]))
    target, source = pairs // N, pairs % N
    alive = ~torch.isin(target, torch.tensor([3, N - 1])) & ~torch.isin(source, torch.tensor([3, N - 1]))
    alive &= loops | (target != source)
    target, source = target[alive], source[alive]
    features = torch.randn(target.numel(), T, generator=generator, dtype=torch.float64)
    return torch.stack([source, target]), features, torch.randint(0, KINDS, target.shape, generator=generator)


def operator(index: Tensor, features: Tensor, kinds: Tensor, how: str = "none") -> Operator:
    """What `weft train` hands the model whose adjacency is `how`, of a graph with weights of both signs."""
    weights = torch.randn(len(kinds), generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    graph = Graph.from_arcs(*index, N, weights, {"features": features, "type": kinds})
    A = Operator.build(graph, single(), Grid(1), how, dtype=torch.float64, data=("features", "type"))
    assert (A.plan.matrix(0).values is None) == (how == "loops")
    return A


def linear(ours: Tensor, bias: Tensor | None, theirs: Any) -> Pairs:
    pairs = [(ours, theirs.weight.T)]
    return pairs if bias is None else [*pairs, (bias, theirs.bias)]


def gat(layer: GATLayer, conv: Any) -> Pairs:
    assert layer.weight_edge is not None
    assert layer.attend_edge is not None
    assert layer.bias is not None
    return [
        *linear(layer.weight, None, conv.lin), *linear(layer.weight_edge, None, conv.lin_edge),
        (layer.attend_row, conv.att_dst[0]), (layer.attend_column, conv.att_src[0]),
        (layer.attend_edge, conv.att_edge[0]), (layer.bias, conv.bias),
    ]  # fmt: skip


def gatv2(layer: GATv2Layer, conv: Any) -> Pairs:
    assert layer.weight_edge is not None
    assert layer.bias is not None
    return [
        *linear(layer.weight_source, layer.bias_source, conv.lin_l),
        *linear(layer.weight_target, layer.bias_target, conv.lin_r),
        *linear(layer.weight_edge, None, conv.lin_edge), (layer.attend, conv.att[0]), (layer.bias, conv.bias),
    ]  # fmt: skip


def transformer(layer: TransformerLayer, conv: Any) -> Pairs:
    assert layer.weight_edge is not None
    return [
        *linear(layer.weight_query, layer.bias_query, conv.lin_query),
        *linear(layer.weight_key, layer.bias_key, conv.lin_key),
        *linear(layer.weight_value, layer.bias_value, conv.lin_value),
        *linear(layer.weight_edge, None, conv.lin_edge),
        *linear(layer.weight_self, layer.bias, conv.lin_skip),
    ]  # fmt: skip


def gine(layer: GINELayer, conv: Any) -> Pairs:
    assert layer.weight_edge is not None
    return [
        *linear(layer.weight_edge, layer.bias_edge, conv.lin),
        *linear(layer.weight1, layer.bias1, conv.nn[0]),
        *linear(layer.weight2, layer.bias2, conv.nn[2]), (layer.epsilon, conv.eps.squeeze()),
    ]  # fmt: skip


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(IN, OUT), nn.ReLU(), nn.Linear(OUT, OUT))


def agree(ours: Tensor, theirs: Tensor, what: object) -> None:
    assert ours.shape == theirs.shape, what
    ours, theirs = ours.detach(), theirs.detach()
    scale = max(1.0, float(theirs.abs().max()))
    assert float((ours - theirs).abs().max()) <= 1e-10 * scale, what


def compare(
    layer: nn.Module, conv: Any, pairs: Callable[[Any, Any], Pairs], A: Operator, arguments: tuple[Any, ...]
) -> None:
    """Copy the weights, run both, compare outputs and all gradients."""
    layer.double(), conv.double()
    with torch.no_grad():
        for name, p in conv.named_parameters():
            if p.dim() < 2:  # PyG starts biases at 0: then a forgotten one is not seen
                p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))
            assert p.numel(), name
        for ours, theirs in pairs(layer, conv):
            ours.copy_(theirs)
    known = {id(ours) for ours, _ in pairs(layer, conv)}
    assert {id(p) for p in layer.parameters()} == known, "a weight has no counterpart"
    x = torch.randn(N, IN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, want = layer(A, x1), conv(x2, *arguments)
    agree(y, want, "forward")
    seed = torch.randn(want.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (y * seed).sum().backward()
    (want * seed).sum().backward()
    assert x1.grad is not None
    assert x2.grad is not None
    agree(x1.grad, x2.grad, "dx")
    for k, (ours, theirs) in enumerate(_gradients(layer, conv, pairs)):
        agree(ours, theirs, ("gradient", k))


def _gradients(layer: Any, conv: Any, pairs: Callable[[Any, Any], Pairs]) -> Pairs:
    """The same pairs of their gradients."""
    for module in (layer, conv):
        for p in module.parameters():
            p.data = p.grad if p.grad is not None else torch.zeros_like(p)
    return [(a.detach(), b.detach()) for a, b in pairs(layer, conv)]


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize(("heads", "average"), [(1, False), (3, False), (2, True)])
def test_attention_over_arcs_is_pygs(backend: str, heads: int, average: bool) -> None:
    plain, features, kinds = arcs(loops=True)
    A, B = (operator(plain, features, kinds, how) for how in ("none", "loops"))
    width = OUT if average else OUT // heads
    options: dict[str, Any] = {"heads": heads, "concat": not average, "edge_dim": T}
    ours: dict[str, Any] = {"heads": heads, "average": average, "arcs": T}
    with use(backend):
        compare(GATLayer(IN, OUT, **ours), pyg.GATConv(IN, width, **options), gat, B, (plain, features))
        compare(GATv2Layer(IN, OUT, **ours), pyg.GATv2Conv(IN, width, **options), gatv2, B, (plain, features))
        conv = pyg.TransformerConv(IN, width, **options)
        compare(TransformerLayer(IN, OUT, **ours), conv, transformer, A, (plain, features))


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_messages_over_arcs_are_pygs(backend: str) -> None:
    index, features, kinds = arcs(loops=True)
    A = operator(index, features, kinds)
    with use(backend):
        conv = pyg.GINEConv(mlp(), train_eps=True, edge_dim=T)
        conv.lin = nn.Linear(T, IN)
        compare(GINELayer(IN, OUT, arcs=T), conv, gine, A, (index, features))
        compare_gated(A, index, features)
        for names in ("mean,min,max,std", "mean,min,max,std,sum", "sum"):
            compare_pna(names, index, features)
        for bases in (0, 3):
            compare_rgcn(A, index, kinds, bases)


def compare_gated(A: Operator, index: Tensor, features: Tensor) -> None:
    """PyG multiplies an arc's features twice and adds: keys' and queries' part are one weight here."""

    def pairs(layer: GatedLayer, conv: Any) -> Pairs:
        key, query, value = (m.weight.T for m in (conv.lin_key, conv.lin_query, conv.lin_value))
        assert layer.gate_edge is not None
        assert layer.value_edge is not None
        assert layer.bias is not None
        return [
            (layer.weight_key, key[:IN]), (layer.bias_key, conv.lin_key.bias),
            (layer.weight_query, query[:IN]), (layer.bias_query, conv.lin_query.bias),
            (layer.weight_value, value[:IN]), (layer.bias_value, conv.lin_value.bias),
            (layer.gate_edge, key[IN:]), (layer.value_edge, value[IN:]),
            (layer.weight_self, conv.lin_skip.weight.T), (layer.bias, conv.bias),
        ]  # type: ignore[list-item]  # fmt: skip

    conv = pyg.ResGatedGraphConv(IN, OUT, edge_dim=T)
    with torch.no_grad():
        conv.lin_query.weight[:, IN:] = 0
    compare(GatedLayer(IN, OUT, arcs=T), conv, pairs, A, (index, features))


def compare_pna(names: str, index: Tensor, features: Tensor) -> None:
    from torch_geometric.utils import degree

    def pairs(layer: PNALayer, conv: Any) -> Pairs:
        pre, post = conv.pre_nns[0][0], conv.post_nns[0][0]
        near = post.weight.T[IN:].view(3, parts * IN, OUT).transpose(0, 1).reshape(parts * IN, 3 * OUT)
        assert layer.weight_edge is not None
        assert layer.bias_message is not None
        assert layer.bias is not None
        return [
            (layer.weight_target, pre.weight.T[:IN]), (layer.weight_source, pre.weight.T[IN : 2 * IN]),
            (layer.weight_edge, pre.weight.T[2 * IN :]), (layer.bias_message, pre.bias),
            (layer.weight_self, post.weight.T[:IN]), (layer.weight_near, near), (layer.bias_post, post.bias),
            *linear(layer.weight_out, layer.bias, conv.lin),
        ]  # type: ignore[list-item]  # fmt: skip

    parts = len(names.split(","))
    degrees = degree(index[1], N, dtype=torch.long)
    conv = pyg.PNAConv(
        IN, OUT, names.split(","), ["identity", "amplification", "attenuation"],
        torch.bincount(degrees), edge_dim=IN,
    )  # fmt: skip
    conv.edge_encoder = nn.Identity()  # ours is the product of the encoder and its part of the message
    wide = torch.nn.functional.pad(features, (0, IN - T))
    A = operator(index, wide, torch.zeros(index.shape[1], dtype=torch.int64))
    layer = PNALayer(IN, OUT, arcs=IN, log_degree=float((degrees + 1.0).log().mean()), aggregators=names)
    conv.aggr_module.avg_deg_log.double()
    compare(layer, conv, pairs, A, (index, wide))


def compare_rgcn(A: Operator, index: Tensor, kinds: Tensor, bases: int) -> None:
    def pairs(layer: RGCNLayer, conv: Any) -> Pairs:
        weight = conv.weight.transpose(0, 1).reshape(IN, -1)
        mix = [] if layer.mix is None else [(layer.mix, conv.comp)]
        return [(layer.weight, weight), *mix, (layer.weight_self, conv.root), (layer.bias, conv.bias)]  # type: ignore[list-item]

    conv = pyg.RGCNConv(IN, OUT, KINDS, num_bases=bases or None)
    compare(RGCNLayer(IN, OUT, relations=KINDS, bases=bases), conv, pairs, A, (index, kinds))

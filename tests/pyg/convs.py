"""Every class of torch_geometric.nn.conv with its common options, and how it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch_geometric.nn as g
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch_geometric.data import Data

from .graphs import CLASSES, WIDTH

Case = tuple[str, Callable[[], Any], Callable[[Any, Data], Any]]
ABSENT = {
    "MessagePassing": "the base class",
    "CuGraphSAGEConv": "needs pylibcugraphops",
    "CuGraphGATConv": "needs pylibcugraphops",
    "CuGraphRGCNConv": "needs pylibcugraphops",
    "FusedGATConv": "needs dgNN",
    "SplineConv": "needs pyg-lib",
    "DynamicEdgeConv": "needs pyg-lib",
    "GravNetConv": "needs pyg-lib",
    "XConv": "needs pyg-lib",
    "PANConv": "needs torch-sparse",
}
"""What cannot be made here, and is no case."""
W, C = WIDTH, CLASSES


def plain(conv: Any, d: Data) -> Any:
    return conv(d.x, d.edge_index)


def weighted(conv: Any, d: Data) -> Any:
    return conv(d.x, d.edge_index, d.edge_weight)


def attributed(conv: Any, d: Data) -> Any:
    return conv(d.x, d.edge_index, d.edge_attr)


def typed(conv: Any, d: Data) -> Any:
    return conv(d.x, d.edge_index, d.edge_type)


def located(conv: Any, d: Data) -> Any:
    return conv(d.x, d.edge_index, d.pseudo)


def from_first(conv: Any, d: Data) -> Any:
    return conv(d.x, d.x0, d.edge_index)


def in_order(conv: Any, d: Data) -> Any:
    return conv(d.x, d.sorted_edge_index)


def signed(conv: Any, d: Data) -> Any:
    return conv(d.x, d.pos_edge_index, d.neg_edge_index)


def relations(conv: Any, d: Data) -> Any:
    kinds = {("v", "likes", "v"): d.pos_edge_index, ("v", "hates", "v"): d.neg_edge_index}
    return conv({"v": d.x}, kinds)["v"]


def mesh(conv: Any, d: Data) -> Any:
    return conv(d.x, d.mesh_index)


def mlp(inside: int, outside: int, norm: bool = False) -> Sequential:
    middle = [BatchNorm1d(5)] if norm else []
    return Sequential(Linear(inside, 5), *middle, ReLU(), Linear(5, outside))


META = (["v"], [("v", "likes", "v"), ("v", "hates", "v")])
SCALERS = ["identity", "amplification", "attenuation", "linear"]
AGGREGATORS = ["sum", "mean", "min", "max", "std", "var"]


def _case(name: str, call: Callable[[Any, Data], Any], *args: Any, **options: Any) -> Case:
    words = [str(a) for a in args if isinstance(a, str)] + [f"{k}={v}" for k, v in options.items()]
    label = f"{name}({', '.join(w for w in words if len(w) < 60)}) {call.__name__}"
    return label, lambda: getattr(g, name)(*args, **options), call


def _made(name: str, call: Callable[[Any, Data], Any], make: Callable[[], Any], note: str = "") -> Case:
    return f"{name}({note}) {call.__name__}", make, call


def _neighbours() -> list[Case]:
    return [
        _case("GCNConv", plain, W, C),
        _case("GCNConv", weighted, W, C, improved=True),
        _case("GCNConv", plain, W, C, normalize=False),
        _case("GCNConv", weighted, W, C, add_self_loops=False),
        _case("GCNConv", plain, W, C, cached=True),
        _case("GCNConv", plain, W, C, flow="target_to_source"),
        _case("GCNConv", plain, W, C, aggr="max"),
        *(
            _case("SAGEConv", plain, W, C, aggr=aggr)
            for aggr in ("mean", "sum", "max", "min", "std", "var", "mul")
        ),
        _case("SAGEConv", plain, W, C, aggr="softmax"),
        _case("SAGEConv", plain, W, C, aggr="powermean"),
        _case("SAGEConv", plain, W, C, aggr="median"),
        _case("SAGEConv", plain, W, C, aggr=["mean", "max"]),
        _case("SAGEConv", in_order, W, C, aggr="lstm"),
        _case("SAGEConv", plain, W, C, project=True, normalize=True),
        _case("SAGEConv", plain, W, C, flow="target_to_source"),
        _case("SAGEConv", plain, W, C, aggr="max", flow="target_to_source"),
        _case("GraphConv", weighted, W, C),
        _case("GraphConv", plain, W, C, aggr="max"),
        _case("GatedGraphConv", weighted, W, 2),
        _case("ResGatedGraphConv", plain, W, C),
        _case("ResGatedGraphConv", attributed, W, C, edge_dim=3),
        _case("SimpleConv", weighted),
        _case("SimpleConv", plain, aggr="mean", combine_root="self_loop"),
        _case("TAGConv", weighted, W, C),
        _case("SGConv", weighted, W, C, K=2),
        _case("SGConv", plain, W, C, K=2, cached=True),
        _case("SSGConv", weighted, W, C, alpha=0.1, K=2),
        _case("APPNP", weighted, 3, 0.1),
        _case("LGConv", weighted),
        _case("MixHopConv", weighted, W, C),
        _case("ARMAConv", weighted, W, C, num_stacks=2, num_layers=2),
        _case("ARMAConv", plain, W, C, num_stacks=2, num_layers=2, shared_weights=True),
        _case("ClusterGCNConv", plain, W, C, diag_lambda=0.3),
        _case("ClusterGCNConv", plain, W, C),
        _case("MFConv", plain, W, C, max_degree=4),
        _case("LEConv", weighted, W, C),
        _case("GCN2Conv", from_first, W, 0.1),
        _case("GCN2Conv", from_first, W, 0.1, 0.5, 2, shared_weights=False),
        _case("EGConv", plain, W, C, num_heads=2),
        _case(
            "EGConv", plain, W, 8, aggregators=["sum", "mean", "max", "symnorm", "var", "std"], num_heads=2
        ),
        _case("WLConvContinuous", weighted),
        _case("AntiSymmetricConv", plain, W, num_iters=2),
        _case("ChebConv", plain, W, C, 3),
        _case("ChebConv", weighted, W, C, 3, normalization="rw"),
        _case("ChebConv", weighted, W, C, 2, normalization=None),
        _case("DNAConv", lambda conv, d: conv(d.history, d.edge_index), W, heads=2),
        _case("DNAConv", lambda conv, d: conv(d.history, d.edge_index), W, heads=2, groups=2),
        _case("SignedConv", signed, W, C, first_aggr=True),
        _case(
            "SignedConv",
            lambda conv, d: conv(d.x, d.pos_edge_index, d.neg_edge_index),
            3,
            C,
            first_aggr=False,
        ),
    ]


def _attention() -> list[Case]:
    return [
        _case("GATConv", plain, W, C, heads=3),
        _case("GATConv", attributed, W, C, heads=2, concat=False, edge_dim=3),
        _case("GATConv", attributed, W, C, heads=2, edge_dim=3, fill_value="add", residual=True),
        _case("GATConv", plain, W, C, add_self_loops=False),
        _case("GATConv", plain, W, C, flow="target_to_source", add_self_loops=False),
        _case("GATConv", lambda conv, d: conv(d.x, d.edge_index, return_attention_weights=True)[0], W, C),
        _case("GATv2Conv", plain, W, C, heads=3),
        _case("GATv2Conv", attributed, W, C, heads=2, edge_dim=3, share_weights=True),
        _case("TransformerConv", plain, W, C, heads=2),
        _case("TransformerConv", attributed, W, C, heads=2, concat=False, edge_dim=3, beta=True),
        _case("AGNNConv", plain),
        _case("SuperGATConv", plain, W, C, heads=2, attention_type="MX"),
        _made("SuperGATConv", plain, lambda: g.SuperGATConv(W, C, heads=2).eval(), "eval"),
        _case("FAConv", from_first, W),
        _case("FAConv", from_first, W, normalize=True, cached=True),
        _case("FeaStConv", plain, W, C, heads=2),
        _case("GeneralConv", attributed, W, C, in_edge_channels=3, attention=True, heads=2),
        _case("GeneralConv", plain, W, C, skip_linear=True, l2_normalize=True),
        _case("GeneralConv", plain, W, C, attention=True, attention_type="dot_product", directed_msg=False),
        _case("RGATConv", typed, W, C, num_relations=3, heads=2),
        _case("RGATConv", typed, W, C, num_relations=3, num_bases=2, attention_mechanism="within-relation"),
        _case("HEATConv", lambda conv, d: conv(d.x, d.edge_index, d.node_type, d.edge_type, d.edge_attr),
              W, C, num_node_types=2, num_edge_types=3, edge_type_emb_dim=2, edge_dim=3, edge_attr_emb_dim=2,
              heads=2),
    ]  # fmt: skip


def _messages() -> list[Case]:
    return [
        _made("GINConv", plain, lambda: g.GINConv(mlp(W, C), train_eps=True)),
        _made("GINConv", plain, lambda: g.GINConv(mlp(W, C, norm=True)), "batch norm"),
        _made("GINEConv", attributed, lambda: g.GINEConv(mlp(W, C), edge_dim=3)),
        _made("EdgeConv", plain, lambda: g.EdgeConv(mlp(2 * W, C))),
        _made("EdgeConv", plain, lambda: g.EdgeConv(mlp(2 * W, C, norm=True), aggr="mean"), "norm of arcs"),
        _made("NNConv", attributed, lambda: g.NNConv(W, C, mlp(3, W * C), aggr="mean")),
        _case("CGConv", attributed, W, dim=3, batch_norm=True),
        _case("GMMConv", located, W, C, dim=2, kernel_size=3),
        _case("GMMConv", located, W, C, 2, 3, separate_gaussians=True),
        _case("RGCNConv", typed, W, C, num_relations=3),
        _case("RGCNConv", typed, W, C, num_relations=3, num_bases=2, aggr="sum"),
        _case("RGCNConv", typed, W, C, num_relations=3, num_blocks=2),
        _case("FastRGCNConv", typed, W, C, num_relations=3),
        _case("FastRGCNConv", typed, W, C, num_relations=3, num_bases=2),
        _case("FiLMConv", typed, W, C, num_relations=3),
        _case("FiLMConv", plain, W, C),
        _case("PNAConv", attributed, W, 8, AGGREGATORS, SCALERS,
              deg=_degrees(), edge_dim=3, towers=2),
        _case("PNAConv", plain, W, 8, ["mean", "max"], ["identity"], deg=_degrees(), divide_input=True,
              towers=2),
        _case("GENConv", attributed, W, C, edge_dim=3, learn_t=True),
        _case("GENConv", plain, W, C, aggr="powermean", learn_p=True, msg_norm=True, learn_msg_scale=True),
        _case("GENConv", plain, W, C, norm="layer"),
        _case("PDNConv", attributed, W, C, edge_dim=3, hidden_channels=5),
        _made("PointNetConv", _with_pos, lambda: g.PointNetConv(mlp(W + 3, 5), mlp(5, C))),
        _made("PointTransformerConv", _with_pos, lambda: g.PointTransformerConv(W, C)),
        _made("PointGNNConv", _with_pos, lambda: g.PointGNNConv(mlp(W, 3), mlp(W + 3, 5), mlp(5, W))),
        _made("PPFConv", lambda conv, d: conv(d.x, d.pos, d.normal, d.edge_index),
              lambda: g.PPFConv(mlp(W + 4, 5), mlp(5, C))),
        _case("HypergraphConv", lambda conv, d: conv(d.x, d.edge_index, num_edges=d.num_nodes), W, C),
        _case("HypergraphConv", lambda conv, d: conv(d.x, d.edge_index, None, d.x0, d.num_nodes), W, C,
              use_attention=True, heads=2),
        _made("DirGNNConv", plain, lambda: g.DirGNNConv(g.SAGEConv(W, C))),
        _made("DirGNNConv", plain, lambda: g.DirGNNConv(g.GCNConv(W, C, add_self_loops=False)), "gcn"),
        _made("DirGNNConv", plain, lambda: g.DirGNNConv(g.GATConv(W, C, add_self_loops=False)), "gat"),
        _made("HeteroConv", relations, lambda: g.HeteroConv({
            META[1][0]: g.GCNConv(W, C, add_self_loops=False), META[1][1]: g.SAGEConv(W, C)})),
        _case("HGTConv", relations, W, C, META, heads=2),
        _case("HANConv", relations, W, C, META, heads=2),
        _made("GPSConv", plain, lambda: g.GPSConv(W, g.GCNConv(W, W), heads=2)),
        _made("GPSConv", plain, lambda: g.GPSConv(W, g.GCNConv(W, W), attn_type="performer"), "performer"),
        _case("WLConv", lambda conv, d: conv(d.node_type, d.edge_index)),
        _case("MeshCNNConv", mesh, W, C),
    ]  # fmt: skip


def _with_pos(conv: Any, d: Data) -> Any:
    return conv(d.x, d.pos, d.edge_index)


def _degrees() -> Any:
    import torch

    return torch.tensor([2, 3, 4, 5, 4, 3, 1, 1])


CASES = [*_neighbours(), *_attention(), *_messages()]

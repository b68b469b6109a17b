"""PyG's attention layers through weft's fused kernels: nothing of arcs × width is made.

GATConv           s_ij = leaky(⟨a, W x_i⟩ + ⟨a', W x_j⟩ + ⟨a'', W_e f_ij⟩)
GATv2Conv         s_ij = ⟨a, leaky(W_r x_i + W_l x_j + W_e f_ij)⟩
TransformerConv   s_ij = ⟨q_i, k_j + W_e f_ij⟩ / √C

Attention's dropout is by (source, target, head): its random numbers are not torch's, its chances are. Of an
arc that is there twice both would be dropped alike, so such a graph runs as PyG's own while it drops.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import Stream, add_bias, linears
from .recipes import (
    SUMS,
    Given,
    Layer,
    back,
    check_types,
    check_weights,
    given,
    numbers,
    per_arc,
    product,
    see,
)
from .views import BESIDE, FEATURES, Unfit, View


def _start(layer: Layer, x: Any, edge_index: Any, attr: Tensor | None, weights: Any) -> Given:
    """The checks that attention layers have in common."""
    m = layer.module
    if weights is not None:
        raise Unfit("its attention weights are asked for")
    if m.aggr not in SUMS:
        raise Unfit(f"its aggregation is {m.aggr}")
    of = given(layer, x, edge_index)
    per_arc(attr, edge_index, "edge_attr", fixed=True)
    if getattr(m, "negative_slope", 0.0) < 0:
        raise Unfit(f"its slope is {m.negative_slope}")
    check_types(layer, of.source, of.target)
    return of


def _looped(layer: Layer, of: Given, edge_index: Tensor, attr: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Loops as the module's options say, by PyG's own functions, once for an edge_index and its features."""
    from torch_geometric.utils import add_self_loops, remove_self_loops

    m = layer.module
    if not m.add_self_loops:
        return edge_index, attr
    if not isinstance(m.fill_value, (float, int, str)):
        raise Unfit("fill_value is a tensor")

    def make() -> tuple[Tensor, Tensor | None]:
        # Outside of `numbers`: on ranks the number of rows is everybody's.
        count = min(of.source.size(0), of.target.size(0))
        found: tuple[Tensor, Tensor | None] = add_self_loops(
            *remove_self_loops(edge_index, attr), fill_value=m.fill_value, num_nodes=count
        )
        return found

    return BESIDE.get(("loops", m.fill_value, of.sizes), (edge_index, attr), make)


def _drop(layer: Layer, seen: View, of: Given) -> tuple[float, Stream] | None:
    m = layer.module
    if not m.training or not m.dropout:
        return None
    if not 0 < m.dropout < 1:
        raise Unfit(f"its dropout is {m.dropout}")
    if seen.twice:
        raise Unfit("it drops arcs, and some arc is there twice")
    if layer.chance is not None and of.source is not of.target:  # on ranks these may run as PyG's own
        raise Unfit("it drops arcs between two sets of vertices")
    return float(m.dropout), layer.stream()


def _ended(y: Tensor, module: Any, more: Tensor | None) -> Tensor:
    """Heads beside each other or their mean, what is added, and the bias."""
    heads, width = module.heads, module.out_channels
    y = y if module.concat else y.view(y.shape[0], heads, width).mean(1)
    y = y if more is None else y + more
    # Backward needs what attention gave: nothing is written into it.
    bias = getattr(module, "bias", None)
    return y if bias is None else add_bias(y, bias)


def gat(
    layer: Layer, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None,
    return_attention_weights: Any = None,
) -> Tensor:  # fmt: skip
    """GATConv: W a is folded into one thin product beside x W."""
    m = layer.module
    of = _start(layer, x, edge_index, edge_attr, return_attention_weights)
    if size is not None:
        raise Unfit("a size is given")
    left, right = (m.lin, m.lin) if m.lin is not None else (m.lin_src, m.lin_dst)
    check_weights(layer, left, right, m.lin_edge, m.res)
    with_edges = edge_attr is not None and m.lin_edge is not None
    edge_index, edge_attr = _looped(layer, of, edge_index, edge_attr if with_edges else None)
    seen = see(layer, of, edge_index, None, edge_attr)
    drop = _drop(layer, seen, of)
    with numbers():
        heads, width = m.heads, m.out_channels
        mine, theirs = _folded(left, m.att_src), _folded(right, m.att_dst)
        if of.target is of.source:
            # Zeros to 16 columns, which BLAS takes faster than 2.
            both = nn.functional.pad(torch.cat([mine, theirs], 1), (0, max(0, 16 - 2 * heads)))
            z, sides = linears(of.source, (left.weight.t(), None), (both, None))
            column, row = sides[:, :heads], sides[:, heads : 2 * heads]
        else:
            z, column = linears(of.source, (left.weight.t(), None), (mine, None))
            row = of.target @ theirs
        bias = None
        if edge_attr is not None:
            per_head = (m.lin_edge.weight.t().view(-1, heads, width) * m.att_edge).sum(2)
            bias = seen.A.entries.project(FEATURES, per_head)
        y = seen.A.attend(
            row.contiguous(), column.contiguous(), z, heads=heads, slope=float(m.negative_slope), drop=drop,
            bias=bias,
        )  # fmt: skip
        return back(_ended(y, m, None if m.res is None else product(m.res, of.target)), of)


def _folded(lin: Any, attend: Tensor) -> Tensor:
    """Wᵀ a of every head. [in, heads]"""
    heads, width = attend.shape[1:]
    return (lin.weight.t().view(-1, heads, width) * attend).sum(2)


def gatv2(
    layer: Layer, x: Any, edge_index: Any, edge_attr: Tensor | None = None,
    return_attention_weights: Any = None,
) -> Tensor:  # fmt: skip
    """GATv2Conv: the arcs' features meet W_e a tile of arcs at a time."""
    m = layer.module
    of = _start(layer, x, edge_index, edge_attr, return_attention_weights)
    check_weights(layer, m.lin_l, m.lin_r, m.lin_edge, m.res)
    if edge_attr is not None and m.lin_edge is None:
        raise Unfit("edge_attr is given, and it has no edge_dim")
    edge_index, edge_attr = _looped(layer, of, edge_index, edge_attr)
    seen = see(layer, of, edge_index, None, edge_attr)
    drop = _drop(layer, seen, of)
    with numbers():
        z = product(m.lin_l, of.source)
        alike = m.lin_l is m.lin_r and of.target is of.source
        u = z if alike else product(m.lin_r, of.target)
        edge = None if edge_attr is None else (FEATURES, m.lin_edge.weight.t())
        y = seen.A.attend(
            u, z, z, kind="channel", heads=m.heads, slope=float(m.negative_slope), mix=m.att.reshape(-1),
            edge=edge, drop=drop,
        )  # fmt: skip
        return back(_ended(y, m, None if m.res is None else product(m.res, of.target)), of)


def transformer(
    layer: Layer, x: Any, edge_index: Any, edge_attr: Tensor | None = None,
    return_attention_weights: Any = None,
) -> Tensor:  # fmt: skip
    """TransformerConv: ⟨q, W_e f⟩ = ⟨W_eᵀ q, f⟩ and Σ α W_e f = W_e Σ α f, so W_e meets no arc."""
    m = layer.module
    of = _start(layer, x, edge_index, edge_attr, return_attention_weights)
    check_weights(layer, m.lin_query, m.lin_key, m.lin_value, m.lin_edge, m.lin_skip, m.lin_beta)
    if (edge_attr is None) != (m.lin_edge is None):
        raise Unfit("edge_attr and edge_dim are not given together")
    seen = see(layer, of, edge_index, None, edge_attr)
    drop = _drop(layer, seen, of)
    with numbers():
        heads, width = m.heads, m.out_channels
        query = product(m.lin_query, of.target) / math.sqrt(width)
        key, value = product(m.lin_key, of.source), product(m.lin_value, of.source)
        if edge_attr is None:
            y = seen.A.attend(query, key, value, kind="dot", heads=heads, drop=drop)
        else:
            edge = m.lin_edge.weight.t().view(-1, heads, width)
            asked = torch.einsum("nhc,thc->nht", query.view(-1, heads, width), edge).flatten(1)
            y, sums = seen.A.attend_data(
                query, key, value, kind="dot", heads=heads, drop=drop, values=FEATURES,
                bias=seen.A.entries.data_dots(asked.contiguous(), FEATURES, heads),
            )  # fmt: skip
            sums = sums.view(y.shape[0], heads, edge.shape[0])
            y = y + torch.einsum("nht,thc->nhc", sums, edge).flatten(1)
        y = y if m.concat else y.view(y.shape[0], heads, width).mean(1)
        if not m.root_weight:
            return back(y, of)
        own = product(m.lin_skip, of.target)
        if m.lin_beta is None:
            return back(y + own, of)
        beta = product(m.lin_beta, torch.cat([y, own, y - own], 1)).sigmoid()
        return back(beta * own + (1 - beta) * y, of)

"""PyG's layers after `weft.accelerate` beside weft's own layers: one layer, forward and back, in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..comm.threads import single
from ..errors import UserError, unknown
from ..graph import Graph, to_pyg
from ..nn import GATLayer, GCNLayer, SAGELayer
from ..nn.arcs import GATv2Layer, TransformerLayer
from ..parallel import Grid, Operator
from ..pyg import accelerate, explain
from .timing import interleaved

LAYERS: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "gcn": (lambda w: GCNLayer(w, w), "gcn"),
    "sage": (lambda w: SAGELayer(w, w), "mean"),
    "gat": (lambda w: GATLayer(w, w), "loops"),
    "gatv2": (lambda w: GATv2Layer(w, w), "loops"),
    "transformer": (lambda w: TransformerLayer(w, w), "none"),
}
"""Name → weft's layer of width w → w, and the normalisation of A that it wants."""


def _conv(name: str, width: int) -> nn.Module:
    from torch_geometric import nn as g

    made = {
        "gcn": g.GCNConv, "sage": g.SAGEConv, "gat": g.GATConv, "gatv2": g.GATv2Conv,
        "transformer": g.TransformerConv,
    }  # fmt: skip
    conv: nn.Module = made[name](width, width)
    return conv


def _step(layer: nn.Module, x: Tensor, *graph: Any, last: bool = False) -> Callable[[], object]:
    """Forward and back of one layer; weft's take A first (`last`: x), PyG's x."""

    def step() -> object:
        out = layer(*graph, x) if last else layer(x, *graph)
        return torch.autograd.grad(out, [x, *layer.parameters()], torch.ones_like(out), allow_unused=True)

    return step


def bench_accelerate(
    graph: Graph, layers: list[str], width: int, rounds: int, pyg: bool = False
) -> list[dict[str, Any]]:
    """Median seconds of weft's layer and of PyG's, accelerated; with `pyg` also of PyG's own."""
    for name in layers:
        if name not in LAYERS:
            raise unknown("layer for this benchmark", name, LAYERS)
    data = to_pyg(graph)
    x = torch.randn(graph.num_nodes, width, device="cpu").requires_grad_()
    rows = []
    for name in layers:
        make, how = LAYERS[name]
        own, A = make(width), Operator.build(graph, single(), Grid(1), how)
        fast, plain = accelerate(_conv(name, width)), _conv(name, width)
        contenders = {
            "weft": _step(own, x, A, last=True),
            "accelerate": _step(fast, x, data.edge_index),
        }
        if pyg:
            contenders["pyg"] = _step(plain, x, data.edge_index)
        seconds = interleaved(contenders, rounds)
        if set(explain(fast).values()) != {"weft"}:
            raise UserError(f"PyG's layer of {name} ran as PyG's own: {explain(fast)}.")
        rows.append({
            "layer": name, "width": width, **{f"{k}_seconds": v for k, v in seconds.items()},
            "ratio": seconds["accelerate"] / seconds["weft"],
        })  # fmt: skip
    return rows

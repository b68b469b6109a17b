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


def _step(run: Callable[[Tensor], Tensor], x: Tensor, weights: list[nn.Parameter]) -> Callable[[], object]:
    def step() -> object:
        out = run(x)
        return torch.autograd.grad(out, [x, *weights], torch.ones_like(out), allow_unused=True)

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
            "weft": _step(lambda h, own=own, A=A: own(A, h), x, list(own.parameters())),
            "accelerate": _step(lambda h, fast=fast: fast(h, data.edge_index), x, list(fast.parameters())),
        }
        if pyg:
            contenders["pyg"] = _step(
                lambda h, plain=plain: plain(h, data.edge_index), x, list(plain.parameters())
            )
        seconds = interleaved(contenders, rounds)
        if set(explain(fast).values()) != {"weft"}:
            raise UserError(f"PyG's layer of {name} ran as PyG's own: {explain(fast)}.")
        rows.append({
            "layer": name, "width": width, **{f"{k}_seconds": v for k, v in seconds.items()},
            "ratio": seconds["accelerate"] / seconds["weft"],
        })  # fmt: skip
    return rows

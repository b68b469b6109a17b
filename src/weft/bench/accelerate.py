"""PyG's layers after `weft.accelerate` beside weft's own layers: one layer, forward and back, in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..comm.threads import single
from ..errors import UserError, unknown
from ..graph import Graph, to_pyg
from ..kernels import add_linear_, linear
from ..nn import GATLayer, GCNLayer, GINLayer, SAGELayer
from ..nn.adjacency import Chain
from ..nn.arcs import GATv2Layer, TransformerLayer
from ..nn.layers import SGCLayer
from ..parallel import Grid, Operator
from ..pyg import accelerate, explain
from .timing import interleaved

_HOPS, _KEPT = 2, 0.1


class _Tagged(nn.Module):
    """y = Σ_k Âᵏ x W_k + b, as one would write it over A."""

    def __init__(self, width: int):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(width, width, device="cpu") for _ in range(_HOPS + 1))
        self.bias = nn.Parameter(torch.zeros(width, device="cpu"))

    def forward(self, A: Operator, x: Tensor) -> Tensor:
        y = linear(x, self.weights[0])
        for weight in self.weights[1:]:
            x = A @ x
            y = add_linear_(y, x, weight)
        return y.add_(self.bias)


class _Personal(nn.Module):
    """K times y = (1 − α) Â y + α x, as one would write it over A."""

    def forward(self, A: Operator, x: Tensor) -> Tensor:
        y = x
        for _ in range(_HOPS):
            y = (A @ y).mul_(1 - _KEPT).add_(x, alpha=_KEPT)
        return y


class _Chained(SGCLayer):
    """SGC over K times the same A."""

    def forward(self, A: Any, h: Tensor) -> Tensor:
        return super().forward(Chain([A] * self.hops), h)


LAYERS: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "gcn": (lambda w: GCNLayer(w, w), "gcn"),
    "sage": (lambda w: SAGELayer(w, w), "mean"),
    "gin": (lambda w: GINLayer(w, w), "none"),
    "sgc": (lambda w: _Chained(w, w, hops=_HOPS), "gcn"),
    "appnp": (lambda w: _Personal(), "gcn"),
    "tag": (lambda w: _Tagged(w), "gcn"),
    "gat": (lambda w: GATLayer(w, w), "loops"),
    "gatv2": (lambda w: GATv2Layer(w, w), "loops"),
    "transformer": (lambda w: TransformerLayer(w, w), "none"),
}
"""Name → weft's layer of width w → w, or its equation over A, and the normalisation of A that it wants."""


def _conv(name: str, width: int) -> nn.Module:
    from torch_geometric import nn as g

    w = width
    made: dict[str, Callable[[], nn.Module]] = {
        "gcn": lambda: g.GCNConv(w, w), "sage": lambda: g.SAGEConv(w, w), "gat": lambda: g.GATConv(w, w),
        "gatv2": lambda: g.GATv2Conv(w, w), "transformer": lambda: g.TransformerConv(w, w),
        "sgc": lambda: g.SGConv(w, w, K=_HOPS), "appnp": lambda: g.APPNP(_HOPS, _KEPT),
        "tag": lambda: g.TAGConv(w, w, K=_HOPS),
        "gin": lambda: g.GINConv(
            nn.Sequential(nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w)), train_eps=True
        ),
    }  # fmt: skip
    return made[name]()


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

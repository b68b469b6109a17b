"""DGL's epoch, where DGL can be imported: a contender of `weft bench epoch` and of the papers' figures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from ..graph import Graph

MODELS = ("gcn", "sage", "gat")
"""Those that this adapter has."""


def dgl_forward(
    graph: Graph, task: dict[str, Any]
) -> tuple[torch.nn.ModuleList, Callable[[Any, torch.Tensor], torch.Tensor]]:
    """DGL's layers for the task, and (layer, h) → what the layer makes of h [n, f] on DGL's graph.

    An arc u → v of DGL's goes into v, as in weft's rows. GraphConv scales by degrees on both sides and, as
    GATConv, wants each vertex to be its own neighbour once; SAGEConv takes the mean. A hidden layer of GAT
    has its heads side by side, the last has one. Formats of the adjacency that DGL makes when it first needs
    them are made here.
    """
    import dgl  # type: ignore[import-not-found, unused-ignore]
    from dgl.nn import pytorch as nn  # type: ignore[import-not-found, unused-ignore]

    name, heads, last = task["model"], task["heads"], task["layers"] - 1
    arcs = dgl.graph((graph.indices.long(), graph.rows), num_nodes=graph.num_nodes)
    if name != "sage":
        arcs = dgl.add_self_loop(dgl.remove_self_loop(arcs))
    arcs.create_formats_()
    widths = [graph.num_features, *[task["hidden"]] * last, graph.num_classes]
    made = {
        "gcn": lambda a, b, depth: nn.GraphConv(a, b, norm="both"),
        "sage": lambda a, b, depth: nn.SAGEConv(a, b, "mean"),
        "gat": lambda a, b, depth: nn.GATConv(a, b, 1) if depth == last else nn.GATConv(a, b // heads, heads),
    }[name]
    layers = torch.nn.ModuleList(made(a, b, depth) for depth, (a, b) in enumerate(pairwise(widths)))
    return layers, lambda layer, h: layer(arcs, h).flatten(1)

"""One contender of `weft bench epoch`, alone in its process: `python -m weft.bench.contender TASK.json`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

from ..graph import Graph, open_store, to_pyg
from ..graph.arrays import FEATURES, as_read
from ..nn.registry import MODELS, readers
from ..pyg import accelerate
from ..train import RunConfig, Trainer
from ..train.trainer import peak_rss_bytes
from .dgl import dgl_forward
from .epoch import model_of


def weft_step(graph: Graph, task: dict[str, Any]) -> Callable[[int], object]:
    config = RunConfig()
    name = model_of(task["model"])
    config.model.name, config.model.layers = name, task["layers"]
    config.model.hidden, config.model.dropout = task["hidden"], task["dropout"]
    if name in readers("heads"):
        config.model.heads = task["heads"]  # of the hidden layers; the last has one
    if name != task["model"]:
        config.model.arc_features = -1  # the graph's
    return Trainer(graph, config).step


def _features(x: torch.Tensor) -> torch.Tensor:
    return as_read(FEATURES, x, torch.float32)


def _conv(name: str, graph: Graph, heads: int, last: int) -> Callable[[int, int, int], Any]:
    """(inputs, outputs, depth) → PyG's layer; arcs' features and kinds as the graph has them."""
    from torch_geometric import nn

    width = _features(graph.arc_data[FEATURES]).shape[1] if FEATURES in graph.arc_data else None
    kinds = int(graph.arc_data["type"].max()) + 1 if "type" in graph.arc_data else 0
    attention = {
        "gat": nn.GATConv, "gat+arcs": nn.GATConv, "gatv2": nn.GATv2Conv, "transformer": nn.TransformerConv
    }  # fmt: skip
    if name in attention:
        edges = {} if name == "gat" else {"edge_dim": width}  # as weft's gat, which reads them only if told
        return lambda a, b, depth: (
            attention[name](a, b, **edges)
            if depth == last
            else attention[name](a, b // heads, heads, **edges)
        )
    degrees = torch.bincount(graph.indptr.diff())
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    return {
        "gcn": lambda a, b, depth: nn.GCNConv(a, b, cached=True),
        "sage": lambda a, b, depth: nn.SAGEConv(a, b),
        "gine": lambda a, b, depth: nn.GINEConv(
            torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.ReLU(), torch.nn.Linear(b, b)), edge_dim=width
        ),
        "resgated": lambda a, b, depth: nn.ResGatedGraphConv(a, b, edge_dim=width),
        "pna": lambda a, b, depth: nn.PNAConv(a, b, aggregators, scalers, degrees, edge_dim=width),
        "rgcn": lambda a, b, depth: nn.RGCNConv(a, b, kinds),
    }[name]


def pyg_step(graph: Graph, task: dict[str, Any], csr: bool, fast: bool = False) -> Callable[[int], object]:
    """PyG at its best: normalisation cached, and the adjacency as CSR where asked; or `fast`, by one line."""
    name, last = task["model"], task["layers"] - 1
    conv = _conv(name, graph, task["heads"], last)
    widths = [graph.num_features, *[task["hidden"]] * last, graph.num_classes]
    layers = torch.nn.ModuleList(conv(a, b, depth) for depth, (a, b) in enumerate(pairwise(widths)))
    if fast:
        accelerate(layers)
    data = to_pyg(graph)
    x, labels, train = data.x, data.y, data.train_mask
    arcs = data.edge_index
    more = [data.edge_type] if name == "rgcn" else []
    if name not in ("gcn", "sage", "gat", "rgcn") and "edge_attr" in data:
        more = [_features(data.edge_attr)]
    if csr:
        n = graph.num_nodes
        arcs = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), torch.ones(graph.num_arcs), (n, n))
    return _epochs(layers, lambda layer, h: layer(h, arcs, *more), x, labels, train, task)


def dgl_step(graph: Graph, task: dict[str, Any]) -> Callable[[int], object]:
    """DGL, with both formats of the adjacency at hand."""
    layers, through = dgl_forward(graph, task)
    x, labels, train = graph.features, graph.labels, graph.train_mask
    assert x is not None
    assert labels is not None
    assert train is not None
    return _epochs(layers, through, _features(x), labels, train, task)


def _epochs(
    layers: torch.nn.ModuleList,
    through: Callable[[Any, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    labels: torch.Tensor,
    train: torch.Tensor,
    task: dict[str, Any],
) -> Callable[[int], object]:
    """An epoch of others' layers, as weft's trainer has it: activation and dropout between layers, Adam."""
    elu = MODELS[model_of(task["model"])].activation == "elu"
    optimiser = torch.optim.Adam(layers.parameters(), lr=0.01)

    def step(epoch: int) -> torch.Tensor:
        optimiser.zero_grad()
        h = x
        for depth, layer in enumerate(layers):
            h = through(layer, h)
            if depth < len(layers) - 1:
                h = F.dropout(F.elu(h) if elu else h.relu(), task["dropout"])
        loss = F.cross_entropy(h[train], labels[train])
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def main(task: dict[str, Any]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    name = task["name"]
    if name == "dgl":
        import dgl.nn.pytorch  # type: ignore[import-not-found, unused-ignore]  # noqa: F401  as below
    elif name != "weft":
        import torch_geometric.nn  # noqa: F401  so that its import counts as idle memory
    idle = peak_rss_bytes()
    graph = open_store(task["store"], verify=False).graph()
    if name in ("weft", "dgl"):
        step = (weft_step if name == "weft" else dgl_step)(graph, task)
    else:
        step = pyg_step(graph, task, name == "pyg-csr", name == "accelerate")
    del graph
    seconds = []
    for epoch in range(1, task["epochs"] + 3):
        started = time.perf_counter()
        step(epoch)
        if epoch > 2:
            seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak_rss_bytes(), "idle_rss_bytes": idle}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

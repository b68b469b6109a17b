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
from ..nn.registry import MODELS, readers
from ..train import RunConfig, Trainer
from ..train.trainer import peak_rss_bytes


def weft_step(graph: Graph, task: dict[str, Any]) -> Callable[[int], object]:
    config = RunConfig()
    config.model.name, config.model.layers = task["model"], task["layers"]
    config.model.hidden, config.model.dropout = task["hidden"], task["dropout"]
    if task["model"] in readers("heads"):
        config.model.heads = task["heads"]  # of the hidden layers; the last has one
    return Trainer(graph, config).step


def pyg_step(graph: Graph, task: dict[str, Any], csr: bool) -> Callable[[int], object]:
    """PyG at its best: normalisation cached, and the adjacency as CSR where asked."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    heads, last = task["heads"], task["layers"] - 1
    elu = MODELS[task["model"]].activation == "elu"
    conv = {
        "gcn": lambda a, b, depth: GCNConv(a, b, cached=True),
        "sage": lambda a, b, depth: SAGEConv(a, b),
        "gat": lambda a, b, depth: GATConv(a, b) if depth == last else GATConv(a, b // heads, heads),
    }[task["model"]]
    widths = [graph.num_features, *[task["hidden"]] * (task["layers"] - 1), graph.num_classes]
    layers = torch.nn.ModuleList(conv(a, b, depth) for depth, (a, b) in enumerate(pairwise(widths)))
    data = to_pyg(graph)
    x, labels, train = data.x, data.y, data.train_mask
    arcs = data.edge_index
    if csr:
        n = graph.num_nodes
        arcs = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), torch.ones(graph.num_arcs), (n, n))
    optimiser = torch.optim.Adam(layers.parameters(), lr=0.01)

    def step(epoch: int) -> None:
        optimiser.zero_grad()
        h = x
        for depth, layer in enumerate(layers):
            h = layer(h, arcs)
            if depth < len(layers) - 1:
                h = F.dropout(F.elu(h) if elu else h.relu(), task["dropout"])
        F.cross_entropy(h[train], labels[train]).backward()
        optimiser.step()

    return step


def main(task: dict[str, Any]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    name = task["name"]
    if name != "weft":
        import torch_geometric.nn  # noqa: F401  so that its import counts as idle memory
    idle = peak_rss_bytes()
    graph = open_store(task["store"], verify=False).graph()
    step = weft_step(graph, task) if name == "weft" else pyg_step(graph, task, csr=name == "pyg-csr")
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

"""Small learnable graphs for the trainer's tests."""

from __future__ import annotations

import torch

from weft.graph import Graph, sbm, split
from weft.train import RunConfig


def small(seed: int = 0, nodes: int = 160, features: int = 8) -> Graph:
    """Four classes, directed: half the arcs of a planted partition, so that A and its transpose differ."""
    graph = sbm(nodes=nodes, classes=4, degree=8, features=features, noise=0.6, seed=seed, train=0.3, val=0.3)
    keep = torch.arange(graph.num_arcs) % 3 > 0
    return Graph.from_arcs(
        graph.indices[keep], graph.rows[keep], graph.num_nodes, name="small",
        **{key: getattr(graph, key) for key in ("features", "labels", "train_mask", "val_mask", "test_mask")},
    )  # fmt: skip


def multilabel() -> Graph:
    """Each vertex has label c where its class is c or c - 1: two labels of four."""
    graph = small()
    one = torch.nn.functional.one_hot(graph.labels, 4).bool()
    bare = graph.replace(labels=one | one.roll(1, dims=1), train_mask=None, val_mask=None, test_mask=None)
    return split(bare, 0.5, 0.25, seed=1)


def config(**settings: object) -> RunConfig:
    """A quick run; keys are fields of [train], or `model_` and a field of [model]."""
    made = RunConfig()
    made.model.hidden, made.train.epochs, made.train.lr = 8, 12, 0.05
    for name, value in settings.items():
        part, field = (made.model, name[6:]) if name.startswith("model_") else (made.train, name)
        assert hasattr(part, field), name
        setattr(part, field, value)
    return made

"""Words of an epoch: weft's strategies beside the papers' own algorithms of the same shape, both metered."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...comm import Communicator, Ledger
from ...comm.threads import run_threads
from ...graph import Graph
from ...parallel import Blocks, Grid
from ...parallel.assign import bare
from ...partition import PartitionOptions, partition_graph
from ...train import RunConfig
from ..words import received
from .baseline import Problem
from .train import BASELINES, copies, make, train

OF_A = ("broadcast A", "pattern")
"""Phases in which A's blocks travel."""


def baseline_words(
    graph: Graph, ranks: Sequence[int], layers: int, method: str = "random", seed: int = 0
) -> list[dict[str, Any]]:
    """A row for every algorithm and number of ranks, words received by the rank that receives most:

        product, epoch    of the paper's algorithm;  epoch_of_a: the part of it that is A itself
        weft_product, weft_epoch   of weft's strategy of the same shape, on the same parts; a steady epoch
        ratio             weft's epoch over the paper's

    Layers are as wide as the features, so that the order of products changes nothing.

    >>> from weft.bench.words import with_features
    >>> from weft.graph import karate
    >>> rows = baseline_words(with_features(karate(), 4), [4], 3)
    >>> [(row["algorithm"], row["product"], row["weft_product"]) for row in rows][:2]
    [('cagnet-1d', 104, 104), ('cagnet-1.5d', 136, 68)]
    """
    rows = []
    for p in ranks:
        parts = partition_graph(bare(graph), p, method, PartitionOptions(seed=seed))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parts.npy"
            np.save(path, parts.numpy())
            for name, entry in BASELINES.items():
                theirs = run_threads(_theirs, p, graph, parts, name, layers)
                ours = run_threads(received, p, graph, _config(entry.strategy, p, layers, graph, str(path)))
                row = {
                    "algorithm": name, "strategy": entry.strategy, "ranks": p, "partition": method,
                    "product": max(t[0] for t in theirs), "epoch": max(t[1] for t in theirs),
                    "epoch_of_a": max(t[2] for t in theirs), "weft_product": max(t[0] for t in ours),
                    "weft_epoch": max(t[1] for t in ours),
                }  # fmt: skip
                rows.append(row | {"ratio": row["weft_epoch"] / row["epoch"] if row["epoch"] else 1.0})
    return rows


def _theirs(
    comm: Communicator, graph: Graph, parts: torch.Tensor, name: str, layers: int
) -> tuple[int, int, int]:
    """(words of one A·H, of one epoch, those of A in it) into this rank."""
    width = graph.num_features
    problem = Problem.of(graph, width, layers)
    one = make(name, comm, problem.a, Blocks.of_parts(parts, Grid(comm.size)))
    x = one.take(problem.x)
    with Ledger(comm) as product:
        one.product(x)
    words = train(comm, graph, parts, name, width, layers, 1)["words"]
    return product.words(), sum(words.values()), sum(words.get(phase, 0) for phase in OF_A)


def _config(strategy: str, ranks: int, layers: int, graph: Graph, parts: str) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden, config.model.layers = "gcn", graph.num_features, layers
    config.model.bias = False  # the papers' models have none
    config.parallel.strategy, config.parallel.partition = strategy, parts
    if strategy == "1.5d":
        config.parallel.replication = copies(ranks)
    return config

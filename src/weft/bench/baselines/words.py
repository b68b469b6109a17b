"""Words and seconds of an epoch: weft's strategies beside the papers' own algorithms of the same shape."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...comm import Communicator, Ledger, run_ranks
from ...comm.launch import find_mpirun
from ...comm.threads import run_threads
from ...graph import Graph, open_store, write_store
from ...parallel import Blocks, Grid
from ...parallel.assign import bare
from ...partition import PartitionOptions, partition_graph
from ...train import RunConfig, Trainer
from ..words import received
from .baseline import Baseline, Problem, descend, epoch
from .train import BASELINES, RATE, copies, make, train

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


def baseline_seconds(
    graph: Graph, ranks: int, layers: int, epochs: int, method: str = "random", seed: int = 0
) -> list[dict[str, Any]]:
    """A row for every algorithm, on `ranks` real ranks of one thread that are started once:

    epoch, weft_epoch       words into the rank that receives most, in a steady epoch
    seconds, weft_seconds   median epoch of the slowest rank, all taken in turn
    ratio, speedup          weft's words over the paper's; the paper's seconds over weft's
    """
    parts = partition_graph(bare(graph), ranks, method, PartitionOptions(seed=seed))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_store(graph, folder / "graph.weft")
        np.save(folder / "parts.npy", parts.numpy())
        told: list[list[dict[str, Any]]] = run_ranks(
            beside, ranks, "mpi" if find_mpirun() else "torch", name, layers, epochs, threads=1,
            stall_seconds=600,
        )  # fmt: skip
    rows = []
    for each in zip(*told, strict=True):
        row = each[0] | {key: max(one[key] for one in each) for key in ("epoch", "weft_epoch")}
        row |= {key: statistics.median(row[key]) for key in ("seconds", "weft_seconds")}
        row |= {"ranks": ranks, "partition": method, "speedup": row["seconds"] / row["weft_seconds"]}
        rows.append(row | {"ratio": row["weft_epoch"] / row["epoch"] if row["epoch"] else 1.0})
    return rows


def beside(comm: Communicator, folder: str, layers: int, epochs: int) -> list[dict[str, Any]]:
    """One rank's part of `baseline_seconds`: every algorithm and weft's, an epoch of each in turn.

    The first epoch of each is not counted: it makes A X, plans and transposes.
    """
    graph = open_store(Path(folder) / "graph.weft").graph()
    path = str(Path(folder) / "parts.npy")
    blocks = Blocks.of_parts(torch.from_numpy(np.load(path)).long(), Grid(comm.size))
    problem = Problem.of(graph, graph.num_features, layers)
    rows: list[dict[str, Any]] = []
    steps: list[tuple[Callable[[int], object], Callable[[int], object]]] = []
    for name, entry in BASELINES.items():
        rows.append({"algorithm": name, "strategy": entry.strategy, "seconds": [], "weft_seconds": []})
        trainer = Trainer(graph, _config(entry.strategy, comm.size, layers, graph, path), comm)
        steps.append((_step(problem, make(name, comm, problem.a, blocks)), trainer.step))
    for number in range(1, epochs + 2):
        for row, pair in zip(rows, steps, strict=True):
            for step, seconds, words in zip(
                pair, ("seconds", "weft_seconds"), ("epoch", "weft_epoch"), strict=True
            ):
                comm.barrier()
                started = time.perf_counter()
                with Ledger(comm) as ledger:
                    step(number)
                took = max(comm.all_gather_json(time.perf_counter() - started))
                if number > 1:
                    row[seconds].append(took)
                    row[words] = ledger.words()
    return rows


def _step(problem: Problem, one: Baseline) -> Callable[[int], object]:
    """An epoch of the paper's algorithm, from where the last one ended."""
    x, weights = one.take(problem.x), [problem.weights]

    def step(number: int) -> None:
        made = epoch(one, problem, x, weights[0])
        weights[0] = descend(weights[0], made.gradients, RATE)

    return step


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
    config.model.bias, config.model.dropout = False, 0.0  # the papers' models have neither
    config.parallel.strategy, config.parallel.partition = strategy, parts
    if strategy == "1.5d":
        config.parallel.replication = copies(ranks)
    return config

"""One training run on 1 rank and on several, taken in turn: epochs, ratios, peak memory per rank."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..graph import Graph, load, split, write_store
from ..parallel import choose
from ..parallel.assign import bare
from ..partition import PartitionOptions, partition_for_grid

Layout = tuple[int, int, str, str]
"""(ranks, threads a rank, strategy, partition)."""


def bench_ranks(
    graph: str, layouts: list[Layout], layers: int, hidden: int, epochs: int, rounds: int
) -> list[dict[str, Any]]:
    """A row per layout: seconds of an epoch, how many times faster than the first layout, words into the
    busiest rank, and the peak memory of the largest rank above that of an idle one.

    Parts are made once, before anything is timed. A graph that brings no features gets random ones.
    """
    seconds: dict[Layout, list[float]] = {layout: [] for layout in layouts}
    memory: dict[Layout, int] = {}
    words: dict[Layout, int] = {}
    idle = 0
    with tempfile.TemporaryDirectory() as folder:
        loaded = trainable(load(graph))
        store = write_store(loaded, Path(folder) / "graph.weft")
        files = {layout: _parts(loaded, layout, Path(folder)) for layout in layouts}
        del loaded
        for round_ in range(rounds):
            for number, layout in enumerate(layouts):
                answer = _train(
                    store,
                    layout,
                    files[layout],
                    layers,
                    hidden,
                    epochs,
                    Path(folder) / f"run-{round_}-{number}",
                )
                moved = answer["words"].values()
                words[layout] = max((sum(by_rank) for by_rank in zip(*moved, strict=True)), default=0)
                seconds[layout].append(answer["epoch_seconds"])
                memory[layout] = max(memory.get(layout, 0), *answer["peak_rss_bytes"])
                # A rank that weft starts has everything imported and nothing loaded when it begins.
                idle = min([*answer["idle_rss_bytes"], idle or answer["idle_rss_bytes"][0]])
    medians = {layout: statistics.median(times) for layout, times in seconds.items()}
    base, most = medians[layouts[0]], memory[layouts[0]] - idle
    return [
        {
            "ranks": layout[0], "threads": layout[1], "strategy": layout[2], "partition": layout[3],
            "seconds": medians[layout], "speedup": base / medians[layout], "words": words[layout],
            "above_idle_bytes": memory[layout] - idle,
            "memory_ratio": (memory[layout] - idle) / most,
        }
        for layout in layouts
    ]  # fmt: skip


def trainable(graph: Graph, features: int = 128, classes: int = 40, seed: int = 0) -> Graph:
    """The graph with random features and labels where it brings none: epochs take as long with any numbers.

    >>> trainable(Graph.from_arcs([0, 1], [1, 2])).num_features
    128
    """
    if graph.num_features and graph.labels is not None:
        return graph
    made = torch.Generator().manual_seed(seed)
    x = torch.rand(graph.num_nodes, features, generator=made)
    y = torch.randint(classes, (graph.num_nodes,), generator=made)
    return split(graph.replace(features=x, labels=y, num_classes=classes), 0.6, 0.2, seed)


def _parts(graph: Graph, layout: Layout, folder: Path) -> str:
    """What `--partition` gets: the name of a method that needs no arcs, or a file made once."""
    ranks, _, strategy, method = layout
    if method in ("random", "block"):
        return method
    grid, _ = choose(strategy, ranks)
    path = folder / f"{grid}-{method}.npy"
    if not path.exists():
        np.save(path, partition_for_grid(bare(graph), grid.shape, method, PartitionOptions()).numpy())
    return str(path)


def _train(
    store: Path, layout: Layout, partition: str, layers: int, hidden: int, epochs: int, out: Path
) -> dict[str, Any]:
    ranks, threads, strategy, _ = layout
    command = [
        sys.executable, "-m", "weft", "train", str(store), "--json", "--out", str(out),
        "--strategy", strategy, "--partition", partition,
        "--ranks", str(ranks), "--threads", str(threads), "--layers", str(layers), "--hidden", str(hidden),
        "--dropout", "0", "--epochs", str(epochs), "--evaluate-every", str(epochs),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"{ranks} ranks of {strategy} failed: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer

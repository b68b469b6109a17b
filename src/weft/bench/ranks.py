"""One training run on 1 rank and on several, taken in turn: epochs, ratios, peak memory per rank."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..comm import run_ranks
from ..comm.launch import find_mpirun
from ..errors import UserError, unknown
from ..graph import Graph, load, split, write_store
from ..parallel import STRATEGIES, choose
from ..parallel.assign import bare
from ..partition import PartitionOptions, check_method, partition_for_grid, partition_graph
from .baselines import BASELINES, check_baseline
from .baselines import train as train_baseline

Layout = tuple[int, int, str, str]
"""(ranks, threads a rank, strategy or the name of a paper's own algorithm, partition)."""


def check_layout(layout: Layout, blocking: int = 0) -> None:
    """Refuse what cannot be run, before anything is.

    >>> check_layout((4, 1, "cagnet-2", "random"))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown strategy 'cagnet-2'. Did you mean 'cagnet-2d'?
    """
    ranks, _, name, method = layout
    if name in BASELINES:
        check_baseline(name, ranks, blocking)
    elif name not in STRATEGIES:
        raise unknown("strategy", name, [*STRATEGIES, *BASELINES])
    else:
        choose(name, ranks)
    check_method(method, 1, 1)


def bench_ranks(
    graph: str, layouts: list[Layout], layers: int, hidden: int, epochs: int, rounds: int, blocking: int = 0,
    *, more: Sequence[str] = (),
) -> list[dict[str, Any]]:  # fmt: skip
    """A row per layout: seconds of an epoch, how many times faster than the first layout, words into the
    busiest rank, and the peak memory of the largest rank above that of an idle one.

    Parts are made once, before anything is timed. A graph that brings no features gets random ones. A
    paper's own algorithm (`baselines`) is not asked for its memory: each of its ranks cuts its blocks out of
    the whole graph. `words_by_phase` says what moved in a steady epoch, and `time` of weft's own where its
    seconds went; `more` are options of `weft train` for all of those.
    """
    seconds: dict[Layout, list[float]] = {layout: [] for layout in layouts}
    memory: dict[Layout, int] = {}
    words: dict[Layout, int] = {}
    details: dict[Layout, dict[str, dict[str, float]]] = {}
    idle = 0
    with tempfile.TemporaryDirectory() as folder:
        loaded = trainable(load(graph))
        store = write_store(loaded, Path(folder) / "graph.weft")
        files = {layout: _parts(loaded, layout, Path(folder)) for layout in layouts}
        del loaded
        for round_ in range(rounds):
            for number, layout in enumerate(layouts):
                sizes = layers, hidden, epochs
                if layout[2] in BASELINES:
                    answer = _baseline(store, layout, files[layout], *sizes, blocking)
                else:
                    out = Path(folder) / f"run-{round_}-{number}"
                    answer = _train(store, layout, files[layout], *sizes, out, more)
                    details[layout] = {
                        "time": {kind: statistics.fmean(each) for kind, each in answer["time"].items()}
                    }
                most_of = {phase: max(each) for phase, each in answer["words"].items()}
                details[layout] = details.get(layout, {}) | {"words_by_phase": most_of}
                moved = answer["words"].values()
                words[layout] = max((sum(by_rank) for by_rank in zip(*moved, strict=True)), default=0)
                seconds[layout].append(answer["epoch_seconds"])
                if layout[2] in BASELINES:
                    continue
                memory[layout] = max(memory.get(layout, 0), *answer["peak_rss_bytes"])
                # A rank that weft starts has everything imported and nothing loaded when it begins.
                idle = min([*answer["idle_rss_bytes"], idle or answer["idle_rss_bytes"][0]])
    medians = {layout: statistics.median(times) for layout, times in seconds.items()}
    base, most = medians[layouts[0]], memory.get(layouts[0], idle) - idle

    def above(layout: Layout) -> dict[str, Any]:
        if layout not in memory:
            return {"above_idle_bytes": None, "memory_ratio": None}
        bytes_ = memory[layout] - idle
        return {"above_idle_bytes": bytes_, "memory_ratio": bytes_ / most if most else None}

    return [
        {
            "ranks": layout[0], "threads": layout[1], "strategy": layout[2], "partition": layout[3],
            "seconds": medians[layout], "speedup": base / medians[layout], "words": words[layout],
            **above(layout), **details[layout],
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
    if method in ("random", "block") and strategy not in BASELINES:
        return method
    if strategy in BASELINES:
        path = folder / f"{ranks}-rows-{method}.npy"
        if not path.exists():
            np.save(path, partition_graph(bare(graph), ranks, method, PartitionOptions()).numpy())
        return str(path)
    grid, _ = choose(strategy, ranks)
    path = folder / f"{grid}-{method}.npy"
    if not path.exists():
        np.save(path, partition_for_grid(bare(graph), grid.shape, method, PartitionOptions()).numpy())
    return str(path)


def _train(
    store: Path, layout: Layout, partition: str, layers: int, hidden: int, epochs: int, out: Path,
    more: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    ranks, threads, strategy, _ = layout
    return trained(store, out, [
        "--strategy", strategy, "--partition", partition,
        "--ranks", str(ranks), "--threads", str(threads), "--layers", str(layers), "--hidden", str(hidden),
        "--dropout", "0", "--epochs", str(epochs), "--evaluate-every", str(epochs), *more,
    ])  # fmt: skip


def trained(store: Path, out: Path, options: Sequence[str]) -> dict[str, Any]:
    """What `weft train STORE --json` answers with these options, in processes of its own."""
    command = [sys.executable, "-m", "weft", "train", str(store), "--json", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("weft: ")
        named = dict(zip(options[::2], options[1::2], strict=False))
        raise UserError(
            f"{named.get('--ranks', '?')} ranks of {named.get('--strategy', '1d')} failed: {last}"
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _baseline(
    store: Path, layout: Layout, partition: str, layers: int, hidden: int, epochs: int, blocking: int
) -> dict[str, Any]:
    ranks, threads, name, _ = layout
    parts = torch.from_numpy(np.load(partition, allow_pickle=False))
    answers = run_ranks(
        train_baseline, ranks, "mpi" if find_mpirun() else "torch", str(store), parts, name, hidden, layers,
        epochs, blocking, threads=threads, stall_seconds=600,
    )  # fmt: skip
    phases = {phase for answer in answers for phase in answer["words"]}
    words = {phase: [answer["words"].get(phase, 0) for answer in answers] for phase in phases}
    return {"epoch_seconds": max(answer["epoch_seconds"] for answer in answers), "words": words}

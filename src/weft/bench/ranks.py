"""One training run on 1 rank and on several, taken in turn: epochs, ratios, peak memory per rank."""

from __future__ import annotations

import inspect
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

from ..comm import Communicator, run_ranks
from ..comm.launch import find_mpirun
from ..errors import UserError, unknown
from ..graph import Graph, load, open_store, split, write_store
from ..graph.guard import check_fits
from ..graph.loading import GENERATORS
from ..parallel import STRATEGIES, choose
from ..parallel.assign import bare
from ..partition import PartitionOptions, check_method, partition_for_grid, partition_graph
from ..train import RunConfig, Trainer
from ..train.config import fields, update
from ..train.watch import write_trace
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
    *, more: Sequence[str] = (), engine: str = "auto",
) -> list[dict[str, Any]]:  # fmt: skip
    """A row per layout: seconds of an epoch, how many times faster than the first layout, words into the
    busiest rank, and the peak memory of the largest rank above that of an idle one.

    Parts are made once, before anything is timed. A graph that brings no features gets random ones. A
    paper's own algorithm (`baselines`) is not asked for its memory: each of its ranks cuts its blocks out of
    the whole graph. `words_by_phase` says what moved in a steady epoch, and `time` where its seconds went;
    `more` are options of `weft train` for all of weft's own. Of the engine `threads` ranks are virtual ones,
    in this process: their words are exact, their seconds say little.
    """
    seconds: dict[Layout, list[float]] = {layout: [] for layout in layouts}
    memory: dict[Layout, int] = {}
    words: dict[Layout, int] = {}
    details: dict[Layout, dict[str, Any]] = {}
    idle = 0
    with tempfile.TemporaryDirectory() as folder:
        loaded = trainable(load(graph))
        store = write_store(loaded, Path(folder) / "graph.weft")
        size = {"vertices": loaded.num_nodes, "arcs": loaded.num_arcs}
        files = {layout: _parts(loaded, layout, Path(folder)) for layout in layouts}
        del loaded
        for round_ in range(rounds):
            for number, layout in enumerate(layouts):
                sizes = layers, hidden, epochs
                if layout[2] in BASELINES:
                    answer = _baseline(store, layout, files[layout], *sizes, blocking, engine)
                else:
                    out = Path(folder) / f"run-{round_}-{number}"
                    answer = _train(store, layout, files[layout], *sizes, out, more, engine)
                details[layout] = {
                    "time": {kind: statistics.fmean(each) for kind, each in answer["time"].items()},
                    "words_by_phase": {phase: max(each) for phase, each in answer["words"].items()},
                }
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
            **size, "ranks": layout[0], "threads": layout[1], "strategy": layout[2], "partition": layout[3],
            "seconds": medians[layout], "speedup": base / medians[layout], "words": words[layout],
            **above(layout), **details[layout],
        }
        for layout in layouts
    ]  # fmt: skip


def trainable(graph: Graph, features: int = 128, classes: int = 40, seed: int = 0) -> Graph:
    """The graph with random features and labels where it brings none: epochs take as long with any numbers.
    One with labels alone is split.

    >>> trainable(Graph.from_arcs([0, 1], [1, 2])).num_features
    128
    """
    if graph.num_features and graph.labels is not None:
        return graph if graph.train_mask is not None else split(graph, 0.6, 0.2, seed)
    made = torch.Generator().manual_seed(seed)
    x = torch.rand(graph.num_nodes, features, generator=made)
    y = torch.randint(classes, (graph.num_nodes,), generator=made)
    return split(graph.replace(features=x, labels=y, num_classes=classes), 0.6, 0.2, seed)


def furnished(name: str, features: int, classes: int = 16, seed: int = 0) -> Graph:
    """The graph with random features of this width, whatever it brings: words and seconds of a batch do not
    depend on the numbers. Its own labels and split stay, as they say which vertices are seeds; without
    labels it gets random ones, without a split a random one.

    >>> graph = furnished("karate", 5)
    >>> graph.num_features, graph.num_classes
    (5, 2)
    >>> furnished("er:nodes=9", 3, 4).num_classes
    4
    """
    kind, _, given = name.partition(":")
    if kind.lower() in GENERATORS and "features" in inspect.signature(GENERATORS[kind.lower()]).parameters:
        return load(f"{kind}:{given}{',' if given else ''}features={features},classes={classes}")
    graph = load(name)
    made = torch.Generator().manual_seed(seed)
    check_fits(4 * graph.num_nodes * features, f"features of width {features}")
    graph = graph.replace(features=torch.rand(graph.num_nodes, features, generator=made))
    if graph.labels is None:
        labels = torch.randint(classes, (graph.num_nodes,), generator=made)
        graph = graph.replace(labels=labels, num_classes=classes)
    return graph if graph.train_mask is not None else split(graph, 0.6, 0.2, seed)


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
    more: Sequence[str] = (), engine: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    ranks, threads, strategy, _ = layout
    return trained(store, out, engine=engine, options=[
        "--strategy", strategy, "--partition", partition,
        "--ranks", str(ranks), "--threads", str(threads), "--layers", str(layers), "--hidden", str(hidden),
        "--dropout", "0", "--epochs", str(epochs), "--evaluate-every", str(epochs), *more,
    ])  # fmt: skip


def trained(store: Path, out: Path, options: Sequence[str], engine: str = "auto") -> dict[str, Any]:
    """What `weft train STORE --json` answers with these options, in processes of its own; of the engine
    `threads` in this one, and without a run folder."""
    if engine == "threads":
        return _in_threads(store, options)
    options = [*options, *([] if engine == "auto" else ["--engine", engine])]
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


def _in_threads(store: Path, options: Sequence[str]) -> dict[str, Any]:
    flags = {field.flag: path for path, field in fields().items() if field.flag}
    config, words = RunConfig(), iter(options)
    for word in words:
        negated = word.replace("--no-", "--", 1)
        path = flags[word if word in flags else negated]
        if isinstance(fields()[path].of(config), bool):
            update(config, path, word == negated)
        else:
            update(config, path, next(words))

    def work(comm: Communicator) -> dict[str, Any]:
        trainer = Trainer(open_store(store, verify=False), config, comm)
        result = trainer.fit()
        if config.train.trace and result.watch is not None:
            write_trace(result.watch, config.train.trace)
        return result.as_dict() | result.gather(trainer)

    return run_ranks(work, config.parallel.ranks, "threads")[0]


def _baseline(
    store: Path, layout: Layout, partition: str, layers: int, hidden: int, epochs: int, blocking: int,
    engine: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    ranks, threads, name, _ = layout
    parts = torch.from_numpy(np.load(partition, allow_pickle=False))
    if engine == "auto":
        engine = "mpi" if find_mpirun() else "torch"
    answers = run_ranks(
        train_baseline, ranks, engine, str(store), parts, name, hidden, layers, epochs, blocking,
        threads=None if engine == "threads" else threads, stall_seconds=600,
    )  # fmt: skip

    def by_rank(key: str) -> dict[str, list[float]]:
        kinds = dict.fromkeys(kind for answer in answers for kind in answer[key])
        return {kind: [answer[key].get(kind, 0) for answer in answers] for kind in kinds}

    seconds = max(answer["epoch_seconds"] for answer in answers)
    return {"epoch_seconds": seconds, "words": by_rank("words"), "time": by_rank("time")}

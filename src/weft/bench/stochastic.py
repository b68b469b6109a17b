"""Random mini-batches under several partitions, as Demirci et al.'s Figure 5 compares them: their volume, and
the time of steps on them."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..comm import Communicator, run_ranks
from ..comm.launch import find_mpirun
from ..graph import Graph, open_store, write_store
from ..partition import PartitionOptions, batch_volume, partition_graph, uniform_batches
from ..train import RunConfig, Trainer
from .ranks import trainable

FRESH = 1 << 40
"""Seeds of the batches that are measured: none was seen when the parts were made."""


@dataclass(frozen=True)
class Steps:
    """How steps are timed: `batches` of each partition, in turn, on a rank a part."""

    batches: int = 10
    hidden: int = 16
    layers: int = 2
    engine: str = "auto"
    """auto: mpi where it is, else torch; threads: virtual ranks, whose seconds say little."""

    def timed(self, ranks: int) -> bool:
        """Whether so many ranks can be timed here: at most two for each core.

        >>> Steps(batches=0).timed(1), Steps(engine="threads").timed(1000), Steps().timed(1)
        (False, True, True)
        """
        crowded = ranks > 2 * len(os.sched_getaffinity(0)) and self.engine != "threads"
        return self.batches > 0 and not crowded


def bench_stochastic(
    graph: Graph,
    parts: int,
    methods: Sequence[tuple[str, str, PartitionOptions]],
    fresh: int,
    size: int,
    fanouts: Sequence[int],
    steps: Steps = Steps(batches=0),  # noqa: B008 - frozen
) -> list[dict[str, Any]]:
    """A row per (label, method, options): mean volume of `fresh` batches with a 95 % interval, and the ratio
    to the first row's with an interval of its own: both saw the same batches, so it is one of pairs.

    step_seconds   the median step on such batches (`--batching subgraph --subgraph seeds`), the slowest
                   rank's, and step_ratio, the median over the batches of its time over the first row's; None
                   where so many ranks cannot be timed here
    """
    made, seconds = [], []
    for _, method, options in methods:
        started = time.perf_counter()
        made.append(partition_graph(graph, parts, method, options).numpy())
        seconds.append(time.perf_counter() - started)
    sampler = uniform_batches(graph, size, fanouts)
    volumes = np.empty((len(made), fresh))
    for batch in range(fresh):
        rows, columns = sampler(FRESH + batch)
        volumes[:, batch] = [batch_volume(rows, columns, each, parts) for each in made]
    taken = _steps(graph, made, size, fanouts, steps) if steps.timed(parts) else None
    answers = []
    for place, (label, method, _) in enumerate(methods):
        mean, half = _interval(volumes[place])
        ratio, spread = _ratio(volumes[place], volumes[0])
        answers.append(
            {
                "label": label, "method": method, "parts": parts, "batches": fresh, "mean": mean,
                "interval": half,
                "ratio": ratio, "ratio_interval": spread, "seconds": seconds[place],
                "step_seconds": None if taken is None else statistics.median(taken[place]),
                "step_ratio": None if taken is None else statistics.median(
                    ours / base for ours, base in zip(taken[place], taken[0], strict=True)
                ),
            }
        )  # fmt: skip
    return answers


def _steps(
    graph: Graph, made: Sequence[np.ndarray], size: int, fanouts: Sequence[int], steps: Steps
) -> list[list[float]]:
    """Seconds of each batch under each partition, the slowest rank's; one start of ranks for all of them."""
    engine = steps.engine
    if engine == "auto":
        engine = "mpi" if find_mpirun() else "torch"
    full = trainable(graph)
    everybody = torch.ones(graph.num_nodes, dtype=torch.bool, device="cpu")
    full = full.replace(train_mask=everybody, val_mask=~everybody, test_mask=~everybody)
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        store = str(write_store(full, Path(folder) / "g.weft"))
        del full
        files = [str(Path(folder) / f"{number}.npy") for number in range(len(made))]
        for path, each in zip(files, made, strict=True):
            np.save(path, each)
        told = ",".join("all" if fanout < 0 else str(fanout) for fanout in fanouts)
        found: list[list[float]] = run_ranks(
            "weft.bench.stochastic:measure", int(max(each.max() for each in made)) + 1, engine, store, files,
            size, told, asdict(steps), stall_seconds=600,
        )[0]  # fmt: skip
    return found


def measure(
    comm: Communicator, store: str, files: list[str], size: int, fanouts: str, steps: dict[str, Any]
) -> list[list[float]]:
    """On a rank: steps on the same subgraphs under each partition, taken in turn; the first warms up."""
    if comm.engine != "threads":
        torch.set_num_threads(1)
    trainers = [_trainer(comm, store, path, size, fanouts, steps) for path in files]
    seconds: list[list[float]] = [[] for _ in files]
    for turn in range(1 + steps["batches"]):
        for trainer, mine in zip(trainers, seconds, strict=True):
            comm.barrier()
            started = time.perf_counter()
            trainer.train(trainer.task.epoch(1 + turn, 1))  # an epoch's first batch: others each epoch
            took = max(comm.all_gather_json(time.perf_counter() - started))
            if turn:
                mine.append(took)
    return seconds


def _trainer(
    comm: Communicator, store: str, parts: str, size: int, fanouts: str, steps: dict[str, Any]
) -> Trainer:
    config = RunConfig()
    config.model.hidden, config.model.layers, config.model.dropout = steps["hidden"], steps["layers"], 0.0
    config.batch.batching, config.batch.subgraph = "subgraph", "seeds"
    config.batch.batch_size, config.batch.fanouts = size, fanouts
    config.parallel.strategy, config.parallel.partition = "halo", parts
    return Trainer(open_store(store, verify=False), config, comm)


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The mean, and half of its 95 % interval.

    >>> _interval(np.array([1.0, 1.0, 1.0]))
    (1.0, 0.0)
    """
    half = 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), half


def _ratio(values: np.ndarray, base: np.ndarray) -> tuple[float, float]:
    """mean(values) / mean(base) and half of its 95 % interval, by the residuals values − ratio · base."""
    ratio = float(values.sum() / base.sum())
    return ratio, _interval(values - ratio * base)[1] / float(base.mean())

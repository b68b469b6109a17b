"""Batches with and without the pipeline, each with and without samples drawn ahead: seconds, and waits."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..comm import Communicator, run_ranks
from ..graph import Graph, Store, load, open_store, write_store
from ..train import RunConfig, Trainer
from ..train.sampled import Sampled


@dataclass(frozen=True)
class Task:
    """What is measured on every number of ranks."""

    batch_size: int
    fanouts: str
    model: str
    hidden: int
    feed: str
    ahead: int
    """Batches whose samples are drawn ahead, where they are."""
    batches: int
    """Batches a round."""
    rounds: int


def bench_pipeline(graph: str, ranks: Sequence[int], task: Task, engine: str) -> list[dict[str, Any]]:
    """A row for each number of ranks, pipeline or not, prefetch or not; the four ways take turns.

    seconds   of a batch, the slowest rank's, median of the rounds
    drawing   seconds that its samples took, whoever drew;   waiting  that the batch waited for them
    """
    loaded = load(graph)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        store = str(write_store(loaded, Path(folder) / "g.weft"))
        del loaded
        for size in ranks:
            answers = run_ranks(
                "weft.bench.pipeline:measure", size, engine, store, asdict(task), stall_seconds=600
            )
            rows += _rows(answers, task)
    return rows


def join_pipeline(comm: Communicator, graph: Graph | Store, task: Task) -> list[dict[str, Any]]:
    """The same rows on ranks that somebody started, which may lie on several hosts; every rank calls it."""
    return _rows(comm.all_gather_json(_measure(comm, graph, asdict(task))), task)


def _rows(answers: Sequence[list[dict[str, Any]]], task: Task) -> list[dict[str, Any]]:
    """A row for each way, of what every rank measured."""
    rows = []
    for number, row in enumerate(answers[0]):
        each = [answer[number] for answer in answers]
        assert all(r["losses"] == row["losses"] for r in each)
        slowest = {
            key: statistics.median(max(r[key][k] for r in each) for k in range(task.rounds))
            for key in ("seconds", "drawing", "waiting")
        }
        rows.append({"ranks": len(answers), **{k: row[k] for k in ("pipeline", "prefetch")}, **slowest})
    same = [row["losses"] for row in answers[0]]
    assert same[0] == same[1], "samples drawn ahead changed a loss"
    assert same[2] == same[3], "samples drawn ahead changed a loss of the pipeline"
    return rows


def measure(comm: Communicator, store: str, task: dict[str, Any]) -> list[dict[str, Any]]:
    """On a rank that was started for it."""
    return _measure(comm, open_store(store, verify=False), task)


def _measure(comm: Communicator, source: Graph | Store, task: dict[str, Any]) -> list[dict[str, Any]]:
    """On a rank: the four ways, taken in turn."""
    if comm.engine != "threads":
        torch.set_num_threads(1)
    ways = list(itertools.product((False, True), (0, task["ahead"])))
    trainers = [_trainer(comm, source, task, *way) for way in ways]
    rows: list[dict[str, Any]] = [
        {"pipeline": pipeline, "prefetch": ahead, "seconds": [], "drawing": [], "waiting": [], "losses": []}
        for pipeline, ahead in ways
    ]
    for round_ in range(1 + task["rounds"]):  # the first warms up
        for row, trainer in zip(rows, trainers, strict=True):
            assert isinstance(trainer.encoder, Sampled)
            ahead, batches = trainer.encoder.ahead, min(task["batches"], trainer.task.steps)
            drew, waited = ahead.drawing, ahead.waiting
            comm.barrier()
            started = time.perf_counter()
            loss = comm.all_reduce(trainer.train(trainer.task.epoch(1 + round_, batches)).view(1))
            seconds = time.perf_counter() - started
            row["losses"].append(float(loss))
            if round_:
                spent = {
                    "seconds": seconds,
                    "drawing": ahead.drawing - drew,
                    "waiting": ahead.waiting - waited,
                }
                for key, value in spent.items():
                    row[key].append(value / batches)
    return rows


def _trainer(
    comm: Communicator, source: Graph | Store, task: dict[str, Any], pipeline: bool, ahead: int
) -> Trainer:
    config = RunConfig()
    config.model.name, config.model.hidden = task["model"], task["hidden"]
    config.model.layers = task["fanouts"].count(",") + 1
    config.batch.batch_size, config.batch.fanouts = task["batch_size"], task["fanouts"]
    config.batch.feed, config.batch.pipeline, config.batch.prefetch = task["feed"], pipeline, ahead
    return Trainer(source, config, comm)

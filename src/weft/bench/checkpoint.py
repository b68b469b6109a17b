"""What a checkpoint costs: how long training waits for it, what it slows, its size, and the time to go on."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ..comm.threads import single
from ..graph import Graph, hold_out, split
from ..train import RunConfig, RunFolder, Trainer
from ..train.checkpoint import Checkpoint, checkpoints, newest
from ..train.state import State

WORKS = ("whole", "batches", "links")
_WIDTH = 64
"""Of embeddings."""


def bench_checkpoint(
    graph: Graph, works: list[str], epochs: int, every: int, seed: int = 0
) -> list[dict[str, Any]]:
    """A row for each kind of work: GCN on the whole graph, GraphSAGE in batches, links with embeddings.

    Every `every`-th epoch is kept, so epochs beside which a checkpoint is copied and written take turns with
    epochs that have none: `slower` is the ratio of their medians. `stall` is what training waited: for the
    checkpoint before and for the copy.
    """
    return [_measure(graph, work, epochs, every, seed) for work in works]


def _config(work: str, epochs: int, every: int, seed: int) -> RunConfig:
    config = RunConfig()
    config.train.epochs, config.train.seed, config.parallel.ranks = epochs, seed, 1
    config.train.checkpoint_every, config.train.evaluate_every = str(every), epochs
    if work == "batches":
        config.model.name, config.batch.batch_size = "sage", 1000
    if work == "links":
        config.train.task, config.link.embedding_width = "link", _WIDTH
        config.model.name = "sage"
    return config


def _measure(graph: Graph, work: str, epochs: int, every: int, seed: int) -> dict[str, Any]:
    prepared = hold_out(graph, 0.05, 0.05, seed) if work == "links" else split(graph, 0.6, 0.2, seed)
    config = _config(work, epochs, every, seed)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=".") as scratch:
        config.train.out = f"{scratch}/run"
        trainer = Trainer(prepared, config)
        seconds: list[float] = []
        with RunFolder.create(config) as folder:
            result = trainer.fit(folder, lambda record: seconds.append(record["seconds"]))
            kept = checkpoints(folder.path)[0]
            size, resumed = Checkpoint(kept).bytes, _resume(trainer, folder.path)
    # An epoch beside a checkpoint is the one that follows it; the first two warm up.
    beside = [s for epoch, s in enumerate(seconds, 1) if epoch > 2 and (epoch - 1) % every == 0]
    alone = [s for epoch, s in enumerate(seconds, 1) if epoch > 2 and (epoch - 1) % every]
    epoch = statistics.median(alone)
    stall = statistics.median(result.stalls[1:] or result.stalls)
    learned = trainer.encoder.features.learned
    return {
        "work": work, "epoch_seconds": epoch, "stall_seconds": stall, "stall": stall / epoch,
        "slower": statistics.median(beside) / epoch, "bytes": size,
        "model_bytes": sum(p.numel() * p.element_size() for p in trainer.model.parameters()),
        "embedding_bytes": 0 if learned is None else learned.numel() * learned.element_size(),
        "resume_seconds": resumed, "checkpoints": len(result.stalls), "every": every,
    }  # fmt: skip


def _resume(trainer: Trainer, run: Path) -> float:
    """Seconds to find the newest checkpoint, compare its checksums, and take it."""
    started = time.perf_counter()
    found, _ = newest(single(), run)
    assert found is not None
    State(trainer).put(found)
    return time.perf_counter() - started

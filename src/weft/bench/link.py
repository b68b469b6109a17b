"""Link prediction over several seeds: each metric's mean and spread."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..graph import Graph
from ..train import RunConfig, Trainer


def leaderboard(config: RunConfig) -> RunConfig:
    """The settings of OGB's GraphSAGE baseline for ogbl-ddi.

    Two layers of 256, learnable embeddings, an mlp of two layers over the product of the ends; Adam with
    0.005, gradients clipped to norm 1; 64k pairs a step, 200 epochs, an evaluation every 5; the best
    validation Hits@20 chooses the epoch.
    """
    config.data.graph, config.model.name, config.model.hidden = "ogbl-ddi", "sage", 256
    config.train.task, config.train.lr, config.train.weight_decay = "link", 0.005, 0.0
    config.train.clip_norm, config.train.epochs, config.train.evaluate_every = 1.0, 200, 5
    config.parallel.ranks = 1
    return config


def bench_link(
    graphs: Callable[[RunConfig], Graph],
    config: RunConfig,
    seeds: int,
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None,
) -> Iterator[dict[str, Any]]:
    """One run a seed, from the config's seed on: its metrics at the best validation epoch.

    `graphs(config)` loads the graph, with edges held out by the seed where it brings no pairs.
    """
    for seed in range(config.train.seed, config.train.seed + seeds):
        made = copy.deepcopy(config)
        made.train.seed = seed
        started = time.perf_counter()
        result = Trainer(graphs(made), made).fit(on_epoch=lambda r, s=seed: on_epoch({"seed": s, **r}))  # type: ignore[misc]
        yield {
            "seed": seed, **result.scores, "best_epoch": result.best_epoch, "epochs": len(result.loss),
            "epoch_seconds": result.epoch_seconds, "seconds": time.perf_counter() - started,
            "interrupted": result.interrupted,
        }  # fmt: skip
        if result.interrupted:
            return


def spread(values: list[float]) -> tuple[float, float]:
    """(mean, standard deviation); the latter is nan of fewer than two.

    >>> spread([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else float("nan")

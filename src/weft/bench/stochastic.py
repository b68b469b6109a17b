"""The volume of random mini-batches under several partitions, as Demirci et al.'s Figure 5 compares them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import Graph
from ..partition import PartitionOptions, batch_volume, partition_graph, uniform_batches

FRESH = 1 << 40
"""Seeds of the batches that are measured: none was seen when the parts were made."""


def bench_stochastic(
    graph: Graph,
    parts: int,
    methods: Sequence[tuple[str, str, PartitionOptions]],
    fresh: int,
    size: int,
    fanouts: Sequence[int],
) -> list[dict[str, Any]]:
    """A row per (label, method, options): mean volume of `fresh` batches with a 95 % interval, and the ratio
    to the first row's with an interval of its own: both saw the same batches, so it is one of pairs."""
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
    answers = []
    for place, (label, method, _) in enumerate(methods):
        mean, half = _interval(volumes[place])
        ratio, spread = _ratio(volumes[place], volumes[0])
        answers.append(
            {
                "label": label, "method": method, "parts": parts, "batches": fresh, "mean": mean,
                "interval": half,
                "ratio": ratio, "ratio_interval": spread, "seconds": seconds[place],
            }
        )  # fmt: skip
    return answers


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

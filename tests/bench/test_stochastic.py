from __future__ import annotations

import numpy as np
import pytest

from weft.bench import stochastic
from weft.bench.stochastic import FRESH, Steps, _ratio, bench_stochastic
from weft.graph import karate
from weft.partition import PartitionOptions, batch_volume, partition_graph, uniform_batches


def test_means_are_those_of_the_fresh_batches_and_the_first_is_the_base():
    graph, options = karate(), PartitionOptions(batch_size=8, batches=5)
    methods = [("plain", "hypergraph", options), ("sampled", "stochastic", options)]
    plain, sampled = bench_stochastic(graph, 3, methods, 12, 8, [-1])
    parts = partition_graph(graph, 3, "hypergraph", options).numpy()
    batches = [uniform_batches(graph, 8)(FRESH + b) for b in range(12)]
    wanted = [batch_volume(rows, columns, parts, 3) for rows, columns in batches]
    assert plain["mean"] == np.mean(wanted)
    assert plain["interval"] == pytest.approx(1.96 * np.std(wanted, ddof=1) / 12**0.5)
    assert (plain["ratio"], plain["ratio_interval"]) == (1, 0)
    assert sampled["ratio"] == pytest.approx(sampled["mean"] / plain["mean"])


def test_steps_are_timed_under_each_partition_and_compared_with_the_first(monkeypatch):
    options = PartitionOptions(batch_size=8)
    methods = [("plain", "metis", options), ("random", "random", options)]
    answered = []
    real = stochastic._steps
    monkeypatch.setattr(stochastic, "_steps", lambda *told: answered.append(real(*told)) or answered[-1])
    plain, random = bench_stochastic(karate(), 3, methods, 4, 8, [3, -1], Steps(5, engine="threads"))
    [[mine, others]] = answered
    assert len(mine) == len(others) == 5
    assert plain["step_ratio"] == 1
    assert random["step_seconds"] == np.median(others) > 0
    assert random["step_ratio"] == np.median(np.array(others) / np.array(mine))


def test_more_ranks_than_two_for_each_core_are_not_timed():
    options = PartitionOptions(batch_size=8)
    [row] = bench_stochastic(karate(), 30, [("random", "random", options)], 4, 8, [-1], Steps(batches=0))
    assert row["step_seconds"] is row["step_ratio"] is None
    assert not Steps(5).timed(1 << 20)


def test_the_interval_of_a_ratio_covers_the_truth_about_95_times_of_100():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        base = rng.normal(100, 10, 200)
        ratio, half = _ratio(0.9 * base + rng.normal(0, 3, 200), base)
        hits += abs(ratio - 0.9) <= half
    assert 0.92 <= hits / 400 <= 0.98

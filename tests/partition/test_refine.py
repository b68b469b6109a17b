"""Moves after a cut: what they count is what `measure` counts, and the slowest part gets faster."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import Graph, er, kronecker
from weft.partition import measure, partition_graph
from weft.partition.best import choose
from weft.partition.methods import PartitionOptions
from weft.partition.refine import State, refine


def hubs(parts: int, each: int) -> tuple[Graph, np.ndarray]:
    """`each` hubs that everybody reads, all in part 0; every part has arcs of its own."""
    n = 40 * parts
    owner = np.repeat(np.arange(parts), 40)
    rows = np.arange(n)
    near = (rows + 1) % 40 + 40 * owner
    source = np.concatenate([near, np.tile(np.arange(each), n)])
    target = np.concatenate([rows, np.repeat(rows, each)])
    return Graph.from_arcs(source, target), owner


def test_what_a_move_changes_is_what_counting_anew_finds():
    graph, draw = er(nodes=60, degree=5, directed=True), np.random.default_rng(0)
    state = State.of(graph, draw.integers(0, 5, 60), 5)
    for _ in range(100):
        v, q = int(draw.integers(60)), int(draw.integers(5))
        if q == state.owner[v]:
            continue
        state.move(v, q)
        counted = measure(graph, state.owner, 5)
        assert np.array_equal(counted.between, state.between)
        assert np.array_equal(counted.loads, state.loads)
        assert np.array_equal(counted.between.sum(0), state.received)
        assert np.array_equal(counted.volumes, state.sent)
    again = State.of(graph, state.owner, 5)
    assert np.array_equal(again.pins, state.pins)


def test_hubs_are_shared_out_at_next_to_no_volume():
    graph, owner = hubs(parts=8, each=8)
    before = measure(graph, owner, 8)
    after = measure(graph, refine(graph, owner, 8, epsilon=0.2, bound=20, message=0), 8)
    assert before.volume_max == 8 * 7
    assert after.volume_max <= 28  # one net of a hub is seven rows: no bound can be met exactly
    assert after.volume_total <= 1.1 * before.volume_total


def test_a_message_that_is_worth_much_is_not_sent():
    graph, owner = hubs(parts=8, each=8)
    dear = measure(graph, refine(graph, owner, 8, epsilon=0.2, bound=20, message=1000), 8)
    cheap = measure(graph, refine(graph, owner, 8, epsilon=0.2, bound=20, message=0), 8)
    assert dear.messages_total <= measure(graph, owner, 8).messages_total < cheap.messages_total


@pytest.mark.parametrize("method", ["random", "metis"])
def test_no_column_gets_worse_and_balance_stays(method):
    graph = kronecker(scale=9, degree=8).with_self_loops()
    options = PartitionOptions(epsilon=0.05)
    parts = partition_graph(graph, 8, method, options).numpy()
    before, after = measure(graph, parts, 8), measure(graph, refine(graph, parts, 8, options.epsilon), 8)
    assert after.volume_total < before.volume_total
    assert after.volume_max < before.volume_max
    assert after.messages_total <= before.messages_total
    assert after.imbalance <= max(before.imbalance, 0.051)


def test_the_same_seed_refines_alike():
    graph = er(nodes=80, degree=6, directed=True)
    parts = partition_graph(graph, 5, "random").numpy()
    one, two, other = (refine(graph, parts, 5, 0.1, seed) for seed in (3, 3, 4))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_best_is_nowhere_worse_than_what_it_began_with():
    pytest.importorskip("mtkahypar")
    graph = kronecker(scale=9, degree=8).with_self_loops()
    said: list[str] = []
    made = measure(graph, partition_graph(graph, 8, "best", PartitionOptions(say=said.append)), 8)
    first = [measure(graph, partition_graph(graph, 8, name), 8) for name in ("metis", "hypergraph", "random")]
    assert made.volume_max <= min(m.volume_max for m in first)
    assert any(line.startswith("best: ") for line in said)


def test_the_contender_whose_worst_column_is_best_is_taken():
    graph = er(nodes=60, degree=5, directed=True)
    costs = {name: measure(graph, partition_graph(graph, 4, name), 4) for name in ("random", "metis")}
    assert choose(costs) == "metis"

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.partition import PartitionOptions, batch_volume, partition_graph, stochastic, uniform_batches
from weft.partition.stochastic import OFTEN, nets_needed, stochastic_hypergraph

from .cases import communities


@pytest.mark.parametrize(("parts", "theta", "delta"), [(2, 0.3, 0.5), (8, 0.1, 0.5), (27, 0.1, 0.05)])
def test_the_number_of_nets_is_the_least_that_hoeffding_allows(parts, theta, delta):
    def failure(nets: int) -> float:
        return 2 * math.exp(-2 * nets * theta**2 / (parts - 1) ** 2)

    nets = nets_needed(parts, theta, delta)
    assert failure(nets) <= delta < failure(nets - 1)


def test_batches_are_drawn_until_the_bound_is_reached(monkeypatch):
    monkeypatch.setattr(stochastic, "OFTEN", 0)
    graph = communities()
    wanted = nets_needed(8, 0.3, 0.5)
    sizes: list[int] = []
    plain = uniform_batches(graph, 40)

    def counting(seed: int) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = plain(seed)
        sizes.append(len(np.unique(columns)))
        return rows, columns

    _, batches = stochastic_hypergraph(graph, counting, 8, 0.3, 0.5, seed=0)
    assert batches == len(sizes)
    assert sum(sizes) >= wanted > sum(sizes[:-1])


@pytest.mark.parametrize("room", [1 << 26, 1000])
def test_batches_are_drawn_until_a_vertex_was_in_twelve_unless_they_are_too_large(room, monkeypatch):
    """θ = 3: the bound alone asks for one batch."""
    monkeypatch.setattr(stochastic, "_PINS", room)
    graph = communities()
    drawn: list[np.ndarray] = []
    plain = uniform_batches(graph, 40)

    def listing(seed: int) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = plain(seed)
        drawn.append(rows)
        return rows, columns

    _, batches = stochastic_hypergraph(graph, listing, 8, 3.0, 0.5, seed=0)

    def enough(some: list[np.ndarray]) -> bool:
        times = np.bincount(np.concatenate([np.unique(rows) for rows in some]))
        return times[times > 0].mean() >= OFTEN or sum(map(len, some)) >= room

    assert batches == len(drawn) > 1
    assert enough(drawn)
    assert not enough(drawn[:-1])


def test_few_batches_are_few_where_they_are_asked_for():
    graph = communities()
    assert stochastic_hypergraph(graph, uniform_batches(graph, 40), 8, 0.1, 0.5, 0, batches=2)[1] == 2


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_batch_has_every_arc_into_vertices_that_its_layers_compute(hops):
    graph = communities()
    rows, columns = uniform_batches(graph, 5, [-1] * hops)(7)
    reached = set(np.random.default_rng(7).choice(400, 5, replace=False).tolist())
    computed: set[int] = set()
    for _ in range(hops):
        computed |= reached
        reached = {int(c) for v in reached for c in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    wanted = {(v, int(c)) for v in computed for c in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == wanted
    assert len(rows) == len(wanted)


def test_fan_outs_pick_so_many_neighbours_at_most_and_only_neighbours():
    graph = communities()
    rows, columns = uniform_batches(graph, 50, [2, 3])(1)
    first = set(np.random.default_rng(1).choice(400, 50, replace=False).tolist())
    arcs = set(zip(graph.rows.tolist(), graph.indices.tolist(), strict=True))
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) <= arcs
    degrees = graph.indptr.diff()
    for vertex, count in zip(*np.unique(rows, return_counts=True), strict=True):
        assert count == min(2 if int(vertex) in first else 3, int(degrees[vertex]))
    again = uniform_batches(graph, 50, [2, 3])(1)
    assert (again[1] == columns).all()


def test_another_sampler_is_used():
    graph, seeds = communities(), []

    def sampler(seed: int) -> tuple[np.ndarray, np.ndarray]:
        seeds.append(seed)
        return graph.rows.numpy()[:50], graph.indices.numpy()[:50]

    partition_graph(graph, 4, "stochastic", PartitionOptions(sampler=sampler, batches=3))
    assert len(set(seeds)) == 3


def test_fresh_batches_move_less_under_the_stochastic_hypergraph_than_under_random():
    graph = communities()
    options = PartitionOptions(batch_size=80, batches=30)
    sampler = uniform_batches(graph, 80)
    mean = {}
    for method in ("random", "stochastic"):
        parts = partition_graph(graph, 8, method, options).numpy()
        mean[method] = np.mean([batch_volume(*sampler(10**6 + s), parts, 8) for s in range(20)])
    assert mean["stochastic"] < 0.6 * mean["random"]

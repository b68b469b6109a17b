from __future__ import annotations

import builtins
import re
import sys

import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, karate
from weft.partition import METHODS, PRESETS, PartitionOptions, check_method, measure, partition_graph
from weft.partition.methods import pick

from .cases import communities


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_every_method_gives_every_vertex_a_part(method, parts):
    made = partition_graph(communities(), parts, method)
    assert made.dtype == torch.int64
    assert made.shape == (400,)
    assert 0 <= int(made.min()) <= int(made.max()) < parts


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats_the_parts(method):
    first, again = (partition_graph(communities(), 5, method, PartitionOptions(seed=3)) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("method", ["random", "hash", "stochastic"])
def test_another_seed_gives_other_parts(method):
    first, other = (partition_graph(communities(), 5, method, PartitionOptions(seed=s)) for s in (3, 4))
    assert not torch.equal(first, other)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_finds_the_communities(preset):
    parts = partition_graph(communities(), 8, "hypergraph", PartitionOptions(preset=preset, epsilon=0.1))
    random = partition_graph(communities(), 8, "random")
    volumes = [measure(communities(), p, 8).volume_total for p in (parts, random)]
    assert volumes[0] < 0.6 * volumes[1]


def test_the_hypergraph_moves_no_more_than_metis_and_both_much_less_than_random():
    volume = {
        method: measure(communities(), partition_graph(communities(), 8, method), 8).volume_total
        for method in ("random", "metis", "hypergraph")
    }
    assert volume["hypergraph"] <= 1.02 * volume["metis"]
    assert volume["metis"] < 0.6 * volume["random"]


@pytest.mark.parametrize("method", ["metis", "hypergraph", "stream"])
def test_parts_are_of_even_work(method):
    found = measure(communities(), partition_graph(communities(), 4, method), 4)
    assert found.imbalance <= 0.03 + 1e-9


@pytest.mark.parametrize("method", ["metis", "hypergraph", "stochastic", "stream"])
def test_an_epsilon_that_cannot_be_met_says_what_was_reached(method):
    star = Graph.from_arcs(range(1, 30), [0] * 29)  # row 0 is half of all nonzeros
    told: list[str] = []
    parts = partition_graph(star, 4, method, PartitionOptions(epsilon=0.01, batch_size=30, say=told.append))
    reached = measure(star, parts, 4).imbalance
    assert reached > 0.5
    assert told[-1] == (
        f"{method}: epsilon 0.01 was not met, {reached:.4g} was reached; "
        "one row alone is 2.03 times the mean of a part"
    )


@pytest.mark.parametrize("method", METHODS)
def test_vertices_without_arcs_are_shared_out(method):
    parts = partition_graph(Graph.from_arcs([0], [1], 9), 3, method, PartitionOptions(batches=2))
    assert parts.numel() == 9
    assert len(set(parts.tolist())) > 1


def test_the_estimate_of_memory_is_said_before_anything_is_cut():
    told: list[str] = []
    partition_graph(communities(), 4, "hypergraph", PartitionOptions(say=told.append))
    assert "nets" in told[0]
    assert re.search(r"about [\d.]+ [kMG]?B; 4 parts", told[0])


def test_a_graph_too_large_for_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr("weft.graph.guard.machine_bytes", lambda: 1000)
    for method in ("metis", "hypergraph"):
        with pytest.raises(UserError, match="needed, more than the"):
            partition_graph(communities(), 4, method)


@pytest.mark.parametrize(
    ("method", "parts", "options", "message"),
    [
        ("metsi", 2, {}, "unknown partition method 'metsi'. Did you mean 'metis'?"),
        ("block", 0, {}, "0 parts were asked for. Use --parts 1 or more."),
        ("metis", 35, {}, "35 parts are more than the graph's 34 vertices. Use --parts 34 or fewer."),
        ("metis", 2, {"epsilon": -0.1}, "epsilon must be 0 or more, not -0.1."),
        ("metis", 2, {"epsilon": float("nan")}, "epsilon must be 0 or more, not nan."),
        ("hypergraph", 2, {"preset": "fast"}, "unknown preset 'fast'."),
        ("stochastic", 2, {"theta": 0}, "theta must be above 0, not 0."),
        ("stochastic", 2, {"delta": 1}, "delta must lie between 0 and 1, not 1."),
        ("stochastic", 2, {"batch_size": 35}, "batches of 35 of 34 vertices. Use 1 to 34."),
    ],
)
def test_mistakes_are_named(method, parts, options, message):
    with pytest.raises(UserError) as caught:
        partition_graph(karate(), parts, method, PartitionOptions(**options))
    assert str(caught.value).startswith(message)


def test_auto_takes_passes_where_metis_has_no_room(monkeypatch):
    graph = communities()
    monkeypatch.setattr("weft.partition.methods._HYPERGRAPH_PINS", 100)
    needed = 64 * graph.num_arcs + 100 * graph.num_nodes
    for free, wanted in ((needed, "metis"), (needed - 1, "stream")):
        monkeypatch.setattr("weft.partition.methods.free_bytes", lambda free=free: free)
        assert pick(graph, 4) == wanted


@pytest.mark.parametrize(("method", "module"), [("metis", "pymetis"), ("hypergraph", "mtkahypar")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(method, module, monkeypatch):
    load = builtins.__import__

    def without(name, *rest):
        if name == module:
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"need[s]? {module}. Use: pip install 'weft\[partition\]'"):
        check_method(method, 2, 34)
    assert partition_graph(karate(), 2, "auto").numel() == 34  # auto takes what is there

"""Parts made in passes over the rows: of a store as of a graph, as good as those that see all arcs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft.partition.stream as module
import weft.partition.walk as walking
from weft.errors import UserError
from weft.graph import Graph, load, open_store, write_store
from weft.partition import PartitionOptions, check_method, measure, measure_rows, partition_graph
from weft.partition.stream import stream
from weft.partition.walk import Walk

from .cases import communities


@pytest.mark.parametrize("parts", [2, 5, 16])
def test_a_store_gives_the_parts_of_its_graph(tmp_path: Path, parts):
    store = open_store(write_store(communities(), tmp_path / "g.weft"), verify=False)
    ours = stream(store, parts, buffer=97).part
    assert np.array_equal(ours, stream(communities(), parts, buffer=97).part)


@pytest.mark.parametrize("clusters", [1, 64])
def test_communities_are_found_by_small_pieces_of_the_graph(monkeypatch, clusters):
    """Also where most is left to clustering: at least one cluster a part instead of 64, 8 in all."""
    monkeypatch.setattr(module, "_CLUSTERS", clusters)
    monkeypatch.setattr(module, "_LEAST", 8)
    graph = communities()
    volume = {
        name: measure(graph, parts, 8).volume_total
        for name, parts in (
            ("stream", stream(graph, 8, 0.1, buffer=300).part),
            ("random", partition_graph(graph, 8, "random")),
        )
    }
    assert volume["stream"] < 0.6 * volume["random"]


def test_clusters_keep_to_their_size_and_who_reads_nothing_joins_a_reader():
    """A directed star of stars: 3 hubs, each reading 10 leaves that read nothing."""
    leaves = torch.arange(3, 33)
    graph = Graph.from_arcs(leaves, (leaves - 3) // 10, 33)
    walk = Walk.over(graph, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST", 2)
        patch.setattr(module, "_CLUSTERS", 1)
        label = module._clusters(walk, 2, passes=3, seed=0)
    for hub in range(3):
        assert set(label[3 + 10 * hub : 13 + 10 * hub].tolist()) == {int(label[hub])}
    count, weight, _ = module._contract(walk, label)
    assert count == 3
    assert weight.tolist() == [21] * 3  # 10 arcs and the loop, and a loop a leaf


def test_the_lightest_arcs_of_too_large_a_contraction_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "_COARSE_ARCS", 2)
    keys, times = module._merged(
        [np.array([3, 5]), np.array([5, 7, 9])], [np.array([1, 2]), np.array([2, 1, 3])]
    )
    assert keys.tolist() == [5, 9]
    assert times.tolist() == [4, 3]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12), st.integers(1, 7))
def test_stretches_of_rows_cover_all_and_keep_to_the_buffer(degrees, buffer, rows):
    n = len(degrees)
    arcs = [(c % max(n, 1), r) for r, d in enumerate(degrees) for c in range(min(d, n))]
    graph = Graph.from_arcs([c for c, _ in arcs], [r for _, r in arcs], n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walking, "_ROWS", rows)
        walk = Walk.over(graph, buffer)
    counts = graph.indptr.diff()
    seen = []
    for chunk in walk:
        assert chunk.begin < chunk.end
        assert int(counts[chunk.begin : chunk.end].sum()) <= buffer or chunk.end == chunk.begin + 1
        seen += list(range(chunk.begin, chunk.end))
        loops = graph.rows == graph.indices
        here = (graph.rows >= chunk.begin) & (graph.rows < chunk.end) & ~loops
        assert chunk.column.tolist() == graph.indices[here].tolist()
        own = torch.bincount(graph.rows[loops], minlength=n)[chunk.begin : chunk.end]
        assert chunk.weight.tolist() == (counts[chunk.begin : chunk.end] + 1 - own).tolist()
    assert seen == list(range(n))


@pytest.mark.parametrize("parts", [1, 3, 64, 70, 130])
def test_costs_counted_row_by_row_are_those_of_all_arcs(parts):
    graph = load("er:nodes=300,degree=6,directed=true,seed=2")
    owner = torch.randint(parts, (300,), generator=torch.Generator().manual_seed(1))
    ours, theirs = measure_rows(graph, owner, parts, buffer=50), measure(graph, owner, parts)
    assert np.array_equal(ours.between, theirs.between)
    assert np.array_equal(ours.loads, theirs.loads)
    assert np.array_equal(ours.sizes, theirs.sizes)
    assert ours.edge_cut == theirs.edge_cut


def test_what_it_takes_is_said_first():
    told: list[str] = []
    partition_graph(communities(), 4, "stream", PartitionOptions(say=told.append))
    assert told[0].startswith("stream: 400 vertices, ")
    assert " MB, " in told[0]
    assert told[0].endswith(" s")


@pytest.mark.parametrize("name", ["passes", "buffer"])
def test_no_passes_are_refused(name):
    with pytest.raises(UserError, match=f"{name} must be at least 1, not 0"):
        check_method("stream", 2, 34, PartitionOptions(**{name: 0}))

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
from weft.partition import PartitionOptions, check_method, measure, measure_rows, partition_graph, passes
from weft.partition.stream import foretold_bytes, stream
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST", 2)
        patch.setattr(module, "_CLUSTERS", 1)
        made = module._Passes(Walk.over(graph, 7), 2, extra=0, passes=3)
        label = made.clusters()
    for hub in range(3):
        assert set(label[3 + 10 * hub : 13 + 10 * hub].tolist()) == {int(label[hub])}
    count, weight, _ = made.contract(label)
    assert count == 3
    assert weight.tolist() == [21] * 3  # 10 arcs and the loop, and a loop a leaf


@pytest.mark.parametrize("extra", [0, 9])
@pytest.mark.parametrize(
    "graph", ["er:nodes=300,degree=5,directed=true,seed=3", "kronecker:scale=8,degree=6"]
)
def test_the_plain_loops_make_the_same_parts(monkeypatch, graph, extra):
    monkeypatch.setattr(module, "_LEAST", 24)
    monkeypatch.setattr(module, "_CLUSTERS", 4)
    monkeypatch.setattr(module, "_COUNTED", 60)
    monkeypatch.setattr(module, "_COARSE_ARCS", 40)
    graph = load(graph).with_self_loops()
    ours = stream(graph, 3, buffer=200, vertex_work=extra)
    metrics = measure_rows(graph, ours.part, 3, buffer=200)
    monkeypatch.setattr(passes, "extension", None)
    plain = stream(graph, 3, buffer=200, vertex_work=extra)
    assert np.array_equal(ours.part, plain.part)
    assert ours.balance[0].tolist() == plain.balance[0].tolist()
    assert ours.balance[1] == plain.balance[1]
    assert np.array_equal(metrics.between, measure_rows(graph, plain.part, 3, buffer=200).between)


@pytest.mark.parametrize("native", [True, False])
def test_the_lightest_arcs_of_too_large_a_contraction_are_left_out(monkeypatch, native):
    """Pairs (1, 2) three times, (0, 1) twice, (2, 3) once."""
    if not native:
        monkeypatch.setattr(passes, "extension", None)
    graph = Graph.from_arcs([4, 5, 1, 6, 1, 6, 3], [0, 0, 4, 1, 2, 5, 2], 7)
    label = np.array([0, 1, 2, 3, 1, 1, 2], dtype=np.int32)
    pairs, work = passes.Pairs(4, 10, 2), np.zeros(4, dtype=np.int64)
    for rows in Walk.over(graph, 100).raw():
        pairs.add(rows, 2, label, work)
    low, high, times = pairs.arcs()
    assert [*zip(low.tolist(), high.tolist(), times.tolist(), strict=True)] == [(0, 1, 2), (1, 2, 3)]
    assert work.sum() == 7 * 3 + 7


def test_parts_are_even_in_what_a_vertex_weighs():
    """A dense half and a sparse one: equal arcs give unequal vertices, vertices that weigh much do not."""
    dense, sparse = load("er:nodes=200,degree=40,seed=1"), load("er:nodes=800,degree=3,seed=1")
    graph = Graph.from_arcs(
        torch.cat([dense.indices.long(), sparse.indices.long() + 200]),
        torch.cat([dense.rows, sparse.rows + 200]), 1000,
    )  # fmt: skip
    uneven, even = (
        np.bincount(stream(graph, 4, 0.05, vertex_work=weight).part, minlength=4) for weight in (0, 1000)
    )
    assert even.max() <= 1.07 * 250
    assert uneven.max() > 1.3 * 250
    made = stream(graph, 4, 0.05, vertex_work=1000)
    assert made.balance[0].sum() == graph.num_arcs + 1000 * 1001 - int((graph.rows == graph.indices).sum())


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
    for rows in walk.raw():
        assert rows.begin < rows.end
        assert int(counts[rows.begin : rows.end].sum()) <= buffer or rows.end == rows.begin + 1
        seen += list(range(rows.begin, rows.end))
        for vertex, near in rows.each():
            whole = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()
            assert near.tolist() == [u for u in whole if u != vertex]
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


def test_memory_grows_with_vertices_alone_once_the_contracted_graph_is_full():
    small, large = foretold_bytes(10**6, 10**9), foretold_bytes(10**6, 10**11)
    assert small == large
    assert foretold_bytes(10**9, 10**9) - foretold_bytes(10**8, 10**9) < 18 * 9 * 10**8


def test_negative_work_of_a_vertex_is_refused():
    with pytest.raises(UserError, match="vertex-work must be at least 0, not -1"):
        check_method("stream", 2, 34, PartitionOptions(vertex_work=-1))

"""PyG: a round trip, and the few things a Data may hold that a graph cannot."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from weft.errors import Note, UserError
from weft.graph import Graph, from_pyg, karate, to_pyg


def test_a_round_trip_keeps_everything() -> None:
    pytest.importorskip("torch_geometric")
    graph = karate().replace(weights=torch.rand(156, generator=torch.Generator().manual_seed(0)))
    again = from_pyg(to_pyg(graph), name="karate")
    for key in ("indptr", "indices", "weights", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(again, key), getattr(graph, key))


def test_edge_index_goes_from_source_to_target() -> None:
    pytest.importorskip("torch_geometric")
    assert to_pyg(Graph.from_arcs([0, 2], [1, 1])).edge_index.tolist() == [[0, 2], [1, 1]]


def data(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, **fields)


def test_columns_many_labels_and_edge_attr_find_their_places() -> None:
    g = from_pyg(data(y=torch.tensor([[0], [1], [2]]), edge_attr=torch.tensor([[0.5], [2.0]])))
    assert g.labels.tolist() == [0, 1, 2]
    assert (g.weights, g.arc_data["features"].tolist()) == (None, [[0.5], [2.0]])
    assert from_pyg(data(y=torch.eye(3))).multilabel
    assert from_pyg(data(edge_weight=torch.tensor([[3.0], [4.0]]))).weights.tolist() == [3.0, 4.0]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="train_mask holds 10 splits"):
        from_pyg(data(train_mask=torch.zeros(3, 10, dtype=torch.bool)))
    with pytest.raises(UserError, match="no edge_index"):
        from_pyg(SimpleNamespace(num_nodes=3))


def test_without_torch_geometric_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(UserError, match="pip install"):
        to_pyg(karate())


def carrying() -> Graph:
    g = torch.Generator().manual_seed(1)
    return karate().replace(
        arc_data={
            "features": torch.rand(156, 3, generator=g), "type": torch.randint(4, (156,), generator=g),
            "time": torch.rand(156, generator=g, dtype=torch.float64),
        },
        vertex_data={"pos": torch.rand(34, 2, generator=g), "age": torch.arange(34)},
    )  # fmt: skip


def test_a_round_trip_keeps_what_arcs_and_vertices_carry() -> None:
    pytest.importorskip("torch_geometric")
    graph = carrying()
    made = to_pyg(graph)
    assert torch.equal(made.edge_attr, graph.arc_data["features"])
    assert torch.equal(made.edge_type, graph.arc_data["type"])
    assert torch.equal(made.edge_time, graph.arc_data["time"])
    again = from_pyg(made)
    for key in ("arc_data", "vertex_data"):
        ours, theirs = getattr(again, key), getattr(graph, key)
        assert set(ours) == set(theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_arcs_in_any_order_bring_their_data_along() -> None:
    pytest.importorskip("torch_geometric")
    graph, order = carrying(), torch.randperm(156, generator=torch.Generator().manual_seed(2))
    made = to_pyg(graph)
    for key in ("edge_attr", "edge_type", "edge_time"):
        made[key] = made[key][order]
    made.edge_index = made.edge_index[:, order]
    again = from_pyg(made)
    assert all(torch.equal(again.arc_data[name], x) for name, x in graph.arc_data.items())


def test_what_is_merged_or_left_out_is_said() -> None:
    twice = SimpleNamespace(
        edge_index=torch.tensor([[0, 0, 0], [1, 1, 2]]), num_nodes=3, edge_attr=torch.tensor([5.0, 6.0, 7.0]),
        edge_weight=torch.tensor([1.0, 2.0, 3.0]), note="words", edge_label=torch.zeros(9),
        broken=torch.tensor([1.0, float("nan"), 2.0]), edge_rating=torch.tensor([-1, 2, 0]),
    )  # fmt: skip
    with pytest.warns(Note) as said:
        g = from_pyg(twice)
    assert [str(w.message) for w in said] == [
        "from_pyg: 1 arc was given again and merged: weights are added up, of features, rating the first "
        "is kept; left out: note, edge_label, broken."
    ]
    assert (g.weights.tolist(), g.arc_data["features"].tolist()) == ([3.0, 3.0], [5.0, 7.0])
    assert g.arc_data["rating"].tolist() == [-1.0, 0.0]
    bare = SimpleNamespace(edge_index=torch.tensor([[0, 0], [1, 1]]), num_nodes=2)
    with pytest.warns(Note, match=r"1 arc was given again and merged\.$"):
        from_pyg(bare)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"edge_attr": torch.ones(3, 2)}, "arc data 'features' are 3x2 for 2 arcs"),
        ({"edge_type": torch.tensor([0, -1])}, "arc data 'type' hold -1 at arc 1"),
        ({"edge_attr": torch.tensor([1.0, float("nan")])}, "arc data 'features' hold nan"),
        ({"edge_type": torch.zeros(1, dtype=torch.int64)}, "arc data 'type' are 1 for 2 arcs"),
    ],
)
def test_edge_attr_and_edge_type_that_do_not_fit_are_errors(fields, words) -> None:
    with pytest.raises(UserError, match=words):
        from_pyg(data(**fields))


def test_vertex_data_that_pyg_would_misread_are_refused() -> None:
    pytest.importorskip("torch_geometric")
    with pytest.raises(UserError, match="vertex data 'x' cannot go to PyG"):
        to_pyg(karate().replace(vertex_data={"x": torch.ones(34)}))

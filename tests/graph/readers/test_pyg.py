"""PyG: a round trip, and the few things a Data may hold that a graph cannot."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from weft.errors import UserError
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
    assert (g.labels.tolist(), g.weights.tolist()) == ([0, 1, 2], [0.5, 2.0])
    assert from_pyg(data(y=torch.eye(3))).multilabel
    assert from_pyg(data(edge_attr=torch.ones(2, 4))).weights is None


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="train_mask holds 10 splits"):
        from_pyg(data(train_mask=torch.zeros(3, 10, dtype=torch.bool)))
    with pytest.raises(UserError, match="no edge_index"):
        from_pyg(SimpleNamespace(num_nodes=3))


def test_without_torch_geometric_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(UserError, match="pip install"):
        to_pyg(karate())

"""Graph: what it stores, what it refuses, and its algebra against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph import Graph


def dense(g: Graph) -> np.ndarray:
    """A[target, source], in float64."""
    a = np.zeros((g.num_nodes, g.num_nodes))
    values = torch.ones(g.num_arcs) if g.weights is None else g.weights
    a[g.rows.numpy(), g.indices.long().numpy()] = values.double().numpy()
    return a


@st.composite
def arcs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list[float] | None]:
    n = draw(st.integers(1, 9))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    weights = draw(
        st.none() | st.lists(st.integers(1, 8).map(float), min_size=len(pairs), max_size=len(pairs))
    )
    return n, pairs, weights


def make(given_arcs: tuple[int, list[tuple[int, int]], list[float] | None]) -> Graph:
    n, pairs, weights = given_arcs
    return Graph.from_arcs([s for s, _ in pairs], [t for _, t in pairs], n, weights)


@given(arcs())
def test_from_arcs_sums_duplicates_into_row_target_and_column_source(case) -> None:
    n, pairs, weights = case
    expected = np.zeros((n, n))
    for k, (source, target) in enumerate(pairs):
        expected[target, source] = 1 if weights is None else expected[target, source] + weights[k]
    g = make(case)
    assert np.array_equal(dense(g), expected)
    assert g.indptr.dtype == torch.int64
    assert g.indices.dtype == torch.int32


@given(arcs())
def test_transpose_symmetrise_and_loops_match_dense_algebra(case) -> None:
    g = make(case)
    a = dense(g)
    assert np.array_equal(dense(g.transposed()), a.T)
    assert np.array_equal(dense(g.symmetrised()), np.maximum(a, a.T))
    missing = np.diag(np.diag(a) == 0).astype(float)
    assert np.array_equal(dense(g.with_self_loops()), a + missing)
    assert np.array_equal(dense(g.without_self_loops()), a - np.diag(np.diag(a)))
    assert g.is_symmetric == np.array_equal(a, a.T)
    assert g.has_self_loops == bool(np.diag(a).any())


def test_symmetrised_keeps_a_negative_weight_that_has_no_partner() -> None:
    g = Graph.from_arcs([0], [1], weights=[-2.0]).symmetrised()
    assert g.weights.tolist() == [-2.0, -2.0]


def test_an_empty_graph_and_a_graph_without_vertices_are_graphs() -> None:
    empty = Graph.from_arcs([], [], 3)
    assert (empty.num_nodes, empty.num_arcs, empty.is_symmetric) == (3, 0, True)
    none = Graph.from_arcs([], [])
    assert (none.num_nodes, none.with_self_loops().num_arcs, none.num_classes) == (0, 0, 0)


def test_weights_keep_float64_and_numbers_become_float32() -> None:
    assert (
        Graph.from_arcs([0], [1], weights=torch.tensor([0.1], dtype=torch.float64)).weights.dtype
        == torch.float64
    )
    assert Graph.from_arcs([0], [1], weights=[1]).weights.dtype == torch.float32


def test_classes_come_from_labels_unless_given() -> None:
    labels = torch.tensor([0, -1, 2])
    assert Graph.from_arcs([0], [1], 3, labels=labels).num_classes == 3
    g = Graph.from_arcs([0], [1], 3, labels=labels, num_classes=5)
    assert g.num_classes == 5
    assert g.replace(name="again").num_classes == 5
    assert g.replace(labels=torch.tensor([0, 1, 1])).num_classes == 2


def test_zeros_and_ones_serve_as_bool_for_many_labels_and_masks() -> None:
    g = Graph.from_arcs(
        [0], [1], labels=torch.tensor([[1.0, 0, 1], [0, 0, 1]]), train_mask=torch.tensor([1, 0])
    )
    assert g.multilabel
    assert g.num_classes == 3
    assert g.labels.dtype == g.train_mask.dtype == torch.bool


def test_replace_keeps_the_other_tensors_and_validates_the_new_one() -> None:
    g = Graph.from_arcs([0], [1], features=torch.ones(2, 3))
    assert g.replace(name="x").features is g.features
    with pytest.raises(UserError, match="vertex 1 is nan"):
        g.replace(features=torch.tensor([[0.0], [float("nan")]]))
    with pytest.raises(TypeError, match="colour"):
        g.replace(colour=1)


def test_replacing_the_rows_still_compares_lengths_of_what_was_kept() -> None:
    g = Graph.from_arcs([0], [1], features=torch.ones(2, 3))
    with pytest.raises(UserError, match="features have shape 2x3; 3 vertices need 3xF"):
        g.replace(indptr=torch.tensor([0, 0, 1, 1]))


NAN, INF = float("nan"), float("inf")
T = torch.tensor


def pair(**rest: object) -> Graph:
    return Graph.from_arcs([0], [1], **rest)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Graph.from_arcs([0, -3], [1, 1]), "source id -3 is negative"),
        (lambda: Graph.from_arcs([0], [7], 5), r"vertex id 7 is out of range for 5 vertices \(0 to 4\)"),
        (lambda: Graph.from_arcs([0, 1], [1]), "2 sources but 1 targets"),
        (lambda: Graph.from_arcs([0.5], [1]), "source ids are 1-dimensional float64"),
        (lambda: pair(weights=[1.0, 2.0]), "2 weights for 1 arcs"),
        (lambda: pair(weights=[NAN]), "weight 0 is nan"),
        (lambda: pair(weights=["a"]), "weights are"),
        (lambda: Graph.from_arcs([0], [10**15]), "GB needed, more than"),
        (lambda: Graph(T([0, 2, 1]), T([0])), "indptr falls from 2 to 1 at row 1"),
        (lambda: Graph(T([1, 1]), T([0])), "indptr runs from 1 to 1 for 1 indices"),
        (lambda: Graph(T([0, 3]), T([0])), "indptr runs from 0 to 3 for 1 indices"),
        (lambda: Graph(T([0, 1]), T([4])), "vertex id 4 is out of range for 1 vertices"),
        (lambda: Graph(T([0, 1]), T([-1])), "vertex id -1 is out of range"),
        (lambda: Graph(T([0, 1]), T([2**40])), f"vertex id {2**40} is out of range"),
        (lambda: Graph(T([0, 2, 2]), T([1, 0])), "row 0 lists 0 after 1"),
        (lambda: Graph(T([0, 1, 3]), T([0, 1, 1])), "row 1 lists 1 after 1"),
        (lambda: Graph(T([0, 1]), T([0.0])), "indices are float32"),
        (lambda: Graph(T([], dtype=torch.int64), T([], dtype=torch.int64)), "must be lists"),
        (lambda: pair(features=torch.ones(3, 2)), "features have shape 3x2; 2 vertices need 2xF"),
        (lambda: pair(features=torch.ones(2)), "features have shape 2;"),
        (lambda: pair(features=T([[0.0, 1], [2, NAN]])), "feature 1 of vertex 1 is nan"),
        (lambda: pair(features=T([[0.0, -INF], [2, 3]])), "feature 1 of vertex 0 is -inf"),
        (lambda: pair(labels=T([0, 3]), num_classes=3), "label 3 of vertex 1 is outside .* 0 to 2"),
        (lambda: pair(labels=T([-2, 3])), "label -2 of vertex 0"),
        (lambda: pair(labels=T([0.0, 1.0])), "labels are float32"),
        (lambda: pair(labels=T([0])), "labels have shape 1; 2 vertices"),
        (lambda: pair(labels=T([[0, 1], [2, 0]])), "many labels a vertex need bool"),
        (lambda: pair(labels=torch.ones(2, 2) > 0, num_classes=3), "2 columns for 3 classes"),
        (lambda: pair(train_mask=T([1, 0]), test_mask=T([1, 1])), "vertex 0 is in train_mask and in test"),
        (lambda: pair(val_mask=T([True])), "val_mask is 1 bool; it must be 2 bool"),
        (lambda: pair(ids=T([5])), "1 ids for 2 vertices"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_in_one_line(build, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)

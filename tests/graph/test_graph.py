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


# Named arrays


def carrying(given_arcs: tuple[int, list[tuple[int, int]], list[float] | None]) -> Graph:
    """The arcs of a case, each with its number, once as it is and once in two columns."""
    n, pairs, weights = given_arcs
    number = torch.arange(len(pairs))
    return Graph.from_arcs(
        [s for s, _ in pairs], [t for _, t in pairs], n, weights,
        arc_data={"number": number, "wide": torch.stack([number, -number], 1).double()},
        vertex_data={"name": torch.arange(n)},
    )  # fmt: skip


def numbers(g: Graph) -> dict[tuple[int, int], int]:
    """(source, target) → the number that the arc carries."""
    assert torch.equal(g.arc_data["wide"][:, 0].long(), g.arc_data["number"])
    assert torch.equal(g.arc_data["wide"][:, 1], -g.arc_data["number"].double())
    keys = zip(g.indices.tolist(), g.rows.tolist(), strict=True)
    return dict(zip(keys, g.arc_data["number"].tolist(), strict=True))


@given(arcs())
def test_arc_data_stay_with_their_arcs_whatever_is_done_to_them(case) -> None:
    g = carrying(case)
    first: dict[tuple[int, int], int] = {}
    for k, pair in enumerate(case[1]):
        first.setdefault(pair, k)
    assert numbers(g) == first
    assert numbers(g.transposed()) == {(t, s): k for (s, t), k in first.items()}
    assert numbers(g.symmetrised()) == {(t, s): k for (s, t), k in first.items()} | first
    assert numbers(g.without_self_loops()) == {(s, t): k for (s, t), k in first.items() if s != t}
    assert torch.equal(g.symmetrised().vertex_data["name"], torch.arange(case[0]))
    assert dense(g.symmetrised()).tolist() == dense(make(case).symmetrised()).tolist()


@given(arcs())
def test_loops_carry_the_mean_of_their_row_and_a_type_of_their_own(case) -> None:
    g = carrying(case)
    looped = g.with_self_loops()
    pairs = list(zip(looped.indices.tolist(), looped.rows.tolist(), strict=True))
    before = numbers(g)
    top = max(before.values(), default=-1)
    for k, (source, target) in enumerate(pairs):
        wide, kind = looped.arc_data["wide"][k].tolist(), int(looped.arc_data["number"][k])
        if source != target:
            assert (kind, wide) == (before[source, target], [kind, -kind])
            continue
        others = [x for (s, t), x in before.items() if t == target != s]
        mean = sum(others) / len(others) if others else 0.0
        assert wide == pytest.approx([mean, -mean], rel=1e-14)
        assert kind == top + 1
    assert torch.equal(looped.arc_data["wide"], looped.with_self_loops().arc_data["wide"])
    assert len(pairs) == make(case).with_self_loops().num_arcs


def test_loops_of_small_integers_do_not_wrap_around() -> None:
    g = Graph.from_arcs([0], [1], arc_data={"kind": torch.tensor([255], dtype=torch.uint8)})
    assert g.with_self_loops().arc_data["kind"].tolist() == [256, 255, 256]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"time": [1.0]}, "arc data 'time' are 1 for 2 arcs"),
        ({"time": torch.zeros(2, 2, 2)}, "arc data 'time' are 2x2x2 for 2 arcs"),
        ({"time": torch.tensor(3.0)}, "arc data 'time' are one number for 2 arcs"),
        ({"time": [1.0, float("nan")]}, "arc data 'time' hold nan at arc 1"),
        ({"x": [[1.0, 2.0], [float("-inf"), 0.0]]}, "arc data 'x' hold -inf at arc 1"),
        ({"kind": [0, -3]}, "arc data 'kind' hold -3 at arc 1"),
        ({"time": torch.zeros(2, dtype=torch.complex64)}, "arc data 'time' are complex"),
        ({"time": ["a", "b"]}, "arc data 'time' are no array of numbers"),
        ({"my time": [1.0, 2.0]}, "cannot be named 'my time'"),
        ({"_time": [1.0, 2.0]}, "cannot be named '_time'"),
        ({"": [1.0, 2.0]}, "cannot be named ''"),
        ({3: [1.0, 2.0]}, "cannot be named 3"),
        ({"weights": [1.0, 2.0]}, "cannot be named 'weights': a graph has such a field"),
    ],
)
def test_arc_data_that_do_not_fit_are_refused_by_name(data, words) -> None:
    with pytest.raises(UserError, match=words):
        Graph.from_arcs([1, 0], [0, 1], arc_data=data)
    with pytest.raises(UserError, match=words):
        Graph.from_arcs([1, 0], [0, 1]).replace(arc_data=data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"age": [1.0]}, "vertex data 'age' are 1 for 2 vertices"),
        ({"age": [1.0, float("inf")]}, "vertex data 'age' hold inf at vertex 1"),
        ({"labels": [1, 2]}, "cannot be named 'labels'"),
    ],
)
def test_vertex_data_that_do_not_fit_are_refused_by_name(data, words) -> None:
    with pytest.raises(UserError, match=words):
        Graph.from_arcs([0, 1], [1, 0], vertex_data=data)


def test_types_of_named_arrays_are_kept_or_widened() -> None:
    kept = (torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    g = Graph.from_arcs([0], [1], arc_data={f"x{k}": torch.ones(1, dtype=t) for k, t in enumerate(kept)})
    assert [x.dtype for x in g.arc_data.values()] == list(kept)
    fixed = np.array([7.0])
    fixed.setflags(write=False)
    odd = {
        "half": torch.ones(1, dtype=torch.bfloat16), "flag": torch.ones(1, dtype=torch.bool),
        "big": np.array([3], dtype=">i4"), "unsigned": np.array([4], dtype=np.uint16), "fixed": fixed,
    }  # fmt: skip
    g = Graph.from_arcs([0], [1], arc_data=odd)
    kinds = [torch.float32, torch.uint8, torch.int32, torch.int64, torch.float64]
    assert [x.dtype for x in g.arc_data.values()] == kinds
    assert [x.item() for x in g.arc_data.values()] == [1, 1, 3, 4, 7]


def test_arcs_that_change_without_their_data_are_refused() -> None:
    g = Graph.from_arcs([0, 1], [1, 0], arc_data={"time": [1.0, 2.0]})
    with pytest.raises(UserError, match="time would no longer belong to them"):
        g.replace(indptr=torch.tensor([0, 2, 2]), indices=torch.tensor([0, 1]))
    assert g.replace(indptr=torch.tensor([0, 2, 2]), indices=torch.tensor([0, 1]), arc_data={}).arc_data == {}


def test_what_was_checked_is_not_looked_at_again_and_what_is_new_is() -> None:
    g = Graph.from_arcs([0], [1], arc_data={"time": torch.tensor([1.0])})
    g.arc_data["time"][0] = float("nan")
    assert g.replace(name="other").arc_data["time"].isnan().all()
    with pytest.raises(UserError, match="'time' hold nan"):
        g.replace(arc_data={"time": g.arc_data["time"].clone()})

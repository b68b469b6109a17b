"""Random splits: sizes, disjointness, seeds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph import Graph, split


def labelled(labels: list[int]) -> Graph:
    return Graph.from_arcs([], [], len(labels), labels=torch.tensor(labels, dtype=torch.int64))


@given(st.lists(st.integers(-1, 3), max_size=60), st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 5))
def test_masks_cover_each_labelled_vertex_once(
    labels: list[int], train: float, val: float, seed: int
) -> None:
    g = split(labelled(labels), train, min(val, 0.49), seed)
    total = g.train_mask.int() + g.val_mask.int() + g.test_mask.int()
    assert torch.equal(total, (g.labels >= 0).int())


def by_permutation(labels: np.ndarray, train: float | int, val: float | int, seed: int) -> list[np.ndarray]:
    """The three parts, from one permutation of all labelled vertices: what stores of old were split by."""
    known = np.arange(len(labels)) if labels.ndim == 2 else np.nonzero(labels >= 0)[0]
    order = np.random.default_rng(seed).permutation(known)
    if isinstance(train, int):
        taken, chosen = dict.fromkeys(labels[order].tolist(), 0), []
        for v in order.tolist():
            if taken[labels[v]] < train:
                chosen.append(v)
                taken[labels[v]] += 1
        chosen = np.array(chosen, dtype=np.int64)
    else:
        chosen = order[: round(train * len(order))]
    rest = order[~np.isin(order, chosen)]
    held = val if isinstance(val, int) else round(val * len(order))
    return [chosen, rest[:held], rest[held:]]


@pytest.mark.parametrize(("train", "val"), [(0.6, 0.2), (0.0, 0.5), (3, 40), (20, 0.1), (1, 0)])
@pytest.mark.parametrize("classes", [4, 300, 70_000])
def test_parts_are_those_of_one_permutation_however_few_labels_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, train: float, val: float, classes: int
) -> None:
    rng = np.random.default_rng(classes)
    labels = rng.integers(-1, classes, 700) * (1 if classes > 4 else rng.random(700).round().astype(int))
    monkeypatch.setattr(sys.modules["weft.graph.split"], "SOME", 64)
    if isinstance(train, int) and classes > 4:
        train = min(train, 1)
        val = 0
    for seed in (0, 7):
        g = split(labelled(labels.tolist()), train, val, seed)
        for mask, part in zip(
            (g.train_mask, g.val_mask, g.test_mask), by_permutation(labels, train, val, seed), strict=True
        ):
            assert mask.nonzero().ravel().tolist() == sorted(part.tolist())


def test_many_labels_are_split_as_one_permutation_of_all() -> None:
    y = torch.rand(50, 3) < 0.3
    g = split(Graph.from_arcs([], [], 50, labels=y), 0.5, 10, seed=2)
    for mask, part in zip(
        (g.train_mask, g.val_mask, g.test_mask), by_permutation(y.numpy(), 0.5, 10, 2), strict=True
    ):
        assert mask.nonzero().ravel().tolist() == sorted(part.tolist())


def test_a_whole_train_counts_per_class() -> None:
    g = split(labelled([0] * 30 + [1] * 10 + [2] * 3), train=5, val=7)
    assert [int((g.labels[g.train_mask] == c).sum()) for c in range(3)] == [5, 5, 3]
    assert int(g.val_mask.sum()) == 7


def test_the_seed_decides() -> None:
    g = labelled([0, 1] * 50)
    assert torch.equal(split(g, seed=1).train_mask, split(g, seed=1).train_mask)
    assert not torch.equal(split(g, seed=1).train_mask, split(g, seed=2).train_mask)


def test_many_labels_are_split_by_fractions_only() -> None:
    g = Graph.from_arcs([], [], 10, labels=torch.ones(10, 2, dtype=torch.bool))
    assert int(split(g).train_mask.sum()) == 6
    with pytest.raises(UserError, match="train=3 per class"):
        split(g, train=3)


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        (1.5, 0.1, "train=1.5 is neither"),
        (-1, 0.1, "train=-1 is neither"),
        (0.5, 80, "ask for 85 of 10"),
        (0.9, 0.9, "ask for 18"),
    ],
)
def test_a_bad_share_is_named(train: float, val: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        split(labelled([0, 1] * 5), train, val)


def test_a_graph_without_labels_cannot_be_split() -> None:
    with pytest.raises(UserError, match="has no labels"):
        split(Graph.from_arcs([0], [1]))

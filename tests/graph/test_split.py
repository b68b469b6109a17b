"""Random splits: sizes, disjointness, seeds."""

from __future__ import annotations

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

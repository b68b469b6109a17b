"""Losses and metrics against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from weft.train.metrics import hits, loss_sum, score


def test_the_loss_of_one_label_is_the_summed_cross_entropy():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0, 0])
    by_hand = -sum(math.log(float(torch.softmax(row, 0)[y])) for row, y in zip(logits, labels, strict=True))
    assert float(loss_sum(logits, labels)) == pytest.approx(by_hand, rel=1e-12)


def test_the_loss_of_many_labels_is_the_binary_cross_entropy_averaged_over_classes():
    logits, labels = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, 4) < 0.5
    p = torch.sigmoid(logits)
    by_hand = -(torch.where(labels, p, 1 - p)).log().mean(1).sum()
    assert float(loss_sum(logits, labels)) == pytest.approx(float(by_hand), rel=1e-12)


@pytest.mark.parametrize("many", [False, True])
def test_losses_and_counts_of_parts_add_up_to_the_whole(many):
    """What ranks rely on: each sums over its own rows."""
    logits = torch.randn(9, 4, dtype=torch.float64)
    labels = torch.rand(9, 4) < 0.4 if many else torch.randint(4, (9,))
    parts = [(logits[:2], labels[:2]), (logits[2:2], labels[2:2]), (logits[2:], labels[2:])]
    assert float(sum(loss_sum(*part) for part in parts)) == pytest.approx(float(loss_sum(logits, labels)))
    assert torch.equal(sum(hits(*part) for part in parts), hits(logits, labels))


def test_accuracy_counts_what_is_right():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]])
    assert hits(logits, torch.tensor([0, 1, 1])).tolist() == [2, 3, 0]
    assert score(torch.tensor([2, 3, 0]), multilabel=False) == 2 / 3


def test_micro_f1_counts_over_all_vertices_and_classes():
    logits = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    labels = torch.tensor([[True, True, False], [False, False, True]])
    assert hits(logits, labels).tolist() == [2, 1, 1]  # true positives, false positives, false negatives
    precision = recall = 2 / 3
    f1 = 2 * precision * recall / (precision + recall)
    assert score(hits(logits, labels), multilabel=True) == pytest.approx(f1)


@pytest.mark.parametrize("many", [False, True])
def test_the_score_of_nothing_is_nan(many):
    assert math.isnan(score(torch.zeros(3, dtype=torch.int64), many))

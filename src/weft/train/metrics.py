"""Losses and metrics: one label a vertex, or several."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import cross_entropy
from ..meter import left_out


def loss_sum(logits: Tensor, labels: Tensor, count: int = 1, over: bool = False) -> Tensor:
    """The loss of some rows, summed and divided by the global count of rows.

        logits  [m, c]
        labels  [m] int64: cross-entropy;  [m, c] bool: binary cross-entropy, the mean over classes
        over    nobody reads the logits again: their gradient may be written over them

    >>> float(loss_sum(torch.zeros(3, 2), torch.tensor([0, 1, 1]), count=3))  # = log 2
    0.693...
    """
    if labels.dim() == 1:
        return cross_entropy(logits, labels, 1 / count, over)
    if logits.is_meta:  # torch's own way through it takes milliseconds there
        left_out("loss", logits)
        return logits.sum()
    truth = labels.to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, truth, reduction="sum") / (logits.shape[1] * count)


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Counts from which `score` makes the metric, so that ranks can add theirs up. [3] int64.

    One label a vertex: (right, rows, 0). Several: (true positives, false positives, false negatives).
    """
    if labels.dim() == 1:
        right = (logits.argmax(1) == labels).sum()
        return torch.stack([right, torch.full_like(right, labels.numel()), torch.zeros_like(right)])
    guess = logits > 0
    return torch.stack([(guess & labels).sum(), (guess & ~labels).sum(), (~guess & labels).sum()])


def confusion(logits: Tensor, labels: Tensor, classes: int) -> Tensor:
    """How many rows of class i were taken for class j; ranks can add theirs up. [c, c] int64.

    >>> confusion(torch.tensor([[1., 0.], [0., 1.], [3., 2.]]), torch.tensor([0, 1, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    pairs = labels * classes + logits.argmax(1)
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def score(counts: Tensor, multilabel: bool) -> float:
    """Accuracy, or micro-averaged F1 for several labels; nan of nothing.

    >>> score(torch.tensor([3, 4, 0]), multilabel=False)
    0.75
    >>> score(torch.tensor([3, 1, 1]), multilabel=True)
    0.75
    """
    a, b, c = counts.tolist()
    top, bottom = (2 * a, 2 * a + b + c) if multilabel else (a, b)
    return top / bottom if bottom else float("nan")

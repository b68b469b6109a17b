"""Zachary's karate club (1977): who met whom outside the club, and which side each took when it split."""

from __future__ import annotations

import numpy as np
import torch

from weft.graph.generators.common import undirected
from weft.graph.graph import Graph

# Part i: the members with a larger number whom member i met.
_MET = (
    "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31;2 3 7 13 17 19 21 30;3 7 8 9 13 27 28 32;7 12 13;6 10;6 10 16;"
    "16;;30 32 33;33;;;;33;32 33;32 33;;;32 33;33;32 33;;32 33;25 27 29 32 33;25 27 31;31;29 33;33;31 33;"
    "32 33;32 33;32 33;33;"
)
_OF_THE_TEACHER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21)
_TRAIN = (0, 1, 32, 33)
_VAL = (2, 5, 8, 12, 17, 9, 14, 23, 27, 30)


def karate() -> Graph:
    """The club: 34 members, 78 undirected edges, 2 factions, one-hot features; 4 train, 10 val, 20 test.

    >>> karate()
    Graph(karate: 34 vertices, 156 arcs, 34 features, 2 classes)
    """
    met = [[int(word) for word in line.split()] for line in _MET.split(";")]
    u = np.repeat(np.arange(34), [len(line) for line in met])
    v = np.array([other for line in met for other in line])
    labels = torch.ones(34, dtype=torch.int64, device="cpu")
    labels[list(_OF_THE_TEACHER)] = 0
    train, val = (torch.zeros(34, dtype=torch.bool, device="cpu") for _ in range(2))
    train[list(_TRAIN)] = True
    val[list(_VAL)] = True
    return undirected(
        u, v, 34,
        name="karate", features=torch.eye(34, device="cpu"), labels=labels,
        train_mask=train, val_mask=val, test_mask=~(train | val),
    )  # fmt: skip

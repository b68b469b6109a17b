"""What an assignment costs: words and messages of the sparse exchange on P × 1 × 1, and balance.

Part p owns vertices; its rows of A read others' columns. λ_j is the number of parts that own j or read it.

    volume    Σ_j (λ_j − 1)         rows of H that cross, in one propagation; words are this times the width
    messages  pairs of parts between which at least one row crosses
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from ..graph import Graph
from . import passes
from .arcs import distinct, row_weights, rows_and_columns
from .walk import Source, Walk


@dataclass(frozen=True, eq=False)
class Metrics:
    """The cost of an assignment; volumes are rows that a part sends in one propagation.

    between  [P, P]  rows that part p sends to part q
    loads    [P]     nonzeros of A + I in the rows of each part
    sizes    [P]     vertices of each part
    """

    between: np.ndarray
    loads: np.ndarray
    sizes: np.ndarray
    edge_cut: int
    """Arcs whose ends lie in different parts."""

    @cached_property
    def volumes(self) -> np.ndarray:
        """Rows that each part sends, [P]."""
        return self.between.sum(1)

    @cached_property
    def messages(self) -> np.ndarray:
        """Messages that each part sends, [P]."""
        return (self.between > 0).sum(1)

    @property
    def volume_total(self) -> int:
        return int(self.volumes.sum())

    @property
    def volume_max(self) -> int:
        return int(self.volumes.max())

    @property
    def messages_total(self) -> int:
        return int(self.messages.sum())

    @property
    def messages_max(self) -> int:
        return int(self.messages.max())

    @property
    def imbalance(self) -> float:
        """How far the heaviest part is above the mean: 0 is even."""
        mean = float(self.loads.mean())
        return float(self.loads.max()) / mean - 1 if mean else 0.0

    def as_dict(self) -> dict[str, Any]:
        """What `weft partition --json` prints."""
        parts = len(self.sizes)
        return {
            "volume_total": self.volume_total, "volume_average": self.volume_total / parts,
            "volume_max": self.volume_max, "messages_total": self.messages_total,
            "messages_average": self.messages_total / parts, "messages_max": self.messages_max,
            "imbalance": self.imbalance, "edge_cut": self.edge_cut,
            "vertices_max": int(self.sizes.max()), "empty_parts": int((self.sizes == 0).sum()),
        }  # fmt: skip


def measure_rows(source: Source, parts: Tensor | np.ndarray, count: int, buffer: int = 1 << 20) -> Metrics:
    """The same as `measure` in passes over the rows, one for each 64 parts; 12 bytes a vertex are held.

    >>> import torch
    >>> g = Graph.from_arcs([0, 0, 1], [1, 2, 2])
    >>> measure_rows(g, torch.tensor([0, 1, 1]), 2).volume_total
    1
    """
    owner, walk = np.ascontiguousarray(parts, dtype=np.int32), Walk.over(source, buffer)
    between, loads, cut = np.zeros((count, count), np.int64), np.zeros(count, np.int64), 0
    unread = passes.bits(walk.n)
    for first in range(0, count, 64):
        marks = np.zeros(walk.n, dtype=np.uint64)  # a bit for each part of these that reads the vertex
        for rows in walk.raw():
            crossing = passes.mark_readers(rows, owner, first, marks)
            if first == 0:
                here, work = owner[rows.begin : rows.end], passes.weigh(rows, 0, unread)
                loads += np.bincount(here, weights=work, minlength=count).astype(np.int64)
                cut += crossing
        for part in range(first, min(first + 64, count)):
            read = (marks >> np.uint64(part - first)) & np.uint64(1) == 1
            between[:, part] = np.bincount(owner[read], minlength=count)
    return Metrics(between, loads, np.bincount(owner, minlength=count), cut)


def measure(graph: Graph, parts: Tensor | np.ndarray, count: int) -> Metrics:
    """The cost of `parts` [n], ids in 0..count-1.

    >>> import torch
    >>> g = Graph.from_arcs([0, 0, 1], [1, 2, 2])          # 1 and 2 read 0, 2 reads 1
    >>> measure(g, torch.tensor([0, 1, 1]), 2).volume_total   # 0's row crosses once, though two read it
    1
    """
    owner = np.asarray(parts)
    rows, columns = rows_and_columns(graph)
    reader = owner[rows]
    crosses = reader != owner[columns]
    column, part = distinct(columns[crosses], reader[crosses], count)
    pairs = owner[column] * count + part
    return Metrics(
        np.bincount(pairs, minlength=count * count).reshape(count, count),
        np.bincount(owner, weights=row_weights(graph), minlength=count).astype(np.int64),
        np.bincount(owner, minlength=count),
        int(crosses.sum()),
    )


def batch_volume(rows: np.ndarray, columns: np.ndarray, parts: np.ndarray, count: int) -> int:
    """Σ (λ − 1) over the columns of a sampled subgraph: rows of H that cross for one mini-batch.

        rows, columns  [arcs]  its arcs column → row;  the owner of a column has it without a message

    >>> batch_volume(np.array([1, 2]), np.array([0, 0]), np.array([0, 1, 1]), 2)
    1
    """
    reader = parts[rows]
    crosses = reader != parts[columns]
    return len(distinct(columns[crosses], reader[crosses], count)[0])

"""Graphs and naive loops for the tests of partitions."""

from __future__ import annotations

import functools

import numpy as np
import torch
from hypothesis import strategies as st

from weft.graph import Graph, sbm


def naive(graph: Graph, parts: list[int], count: int) -> tuple[list[list[int]], int]:
    """(rows that p sends to q, cut arcs) by a loop over every arc."""
    between = [[0] * count for _ in range(count)]
    readers: dict[int, set[int]] = {}
    cut = 0
    for row, column in zip(graph.rows.tolist(), graph.indices.tolist(), strict=True):
        if parts[row] != parts[column]:
            cut += 1
            readers.setdefault(column, set()).add(parts[row])
    for column, others in readers.items():
        for part in others:
            between[parts[column]][part] += 1
    return between, cut


@functools.cache
def communities(classes: int = 8, nodes: int = 400) -> Graph:
    """A directed graph with groups that a good partition finds."""
    graph = sbm(nodes=nodes, classes=classes, degree=8, seed=1)
    keep = torch.arange(graph.num_arcs) % 3 > 0
    return Graph.from_arcs(graph.indices[keep], graph.rows[keep], graph.num_nodes)


@st.composite
def assigned(draw: st.DrawFn) -> tuple[Graph, torch.Tensor, int]:
    """A small directed graph, with loops and empty rows, and an assignment that may have empty parts."""
    n = draw(st.integers(1, 13))
    arcs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    count = draw(st.integers(1, 7))
    parts = draw(st.lists(st.integers(0, count - 1), min_size=n, max_size=n))
    pairs = np.array(arcs, dtype=np.int64).reshape(-1, 2)
    return Graph.from_arcs(pairs[:, 0], pairs[:, 1], n), torch.tensor(parts), count

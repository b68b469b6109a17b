"""A graph's arcs as plain arrays, as all of this room counts them."""

from __future__ import annotations

import numpy as np

from ..graph import Graph


def rows_and_columns(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of every arc column → row, [nnz] each."""
    return graph.rows.numpy(), graph.indices.numpy()


def row_weights(graph: Graph) -> np.ndarray:
    """[n]: the work of a vertex, the nonzeros of its row of A + I.

    The loop counts whether it is stored or not: a model that looks at itself has it, and no vertex is free.

    >>> row_weights(Graph.from_arcs([0, 1], [1, 1])).tolist()
    [1, 2]
    """
    rows, columns = rows_and_columns(graph)
    counts = graph.indptr.diff().numpy() + 1
    np.subtract.at(counts, rows[rows == columns], 1)
    return counts


def distinct(first: np.ndarray, second: np.ndarray, span: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs (first, second), second in 0..span-1, in ascending order.

    >>> [x.tolist() for x in distinct(np.array([1, 0, 1]), np.array([2, 0, 2]), 3)]
    [[0, 1], [0, 2]]
    """
    # A sort beats np.unique's hashing here, and the keys come nearly sorted.
    key = np.sort(first.astype(np.int64) * span + second)
    if len(key):
        key = key[np.concatenate([[True], key[1:] != key[:-1]])]
    return np.divmod(key, span)

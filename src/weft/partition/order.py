"""The order of vertices within a part: neighbours near each other, so that rows of H stay in the cache."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, unknown
from ..graph import Graph
from .arcs import rows_and_columns
from .hypergraph import Say
from .metis import metis

ORDERS = {
    "none": "as the graph numbers them",
    "degree": "those that are read most first: the hot rows of H lie together",
    "rcm": "reverse Cuthill-McKee on the arcs within the part",
    "cluster": "METIS clusters that fit into a cache, one after the other",
}
"""Order → what it does."""

_CLUSTER = 512
"""Vertices of a cluster: at width 64 in float32 its rows of H take 128 kB, half of a usual L2."""


def order_within(graph: Graph, parts: Tensor, how: str, seed: int = 0, say: Say | None = None) -> Tensor:
    """Where each vertex stands: sort a part's vertices by this key. [n] int64, each number once.

    >>> from weft.graph import karate
    >>> key = order_within(karate(), torch.zeros(34, dtype=torch.int64), "degree")
    >>> int(key.argmin())                     # the president, whom 17 read
    33
    """
    if how not in ORDERS:
        raise unknown("order", how, ORDERS)
    n = graph.num_nodes
    if how == "none":
        return torch.arange(n, device="cpu")
    rows, columns = rows_and_columns(graph)
    if how == "degree":
        order = np.argsort(-np.bincount(columns, minlength=n), kind="stable")
    else:
        owner = parts.numpy()
        inside = owner[rows] == owner[columns]
        within = Graph.from_arcs(columns[inside], rows[inside], n)  # a part never sees the others' order
        if say:
            say(f"order: {how} of {n:,} vertices")
        order = _rcm(within) if how == "rcm" else _clusters(within, seed)
    key = np.empty(n, dtype=np.int64)
    key[order] = np.arange(n)
    return torch.from_numpy(key)


def _rcm(graph: Graph) -> np.ndarray:
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee
    except ImportError:
        raise UserError("the order 'rcm' needs scipy. Use: pip install 'weft[partition]'.") from None
    both = graph.symmetrised()
    n, ones = graph.num_nodes, np.ones(both.num_arcs, dtype=np.int8)
    matrix = csr_array((ones, both.indices.numpy(), both.indptr.numpy().astype(np.int32)), shape=(n, n))
    return np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=True), dtype=np.int64)


def _clusters(graph: Graph, seed: int) -> np.ndarray:
    count = graph.num_nodes // _CLUSTER
    if count < 2:
        return np.arange(graph.num_nodes)
    # METIS numbers parts by recursive bisection: clusters with near numbers are near, too.
    equal = np.ones(graph.num_nodes, dtype=np.int64)
    return np.argsort(metis(graph, count, 0.1, seed, equal), kind="stable")

"""A small directed graph with an odd number of vertices, one of them without in-neighbours."""

from __future__ import annotations

import torch

from weft.graph import Graph, normalise
from weft.kernels import CSR
from weft.parallel import Operator


def directed(n: int = 23, arcs: int = 90, seed: int = 0) -> Graph:
    g = torch.Generator().manual_seed(seed)
    source, target = torch.randint(n, (2, arcs), generator=g)
    target[target == 5] = 6  # vertex 5 has no in-neighbours
    return Graph.from_arcs(source, target, num_nodes=n)


def adjacency(graph: Graph, how: str, dtype: torch.dtype = torch.float64) -> CSR:
    normalised = normalise(graph, how, dtype=dtype)
    return CSR(normalised.indptr, normalised.indices, normalised.weights, (graph.num_nodes, graph.num_nodes))


def matrix_of(graph: Graph, how: str, dtype: torch.dtype = torch.float64) -> Operator:
    """The same, as a layer wants it."""
    return Operator.local(adjacency(graph, how, dtype))

"""Arc weights that make A·H a sum, a mean or Kipf and Welling's average."""

from __future__ import annotations

import torch

from weft.errors import unknown
from weft.graph.graph import Graph

HOWS = ("gcn", "mean", "none", "loops")


def normalise(graph: Graph, how: str = "gcn", dtype: torch.dtype = torch.float32) -> Graph:
    """The same graph with normalised arc weights.

        gcn    Â = D^-1/2 (A + I) D^-1/2,  D = row sums of A + I; loops are added only where missing
        mean   D^-1 A,                     D = row sums of A; a row without arcs stays empty
        none   A, unchanged
        loops  where A + I has entries, all of them 1: what attention looks at

    Weights that are there count as A's entries. A row whose sum is not positive gets weight 0 in `gcn`,
    a row whose sum is 0 gets weight 0 in `mean`: as PyG's `gcn_norm`, never infinity.

    >>> g = Graph.from_arcs([0, 1], [1, 0])
    >>> normalise(g, "gcn").weights
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    if how not in HOWS:
        raise unknown("normalisation", how, HOWS)
    if how == "none":
        return graph
    if how == "loops":
        return graph.with_self_loops().replace(weights=None)
    if how == "gcn":
        graph = graph.with_self_loops()
    rows = graph.rows
    # Sums in float64: a hub's thousands of terms then cost no digits of a float32 result.
    if graph.weights is None:
        values = torch.ones(graph.num_arcs, dtype=torch.float64, device=rows.device)
    else:
        values = graph.weights.double().to(rows.device)
    degree = torch.zeros(graph.num_nodes, dtype=torch.float64, device=rows.device).index_add_(0, rows, values)
    if how == "mean":
        scaled = values * torch.where(degree != 0, 1 / degree, 0.0)[rows]
    else:
        root = torch.where(degree > 0, degree.clamp(min=0).rsqrt(), 0.0)
        scaled = root[rows] * values * root[graph.indices.long()]
    return graph.replace(weights=scaled.to(dtype))


def normalise_features(graph: Graph) -> Graph:
    """The same graph with each vertex's features divided by their sum, as Kipf and Welling do for Cora.

        x_i ← x_i / Σ_j x_ij; a row whose sum is 0 stays as it is

    >>> normalise_features(Graph.from_arcs([0], [0], features=torch.tensor([[1.0, 3.0]]))).features
    tensor([[0.2500, 0.7500]])
    """
    if graph.features is None:
        return graph
    total = graph.features.sum(dim=1, keepdim=True)
    return graph.replace(features=graph.features / torch.where(total == 0, 1.0, total))

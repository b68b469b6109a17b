"""Arc weights that make A·H a sum, a mean or Kipf and Welling's average."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.errors import UserError, unknown
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
    return graph.replace(features=rows_to_one(graph.features))


def rows_to_one(x: Tensor) -> Tensor:
    """Each row divided by its sum, which is taken in float64: in float32 it may be infinite. [n, f]

    A row whose sum is 0 stays as it is.

    >>> rows_to_one(torch.tensor([[3e38, 1e38], [0.0, 0.0]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 0.0000]])
    """
    total = x.sum(dim=1, keepdim=True, dtype=torch.float64)
    if not bool(torch.isfinite(total).all()):
        row = int((~torch.isfinite(total)).nonzero()[0, 0])
        raise UserError(f"the features in row {row} add up to {float(total[row]):g}. Scale or mend them.")
    plain = total.to(x.dtype)
    if bool(torch.isfinite(plain).all()):
        return x / torch.where(plain == 0, 1.0, plain)
    return (x.double() / torch.where(total == 0, 1.0, total)).to(x.dtype)

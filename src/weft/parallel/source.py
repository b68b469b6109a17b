"""Rows of the normalised matrix, read from a graph in memory or from a store, and only those rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError, unknown
from ..graph import Graph, Store

Source = Graph | Store


@dataclass(frozen=True)
class Arcs:
    """Some rows of A as a list of arcs: by row, within a row by vertex.

    row [arcs] in 0..rows-1;  vertex [arcs] the in-neighbour;  value [arcs] or None: all 1
    """

    row: Tensor
    vertex: Tensor
    value: Tensor | None

    def pick(self, where: Tensor) -> Arcs:
        return Arcs(self.row[where], self.vertex[where], None if self.value is None else self.value[where])


def read_arcs(source: Source, vertices: Tensor) -> Arcs:
    """The arcs into these vertices, in their order."""
    if isinstance(source, Store):
        rows = source.rows(vertices, only=("indices", "weights"))
        counts, indices, weights = rows.indptr.diff(), rows.indices, rows.weights
    else:
        begins = source.indptr[vertices]
        counts = source.indptr[vertices + 1] - begins
        skip = torch.repeat_interleave(begins - (counts.cumsum(0) - counts), counts)
        at = torch.arange(int(counts.sum()), device=counts.device) + skip
        indices, weights = source.indices[at], None if source.weights is None else source.weights[at]
    row = torch.arange(vertices.numel(), device=counts.device)
    return Arcs(torch.repeat_interleave(row, counts), indices.long(), weights)


def count_arcs(source: Source, first: int, last: int) -> int:
    """How many arcs go into the vertices first..last-1; only their pointers are read."""
    if isinstance(source, Store):
        return int(source.rows(first, last, only=("indptr",)).indptr[-1])
    return int(source.indptr[last] - source.indptr[first])


def count_arcs_of(source: Source, vertices: Tensor) -> int:
    """How many arcs go into these vertices; only their pointers are read."""
    if isinstance(source, Store):
        return int(source.rows(vertices, only=("indptr",)).indptr[-1])
    return int((source.indptr[vertices + 1] - source.indptr[vertices]).sum())


def read_vertices(source: Source, vertices: Tensor, key: str) -> Tensor | None:
    """The features, labels or a mask of these vertices; None where the graph has none."""
    if isinstance(source, Store):
        found: Tensor | None = getattr(source.rows(vertices, only=(key,)), key)
        return found
    whole: Tensor | None = getattr(source, key)
    return None if whole is None else whole[vertices]


def _row_sums(arcs: Arcs, rows: int) -> Tensor:
    """Float64 sums: a hub's thousands of terms then cost no digits."""
    if arcs.value is None:
        return torch.bincount(arcs.row, minlength=rows).double()
    total = torch.zeros(rows, dtype=torch.float64, device=arcs.row.device)
    total.index_add_(0, arcs.row, arcs.value.double())
    if not bool(torch.isfinite(total).all()):  # divided by infinity, arcs would become 0 without a word
        raise UserError("the weights of a row of arcs add up to more than float64 holds. Scale the weights.")
    return total


def with_loops(arcs: Arcs, vertices: Tensor) -> Arcs:
    """The loop (v, v) of weight 1 added to the rows that have none, each at its place in the row."""
    n_rows = vertices.numel()
    has = torch.zeros(n_rows, dtype=torch.bool, device=vertices.device)
    has[arcs.row[arcs.vertex == vertices[arcs.row]]] = True
    lacking = (~has).nonzero().ravel()
    row = torch.cat([arcs.row, lacking])
    vertex = torch.cat([arcs.vertex, vertices[lacking]])
    value = arcs.value
    if value is not None:
        value = torch.cat([value, value.new_ones(lacking.numel())])
    span = int(vertex.max()) + 1 if vertex.numel() else 1
    return Arcs(row, vertex, value).pick(torch.argsort(row * span + vertex, stable=True))


def read_normalised(
    source: Source,
    vertices: Tensor,
    how: str,
    comm: Communicator,
    own: tuple[int, int],
    sizes: list[int],
    place_of: Tensor,
) -> Arcs:
    """Rows of the matrix that `weft.graph.normalise(graph, how)` would give, without making it.

    vertices  the rows wanted;  own = (begin, end) of this rank's among them
    gcn       needs the degree of every in-neighbour: ranks tell each other theirs, n numbers in all
    """
    arcs = read_arcs(source, vertices)
    if how == "none":
        return arcs
    if how == "mean":
        total = _row_sums(arcs, vertices.numel())
        scale = torch.where(total != 0, 1 / total, 0.0)[arcs.row]
        return Arcs(arcs.row, arcs.vertex, scale if arcs.value is None else scale * arcs.value.double())
    if how not in ("gcn", "loops"):
        raise unknown("normalisation", how, ["gcn", "mean", "none", "loops"])
    arcs = with_loops(arcs, vertices)
    if how == "loops":
        return Arcs(arcs.row, arcs.vertex, None)
    total = _row_sums(arcs, vertices.numel())
    root = torch.where(total > 0, total.clamp(min=0).rsqrt(), 0.0)
    everywhere = comm.all_gather(root[own[0] : own[1]].contiguous(), sizes, phase="plan")
    value = root[arcs.row] * everywhere[place_of[arcs.vertex]]
    return Arcs(arcs.row, arcs.vertex, value if arcs.value is None else value * arcs.value.double())

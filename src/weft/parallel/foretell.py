"""What every rank of a grid would move, counted from the whole graph: no ranks, no plan.

`DistributedGraph.predict` tells it of a plan that is built; this one tells it beforehand, for any grid, in a
few sorts of the arcs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Graph
from .blocks import Blocks
from .volume import Line, Volume, dense_lines, propagation


def sparse_lines(graph: Graph, blocks: Blocks) -> list[tuple[Line, Line]]:
    """(row, inner) of every rank, for the sparse exchange.

    read[i, j, k]    columns of U(j,k) that slab i reads       row    need read[i, ·, k]   give read[·, i, k]
    wrote[k', i, k]  rows of U(i,k) that inner slab k' writes  inner  need wrote[k, i, ·]  give wrote[·, i, k]
    """
    grid = blocks.grid
    r, k = grid.row, grid.inner
    union = blocks.parts // grid.feature
    slab, inner = union // k, union % k
    rows, columns = graph.rows, graph.indices.long()

    def count(thing: Tensor, other: Tensor, span: int) -> Tensor:
        """[span, r·k]: by (other, union of thing), how many distinct things."""
        pairs = torch.unique(thing * span + other)
        thing, other = pairs // span, pairs % span
        return torch.bincount(other * (r * k) + union[thing], minlength=span * r * k).view(span, r, k)

    across = slab[rows] != slab[columns]
    read = count(columns[across], slab[rows[across]], r)
    across = inner[rows] != inner[columns]
    wrote = count(rows[across], inner[columns[across]], k)  # [k', i, k]
    lines = []
    for rank in range(grid.size):
        i, at, _ = grid.place(rank)
        others, beside = [j for j in range(r) if j != i], [p for p in range(k) if p != at]
        lines.append(
            (
                Line([int(read[i, j, at]) for j in others], [int(read[j, i, at]) for j in others]),
                Line([int(wrote[at, i, p]) for p in beside], [int(wrote[p, i, at]) for p in beside]),
            )
        )
    return lines


def foretell(graph: Graph, blocks: Blocks, width: int, exchange: str = "sparse") -> list[Volume]:
    """What each rank receives for one propagation of `width` columns, forward and backward.

    >>> from weft.graph import karate
    >>> from .grid import Grid
    >>> volumes = foretell(karate(), Blocks.even(34, Grid(2)), 1)
    >>> [volume.words for volume in volumes]
    [{'gather': 9, 'reduce': 8}, {'gather': 8, 'reduce': 9}]
    """
    if exchange == "sparse":
        lines = sparse_lines(graph, blocks)
    else:
        lines = [dense_lines(blocks, rank) for rank in range(blocks.grid.size)]
    return [propagation(blocks, rank, width, *both) for rank, both in enumerate(lines)]

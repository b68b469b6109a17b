"""What every rank of a grid would move, from block sizes or the whole graph: no ranks, no plan.

`Operator.foretell` tells it of a plan that is built; this one tells it beforehand, for any grid: the same
code runs on a plan that has sizes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm import Dry, Ledger
from ..graph import Graph
from ..kernels import CSR
from ..partition.grids import crossings
from .blocks import Blocks
from .by_host import ByHost, Crossing, exchange_along
from .exchange import Exchange
from .operator import Operator
from .propagate import FeatureLine, Plan
from .volume import Volume


@dataclass(frozen=True)
class Line:
    """What a rank reads of the others along an axis, and they of it, in rows; without itself."""

    need: list[int]
    give: list[int]
    hosts: Sequence[int] | None = None
    """The host of each rank of the line, itself too, where rows cross between hosts once."""
    crossings: Sequence[tuple[int, int, Sequence[int]]] = ()
    """Of each other host, the next one first: rows that it reads; rows that come to be passed on; how many of
    these each rank of this host reads. Of the sparse exchange."""


def dense_lines(blocks: Blocks, rank: int) -> tuple[Line, Line]:
    """(row, inner) of the dense exchange: everybody reads everything."""
    grid = blocks.grid
    i, k, _ = grid.place(rank)

    def size(a: int, b: int) -> int:
        begin, end = blocks.union(a, b)
        return end - begin

    own = size(i, k)
    row = [size(j, k) for j in range(grid.row) if j != i]
    inner = [size(i, j) for j in range(grid.inner) if j != k]
    return Line(row, [own] * len(row)), Line(inner, [own] * len(inner))


def sparse_lines(graph: Graph, blocks: Blocks) -> list[tuple[Line, Line]]:
    """(row, inner) of every rank, for the sparse exchange.

    row    need read[i, ·, k]   give read[·, i, k]       (`weft.partition.grids.crossings`)
    inner  need wrote[k, i, ·]  give wrote[·, i, k]
    """
    grid = blocks.grid
    r, k = grid.row, grid.inner
    read, wrote = crossings(graph, blocks.parts // grid.feature, (r, k))
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


def planned(
    blocks: Blocks, rank: int, row: Line, inner: Line, arcs: Sequence[int] = (),
    data: Mapping[str, Tensor] | None = None,
) -> tuple[Operator, Dry]:  # fmt: skip
    """(A, a communicator to open a ledger on) of a rank that need not exist, from sizes alone.

    arcs   entries of each A_j, where numbers per arc travel
    data   what entries carry: of each tensor [anything, …] the type, and the shape of an entry

    A has no values: they stay where they are, and the fused attention takes a pattern.
    """
    grid = blocks.grid
    i, k, f = grid.place(rank)
    feature = Dry.alone(f, grid.feature, "feature")

    def line(axis: str, place: int, sizes: list[int], rows: Line) -> Exchange:
        comm = Dry.alone(place, len(sizes), axis, feature, rows.hosts)
        whole = exchange_along(comm, sizes, None, True, rows.hosts is not None)
        own = sizes[place]
        whole.need_sizes = [*rows.need[:place], own, *rows.need[place:]]
        whole.give_sizes = [*rows.give[:place], own, *rows.give[place:]]
        whole.give = [rows_of(n) for n in whole.give_sizes]
        if rows.crossings:
            assert isinstance(whole, ByHost)
            whole.blank(
                [Crossing(out, rows_of(out), taken, list(map(rows_of, read)))
                 for out, taken, read in rows.crossings]
            )  # fmt: skip
        return whole

    def rows_of(count: int) -> Tensor:
        return torch.empty(count, dtype=torch.int64, device="meta")

    def sizes(unions: list[tuple[int, int]]) -> list[int]:
        return [end - begin for begin, end in unions]

    along_row = line("row", i, sizes([blocks.union(j, k) for j in range(grid.row)]), row)
    along_inner = line("inner", k, sizes([blocks.union(i, j) for j in range(grid.inner)]), inner)
    total = sum(along_inner.need_sizes)
    counts = list(arcs) or [0] * grid.row
    index = torch.int32 if blocks.count < 2**31 else torch.int64
    matrices: list[CSR] = [
        CSR.blank(
            (total, columns), count, index=index,
            data={k: t.new_empty(count, *t.shape[1:], device="meta") for k, t in (data or {}).items()},
        )
        for columns, count in zip(along_row.need_sizes, counts, strict=True)
    ]  # fmt: skip
    names = [torch.empty(columns, dtype=index, device="meta") for columns in along_row.need_sizes]
    rows_of_line = [blocks.sizes[peer] for peer in grid.peers(rank, "feature")]
    plan = Plan(
        FeatureLine(feature, rows_of_line), along_row, along_inner, list(matrices), names,
        torch.empty(total, dtype=torch.int64, device="meta"),
    )  # fmt: skip
    own = torch.empty(blocks.sizes[rank], dtype=torch.int64, device="meta")
    return Operator.planned(plan, own), feature


def foretell(graph: Graph, blocks: Blocks, width: int, exchange: str = "sparse") -> list[Volume]:
    """What each rank receives for one propagation of `width` columns, forward and backward.

    >>> from weft.graph import karate
    >>> from .grid import Grid
    >>> volumes = foretell(karate(), Blocks.even(34, Grid(2)), 1)
    >>> [volume.words for volume in volumes]
    [{'gather': 9, 'reduce': 8}, {'gather': 8, 'reduce': 9}]
    """
    ranks = range(blocks.grid.size)
    sparse = exchange == "sparse"
    lines = sparse_lines(graph, blocks) if sparse else [dense_lines(blocks, rank) for rank in ranks]
    return [foretell_rank(blocks, rank, width, *lines[rank]) for rank in ranks]


def foretell_rank(
    blocks: Blocks, rank: int, width: int, row: Line, inner: Line, arcs: Sequence[int] = (),
    work: Callable[[Operator, Tensor, Ledger], object] | None = None,
    data: Mapping[str, Tensor] | None = None,
) -> Volume:  # fmt: skip
    """What `rank` receives in one propagation of `width` columns, forward and backward, or in `work`.

    `work(A, h, books)` opens the ledger `books` around what counts; `data` is that of `planned`.

    >>> from .grid import Grid
    >>> blocks = Blocks.even(12, Grid(4))
    >>> foretell_rank(blocks, 0, 5, *dense_lines(blocks, 0)).words  # n·w·(P − 1)/P, there and back
    {'gather': 45, 'reduce': 45}
    """
    A, comm = planned(blocks, rank, row, inner, arcs, data)
    h = torch.empty(A.rows.numel(), width, device="meta", requires_grad=True)
    books = Ledger(comm)
    if work is not None:
        work(A, h, books)
    else:
        with books:
            (A @ h).backward(torch.empty_like(h))
    return Volume.of(books)

"""From a rank's rows of A to its matrices, and who tells whom what it reads: the plan, built once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from ..comm import Communicator
from ..graph.rows import index_dtype
from ..kernels import CSR
from .blocks import Blocks
from .by_host import exchange_along
from .propagate import FeatureLine, Plan, Sliced
from .source import SOME_ARCS, Arcs, Keep


class Names(Sequence[Tensor]):
    """The vertices that A_j's columns stand for, slab by slab: made when asked for.

    All columns of all slabs are n names, which nobody keeps; `some[j]` are those of a slab of which some are
    read.
    """

    def __init__(self, blocks: Blocks, unions: list[tuple[int, int]], index: torch.dtype):
        self._blocks, self._unions, self._index = blocks, unions, index
        self.some: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self._unions)

    @overload
    def __getitem__(self, j: int) -> Tensor: ...
    @overload
    def __getitem__(self, j: slice) -> list[Tensor]: ...
    def __getitem__(self, j: int | slice) -> Tensor | list[Tensor]:
        if isinstance(j, slice):
            return [self[k] for k in range(*j.indices(len(self)))]
        if not -len(self) <= j < len(self):
            raise IndexError(j)
        found = self.some.get(j % len(self))
        return self._blocks.span(*self._unions[j]).to(self._index) if found is None else found


def reads_of(blocks: Blocks, rank: int) -> Keep | None:
    """Vertices → which of them this rank's arcs come from, K_k; None where these are all."""
    grid = blocks.grid
    if grid.inner == 1:
        return None
    _, k, _ = grid.place(rank)
    unions = [blocks.union(j, k) for j in range(grid.row)]

    def keep(vertices: Tensor) -> Tensor:
        place = blocks.places(vertices)
        inside = torch.zeros_like(place, dtype=torch.bool)
        for begin, end in unions:
            inside |= (place >= begin) & (place < end)
        return inside

    return keep


def _placed(
    vertex: Tensor, blocks: Blocks, unions: list[tuple[int, int]], index: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(where each vertex stands, which of these ascending stretches that is in or −1), some at a time."""
    begins, ends = (torch.tensor(side, device="cpu") for side in zip(*unions, strict=True))
    place = torch.empty(vertex.numel(), dtype=index, device=vertex.device)
    slab = torch.empty(vertex.numel(), dtype=torch.int32, device=vertex.device)
    for part, at, of in zip(*(x.split(SOME_ARCS) for x in (vertex, place, slab)), strict=True):
        found = blocks.places(part)
        # Stretches may be empty: of those that begin at one place the last.
        which = (torch.searchsorted(begins, found, right=True) - 1).clamp(min=0)
        inside = (found >= begins[which]) & (found < ends[which])
        at.copy_(found)
        of.copy_(torch.where(inside, which, -1))
    return place, slab


def distinct(x: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """The different ones of numbers in 0..bound-1, ascending, and for each number which of them it is.

    As `torch.unique`, by marks instead of a sort: bound and len(x) steps, some numbers at a time.

    >>> distinct(torch.tensor([4, 1, 4], dtype=torch.int32), 6)
    (tensor([1, 4], dtype=torch.int32), tensor([1, 0, 1], dtype=torch.int32))
    """
    marked = torch.zeros(bound, dtype=torch.bool, device=x.device)
    for part in x.split(SOME_ARCS):
        marked[part] = True
    number = marked.cumsum(0, dtype=x.dtype) - 1
    which = torch.empty_like(x)
    for part, into in zip(x.split(SOME_ARCS), which.split(SOME_ARCS), strict=True):
        into.copy_(number[part])
    return marked.nonzero().ravel().to(x.dtype), which


def matrix_of(row: Tensor, column: Tensor, arcs: Arcs, shape: tuple[int, int], dtype: torch.dtype) -> CSR:
    """Arcs in the order of their rows as a matrix: row and column say where each stands in it."""
    counts = torch.bincount(row, minlength=shape[0])
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    value = None if arcs.value is None else arcs.value.to(dtype)
    return CSR(indptr, column, value, shape, arcs.data)


def cut_into_plan(
    arcs: Arcs, blocks: Blocks, comm: Communicator, sparse: bool, dtype: torch.dtype, overlap: bool,
    by_host: bool = False,
) -> Plan:  # fmt: skip
    """Cut this rank's rows of A into its matrices A_j, and tell the others what it reads and writes.

    *keep the columns of K_k; sparse: keep only rows written and columns read; one matrix per slab*
    """
    grid = blocks.grid
    i, k, _ = grid.place(comm.rank)
    lines = {axis: grid.along(comm, axis) for axis in ("row", "inner", "feature")}
    unions = [blocks.union(j, k) for j in range(grid.row)]
    mine = [blocks.union(i, j) for j in range(grid.inner)]
    slab = blocks.slab(i)

    # keep the columns of K_k
    index = index_dtype(max(slab[1] - slab[0], blocks.count))
    place, slab_of = _placed(arcs.vertex, blocks, unions, index)
    inside = slab_of >= 0
    if not bool(inside.all()):
        arcs, place, slab_of = arcs.pick(inside), place[inside], slab_of[inside]
    del inside

    # rows of T, by the rank of the inner line that they are for
    row, pieces = arcs.row, [end - begin for begin, end in mine]
    rows_written: list[Tensor] | None = None
    if sparse:
        written = torch.zeros(slab[1] - slab[0], dtype=torch.bool, device=row.device)
        written[row] = True
        begin, end = mine[k]
        written[begin - slab[0] : end - slab[0]] = True  # the own piece is whole
        rows_written = [written[b - slab[0] : e - slab[0]].nonzero().ravel() for b, e in mine]
        pieces = [r.numel() for r in rows_written]
        row = (written.cumsum(0) - 1).to(index)[row]
    total = sum(pieces)
    row_names = blocks.span(*slab)
    row_names = row_names if rows_written is None else row_names[written]

    matrices: list[CSR | Sliced] = []
    names = Names(blocks, unions, index)
    columns_read: list[Tensor] = []
    for j, (begin, end) in enumerate(unions):
        here: Tensor | slice = slice(None)
        own = arcs
        if grid.row > 1:
            here = slab_of == j
            own = arcs.pick(here)
        column, width = place[here] - begin, end - begin
        if sparse and j != i:
            read, column = distinct(column, width)
            names.some[j], width = blocks.numbering.vertices(begin + read).to(index), read.numel()
            columns_read.append(read)
        elif sparse:
            columns_read.append(column[:0])
        matrices.append(matrix_of(row[here], column.to(index), own, (total, width), dtype))

    row_sizes = [end - begin for begin, end in unions]
    return Plan(
        FeatureLine(lines["feature"], [blocks.sizes[peer] for peer in grid.peers(comm.rank, "feature")]),
        exchange_along(lines["row"], row_sizes, columns_read if sparse else None, overlap, by_host),
        exchange_along(lines["inner"], [e - b for b, e in mine], rows_written, overlap, by_host),
        matrices,
        names,
        row_names,
    )

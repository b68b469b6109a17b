"""From rows of a graph or a store to a rank's plan, in two passes over the arcs: counted, then filled.

    count    of each row its entries in every A_j and its sum;  which columns are read, a bit each
    plan     everybody is told what this rank reads
    fill     columns into their places: the stretch of a vertex, or its number among those that are read
    scale    by row and, as with any rows of h, by columns: their owners' numbers come along the row axis

Some rows are looked at together and forgotten: beside the matrices a rank holds a few bits a vertex. The
matrices are those of `cut_into_plan(read_normalised(…))`, bit for bit; that is the way without C++,
and where arcs carry data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..graph import Store
from ..graph.guard import check_fits
from ..graph.rows import index_dtype
from ..kernels import CSR, native
from .blocks import Blocks
from .by_host import exchange_along
from .cutting import Names
from .numbering import Dealt, InOrder, Listed, Numbering
from .propagate import FeatureLine, Plan, Sliced
from .source import Source, check_sums, scale_of

SOME_ARCS = 1 << 22
"""Looked at together."""


@dataclass(frozen=True)
class _Raw:
    """Some rows of the graph as they lie there: `first` on, those of `own`."""

    first: int
    own: Tensor
    indptr: Tensor
    indices: Tensor
    weights: Tensor | None

    def arguments(self, loops: bool) -> tuple[Any, ...]:
        rows = self.own.numel()
        arrays = (self.indptr, self.indices, self.weights, self.own)
        return (rows, *map(native.address, arrays), loops)

    def kernel(self, name: str) -> Any:
        weights = torch.empty(0, dtype=torch.float32, device="cpu") if self.weights is None else self.weights
        return native.kernel(name, self.indices, weights)


def _raw(source: Source, vertices: Tensor, weighted: bool) -> Iterator[_Raw]:
    """The rows of these vertices, about `SOME_ARCS` arcs at a time."""
    if isinstance(source, Store):
        ends = source.rows(vertices, only=("indptr",)).indptr
    else:
        counts = source.indptr[vertices + 1] - source.indptr[vertices]
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    total, begin = vertices.numel(), 0
    while begin < total:
        end = int(torch.searchsorted(ends, ends[begin] + SOME_ARCS, right=True)) - 1
        end = min(max(end, begin + 1), total)
        own, indptr = vertices[begin:end].contiguous(), ends[begin : end + 1]
        yield _Raw(begin, own, indptr, *_arcs(source, own, weighted))
        begin = end


def _arcs(source: Source, own: Tensor, weighted: bool) -> tuple[Tensor, Tensor | None]:
    if isinstance(source, Store):
        rows = source.rows(own, only=("indices", "weights") if weighted else ("indices",))
        return rows.indices, rows.weights
    first, last = int(own[0]), int(own[-1]) + 1
    weights = source.weights if weighted else None
    if last - first == own.numel() and bool((own.diff() == 1).all()):
        where: slice | Tensor = slice(int(source.indptr[first]), int(source.indptr[last]))
    else:
        starts, ends = source.indptr[own], source.indptr[own + 1]
        counts = ends - starts
        before = counts.cumsum(0) - counts
        where = torch.arange(int(counts.sum()), device="cpu")
        where += torch.repeat_interleave(starts - before, counts)
    return source.indices[where].contiguous(), None if weights is None else weights[where].contiguous()


class _Where:
    """A numbering as the kernels take it; `arrays` keeps alive what they are pointed to."""

    def __init__(self, numbering: Numbering):
        self.arrays: list[Tensor] = []
        if isinstance(numbering, Dealt):
            self.arrays = [numbering._turn, numbering._begin]
            self.arguments = (3, *map(native.address, self.arrays), numbering.ranks)
        elif isinstance(numbering, Listed):
            self.arrays = [numbering._place]
            kind = 1 if numbering._place.dtype == torch.int32 else 2
            self.arguments = (kind, native.address(numbering._place), 0, 0)
        else:
            assert isinstance(numbering, InOrder)
            self.arguments = (0, 0, 0, 0)


def serves(source: Source, blocks: Blocks, data: object) -> bool:
    """Whether the kernels can: C++ is there, arcs carry nothing that is wanted."""
    known = isinstance(blocks.numbering, (InOrder, Dealt, Listed))
    on_cpu = isinstance(source, Store) or native.served(source.indices, source.weights)
    return not data and known and on_cpu and native.served()


def read_plan(
    source: Source, blocks: Blocks, comm: Communicator, how: str, sparse: bool, dtype: torch.dtype,
    overlap: bool, by_host: bool = False,
) -> Plan:  # fmt: skip
    """This rank's share of A, normalised as `how` says, and what it reads of whom; every rank calls it."""
    return _Cut(source, blocks, comm, how, sparse).plan(dtype, overlap, by_host)


class _Cut:
    """What one rank counts and fills.

    rows     of the slab I_i;   unions   the places of the columns of each A_j
    indptr   [slabs, rows + 1]: of every A_j;   sums  [rows]: of whole rows of A
    marks    a bit a place: whether its column is read; none where all are
    """

    def __init__(self, source: Source, blocks: Blocks, comm: Communicator, how: str, sparse: bool):
        self.source, self.blocks, self.comm, self.how, self.sparse = source, blocks, comm, how, sparse
        grid = blocks.grid
        self.i, self.k, _ = grid.place(comm.rank)
        self.unions = [blocks.union(j, self.k) for j in range(grid.row)]
        self.mine = [blocks.union(self.i, j) for j in range(grid.inner)]
        self.slab = blocks.slab(self.i)
        self.vertices = blocks.span(*self.slab)
        self.rows = self.vertices.numel()
        self.index = index_dtype(max(self.rows, blocks.count))
        weights = source.schema.get("weights") if isinstance(source, Store) else source.weights
        self.weighted = how != "loops" and weights is not None
        self.threads = torch.get_num_threads()
        self.where = _Where(blocks.numbering)
        self.begins, self.ends = torch.tensor(self.unions, device="cpu").T.contiguous()
        self._count()

    @property
    def around(self) -> tuple[int, ...]:
        """Where vertices stand, and in which of the A_j that is."""
        stretches = map(native.address, (self.begins, self.ends))
        return (*self.where.arguments, len(self.unions), *stretches)

    @property
    def loops(self) -> bool:
        return self.how in ("gcn", "loops")

    def _count(self) -> None:
        self.indptr = torch.zeros(len(self.unions), self.rows + 1, dtype=torch.int64, device="cpu")
        self.sums = torch.zeros(self.rows, dtype=torch.float64, device="cpu")
        words = self.blocks.count // 64 + 1 if self.sparse else 0
        self.marks = torch.zeros(words, dtype=torch.int64, device="cpu")
        self.before = torch.zeros(words, dtype=torch.int32, device="cpu")
        for raw in _raw(self.source, self.vertices, self.weighted):
            raw.kernel("cut_count")(
                *raw.arguments(self.loops), *self.around,
                native.address(self.indptr) + 8 * (raw.first + 1), self.rows + 1,
                native.address(self.marks), native.address(self.sums) + 8 * raw.first, self.threads,
            )  # fmt: skip
        torch.cumsum(self.indptr, 1, out=self.indptr)
        if self.weighted:
            check_sums(self.sums)
        if self.sparse:
            assert native.extension is not None
            marks, before = map(native.address, (self.marks, self.before))
            native.extension.stream_count_before(marks, words, before)

    def plan(self, dtype: torch.dtype, overlap: bool, by_host: bool) -> Plan:
        """Tell everybody what this rank reads and writes, then fill and scale its matrices."""
        grid = self.blocks.grid
        lines = {axis: grid.along(self.comm, axis) for axis in ("row", "inner", "feature")}
        names, widths, bases, read = self._columns()
        indptr, written = self.indptr, self._written()
        pieces, row_names = [end - begin for begin, end in self.mine], self.vertices
        sizes = list(pieces)
        rows_written: list[Tensor] | None = None
        if written is not None:
            rows_written = [
                written[begin - self.slab[0] : end - self.slab[0]].nonzero().ravel()
                for begin, end in self.mine
            ]
            pieces = [rows.numel() for rows in rows_written]
        by_row = scale_of(self.sums, self.how) if self.how in ("gcn", "mean") else None
        begin, end = (place - self.slab[0] for place in self.mine[self.k])
        own_scale = None if by_row is None else by_row[begin:end].contiguous()
        if written is not None and sum(pieces) < self.rows:
            # Rows that are left out have no entries: those of the others stay where they are.
            indptr = indptr[:, torch.cat([written, written.new_ones(1)])]
            row_names = row_names[written]
            by_row = None if by_row is None else by_row[written]
        widths_of_slabs = [end - begin for begin, end in self.unions]
        row = exchange_along(lines["row"], widths_of_slabs, read if self.sparse else None, overlap, by_host)
        inner = exchange_along(lines["inner"], sizes, rows_written, overlap, by_host)
        indices, values = self._fill(bases, dtype)
        if by_row is not None:
            assert own_scale is not None
            if self.how == "gcn":
                for j, block in row.gather(own_scale[:, None], phase="plan"):
                    self._scale(indptr[j], indices[j], values[j], by_row, block.contiguous())
            else:
                for j in range(len(self.unions)):
                    self._scale(indptr[j], indices[j], values[j], by_row, None)
        matrices: list[CSR | Sliced] = []
        for j, width in enumerate(widths):
            value = values[j].to(dtype) if values else None
            matrices.append(CSR(indptr[j], indices[j], value, (sum(pieces), width)))
        feature = [self.blocks.sizes[peer] for peer in grid.peers(self.comm.rank, "feature")]
        return Plan(FeatureLine(lines["feature"], feature), row, inner, matrices, names, row_names)

    def _columns(self) -> tuple[Names, list[int], list[int], list[Tensor]]:
        """Of every A_j the columns' names, how many they are, what is taken off their numbers, and which."""
        names = Names(self.blocks, self.unions, self.index)
        widths, bases, read = [], [], []
        for j, (begin, end) in enumerate(self.unions):
            if not self._numbered(j):
                widths.append(end - begin)
                bases.append(begin)
                read.append(self.begins[:0])
                continue
            first, last = self._before(begin), self._before(end)
            found = torch.empty(last - first, dtype=self.index, device="cpu")
            native.kernel("cut_list", found)(native.address(self.marks), begin, end, native.address(found))
            names.some[j] = self.blocks.numbering.vertices(begin + found).to(self.index)
            widths.append(last - first)
            bases.append(first)
            read.append(found)
        return names, widths, bases, read

    def _numbered(self, j: int) -> bool:
        """Whether A_j has the columns that are read alone; the own block is whole."""
        return self.sparse and j != self.i

    def _before(self, place: int) -> int:
        """How many columns that are read stand before this place."""
        below = int(self.marks[place // 64]) & ((1 << place % 64) - 1)
        return int(self.before[place // 64]) + below.bit_count()

    def _written(self) -> Tensor | None:
        """Which rows have entries here, or are this rank's own; None where all are kept."""
        if not self.sparse:
            return None
        written = torch.zeros(self.rows, dtype=torch.bool, device="cpu")
        for pointers in self.indptr if len(self.mine) > 1 else ():
            written |= pointers[1:] > pointers[:-1]
        begin, end = (place - self.slab[0] for place in self.mine[self.k])
        written[begin:end] = True
        return written

    def _fill(self, bases: list[int], dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        """(columns, values) of every A_j; values are the weights so far, or not yet written."""
        counts = self.indptr[:, -1].tolist()
        check_fits(
            sum(counts) * (self.index.itemsize + dtype.itemsize),
            f"{sum(counts):,} arcs of {self.source.name} on rank {self.comm.rank}",
            remedy="Use more ranks, or a bigger machine.",
        )
        indices = [torch.empty(count, dtype=self.index, device="cpu") for count in counts]
        values: list[Tensor] = []
        if self.weighted or self.how in ("gcn", "mean"):
            kind = self._weight_type if self.weighted else dtype
            values = [torch.empty(count, dtype=kind, device="cpu") for count in counts]
        to = [np.array([native.address(x) for x in side], dtype=np.uint64) for side in (indices, values)]
        numbered = torch.tensor([self._numbered(j) for j in range(len(bases))], device="cpu")
        beside = (self.marks, self.before, numbered, torch.tensor(bases, device="cpu"))
        for raw in _raw(self.source, self.vertices, self.weighted):
            raw.kernel("cut_fill")(
                *raw.arguments(self.loops), *self.around,
                native.address(self.indptr) + 8 * raw.first, self.rows + 1,
                *map(native.address, beside), self.index == torch.int64, to[0].ctypes.data,
                to[1].ctypes.data if self.weighted else 0, self.threads,
            )  # fmt: skip
        # What is multiplied is not narrower than either: rounded once, at the end.
        return indices, [x.to(torch.promote_types(x.dtype, dtype)) for x in values]

    @property
    def _weight_type(self) -> torch.dtype:
        if isinstance(self.source, Store):
            return self.source.schema["weights"][0]
        assert self.source.weights is not None
        return self.source.weights.dtype

    def _scale(
        self, indptr: Tensor, indices: Tensor, values: Tensor, by_row: Tensor, by_column: Tensor | None
    ) -> None:
        native.kernel("cut_scale", indices, values)(
            by_row.numel(), *map(native.address, (indptr, indices, by_row, by_column)), self.weighted,
            native.address(values), self.threads,
        )  # fmt: skip

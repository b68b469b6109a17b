"""What a partition means on a grid: who reads how many rows of whom, and how many arcs each block has.

counted        from the graph and a partition, exactly
from degrees   expected, of a random partition: a row of out-degree d is read by a slab that owns the share p
               of all vertices with probability 1 − (1 − p)^d
sampled        what metis or a hypergraph saves over random, measured on a part of the graph, times that; of
               blocks, such as a store's parts, the share q of arcs that lead into other slabs is measured on
               rows all over the graph: each of the r − 1 others then has p = q / (r − 1)
from numbers   vertices and arcs alone: degrees as if arcs were thrown (Poisson)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..graph import Graph, Store
from ..parallel import Blocks, Grid
from ..parallel.by_host import groups_of
from ..parallel.foretell import Line, dense_lines
from ..parallel.numbering import InOrder
from ..parallel.source import count_arcs
from ..partition import PartitionOptions, partition_for_grid
from ..partition.arcs import rows_and_columns
from ..partition.grids import crossings

COUNTED_ARCS = 20_000_000
"""Up to this many arcs a graph is cut and counted; above, degrees speak for it."""
SAMPLED_ARCS = 1_000_000
"""Arcs of the part that is cut in place of a graph that is too large."""
STRETCHES, STRETCH = 64, 1 << 14
"""Of a store with more rows than these together so many stretches are looked at, of so many rows each."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Vertices on a grid.

    read   [row, row, inner]    rows of part (j, k) that slab i reads
    wrote  [inner, row, inner]  rows of part (i, k) that inner slab k' writes
    arcs   [row, row, inner]    entries of A_j of rank (i, k)
    """

    blocks: Blocks
    read: np.ndarray
    wrote: np.ndarray
    arcs: np.ndarray
    how: str
    united: tuple[np.ndarray, np.ndarray] | None = None
    """The same where slabs are those of hosts (`HostLines`): [groups, row, inner] each."""

    def lines(self, rank: int, exchange: str, hosts: HostLines | None = None) -> tuple[Line, Line]:
        """(row, inner) of a rank; by host, where hosts are given."""
        if exchange == "dense":
            row, inner = dense_lines(self.blocks, rank)
        else:
            row, inner = self._sparse_lines(rank)
        if hosts is None:
            return row, inner
        i, k, _ = self.blocks.grid.place(rank)
        crossing: list[Line] = []
        for axis, line, me, at in ((0, row, i, k), (1, inner, k, i)):
            of = hosts.of[axis]
            if groups_of(of) is None:
                crossing.append(line)
                continue
            told = [] if exchange == "dense" else self._crossings(axis, of, me, at)
            crossing.append(replace(line, hosts=of, crossings=told))
        return crossing[0], crossing[1]

    def _crossings(self, axis: int, of: Sequence[int], me: int, at: int) -> list[tuple[int, int, list[int]]]:
        """`Line.crossings` of rank `me` of the line along row (0) or inner (1), whose other place is `at`."""
        groups = groups_of(of)
        assert groups is not None
        assert self.united is not None
        direct, united = (self.read, self.wrote)[axis], self.united[axis]
        here = of[me]
        j = groups[here].index(me)

        def rows(table: np.ndarray, reader: int, owner: int) -> int:
            return int(table[reader, owner, at] if axis == 0 else table[reader, at, owner])

        found = []
        for t in range(1, len(groups)):
            there = (here + t) % len(groups)
            owner = groups[there][j]
            found.append(
                (
                    rows(united, there, me),
                    rows(united, here, owner),
                    [rows(direct, q, owner) for q in groups[here]],
                )
            )
        return found

    def _sparse_lines(self, rank: int) -> tuple[Line, Line]:
        grid = self.blocks.grid
        i, k, _ = grid.place(rank)
        others, beside = [j for j in range(grid.row) if j != i], [p for p in range(grid.inner) if p != k]

        def rows(table: np.ndarray, *places: tuple[int, int, int]) -> list[int]:
            return [int(table[at]) for at in places]

        return (
            Line(
                rows(self.read, *((i, j, k) for j in others)), rows(self.read, *((j, i, k) for j in others))
            ),
            Line(
                rows(self.wrote, *((k, i, p) for p in beside)), rows(self.wrote, *((p, i, k) for p in beside))
            ),
        )

    def arcs_of(self, rank: int) -> list[int]:
        i, k, _ = self.blocks.grid.place(rank)
        return [int(n) for n in self.arcs[i, :, k]]

    @property
    def ranks(self) -> list[int]:
        """Those that differ: along `feature` ranks of equal parts do alike."""
        grid = self.blocks.grid
        places = [(i, k) for i in range(grid.row) for k in range(grid.inner)]
        return [rank for i, k in places for rank in self._along(i, k)]

    def _along(self, i: int, k: int) -> list[int]:
        line = [self.blocks.grid.rank(i, k, f) for f in range(self.blocks.grid.feature)]
        return line if len({self.blocks.sizes[rank] for rank in line}) > 1 else line[:1]

    def outliers(self, exchange: str) -> list[int]:
        """The ranks that may be the slowest or the fullest: most arcs, most rows read, most rows owned."""
        grid = self.blocks.grid

        def moved(rank: int) -> int:
            return sum(sum(line.need) + sum(line.give) for line in self.lines(rank, exchange))

        ranks = self.ranks
        busiest = max(ranks, key=moved)
        i, k, _ = grid.place(busiest)
        found = [
            max(ranks, key=lambda rank: sum(self.arcs_of(rank))), *self._along(i, k),
            max(ranks, key=lambda rank: self.blocks.sizes[rank]),
        ]  # fmt: skip
        return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class Shape:
    """A graph as far as plans look at it."""

    vertices: int
    arcs: int
    features: int
    classes: int
    source: Graph | Store | None = None
    """None: by numbers alone."""
    name: str = ""
    counted_arcs: int | None = None
    """Up to so many arcs the graph is cut and counted; None: `COUNTED_ARCS`."""

    @classmethod
    def of(cls, source: Graph | Store, counted_arcs: int | None = None) -> Shape:
        return cls(
            source.num_nodes, source.num_arcs, source.num_features, source.num_classes, source, source.name,
            counted_arcs,
        )  # fmt: skip

    @cached_property
    def cuts(self) -> dict[tuple[Any, ...], Any]:
        """What partitioners made of it, which takes longer than all else in a plan."""
        return {}

    @cached_property
    def graph(self) -> Graph | None:
        """The arcs, where they are few enough to be counted."""
        from ..parallel.assign import bare

        limit = COUNTED_ARCS if self.counted_arcs is None else self.counted_arcs
        if self.source is None or self.arcs > limit:
            return None
        return bare(self.source)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Rows first..last-1 that speak for all: the whole of few, else stretches all over the graph.

        >>> Shape(10, 30, 1, 1).stretches, len(Shape(10**9, 10**10, 1, 1).stretches)
        ([(0, 10)], 64)
        """
        n = self.vertices
        if n <= STRETCHES * STRETCH:
            return [(0, n)]
        return [(at, at + STRETCH) for at in (n * s // STRETCHES for s in range(STRETCHES))]

    @cached_property
    def degrees(self) -> tuple[np.ndarray, np.ndarray]:
        """(degrees of rows, degrees of columns), of all vertices or a sample of them; [1] each by numbers."""
        if self.graph is not None:
            return (
                self.graph.indptr.diff().numpy(),
                np.bincount(self.graph.indices.numpy(), minlength=self.vertices),
            )
        if isinstance(self.source, Store):
            found = [self.source.rows(*some, only=("indptr",)).indptr.diff() for some in self.stretches]
            rows = torch.cat(found).numpy()
        elif self.source is not None:
            rows = self.source.indptr.diff().numpy()
        else:
            rows = np.array([self.arcs / max(1, self.vertices)])
            return rows, rows
        return rows, rows  # arcs are too many to count columns: as in a symmetric graph

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of some arcs, those of the first rows of each of `STRETCHES` stretches. [m] each"""
        most = max(1, SAMPLED_ARCS // STRETCHES)
        n, rows, columns = self.vertices, [], []
        for s in range(STRETCHES):
            first, last = n * s // STRETCHES, n * (s + 1) // STRETCHES
            last = min(last, first + STRETCH)
            if isinstance(self.source, Store):
                starts = self.source.rows(first, last, only=("indptr",)).indptr
            else:
                assert self.source is not None
                starts = self.source.indptr[first : last + 1].cpu()
            few = int(torch.searchsorted(starts - starts[0], most, right=True)) - 1  # a hub is passed over
            if isinstance(self.source, Store):
                found = self.source.rows(first, first + few, only=("indices",)).indices
            else:
                found = self.source.indices[starts[0] : starts[few]].cpu()
            rows.append(np.repeat(np.arange(first, first + few), starts[: few + 1].diff().numpy()))
            columns.append(found.numpy())
        return np.concatenate(rows), np.concatenate(columns)

    @cached_property
    def sample(self) -> Graph | None:
        """Some vertices in their order with the arcs among them: what is cut in place of the whole."""
        if self.source is None:
            return None
        share = min(1.0, SAMPLED_ARCS / max(1, self.arcs))
        count = max(1, int(self.vertices * share))
        rows = self.source.rows(0, count, only=("indices",)) if isinstance(self.source, Store) else None
        indptr = self.source.indptr[: count + 1] if rows is None else rows.indptr  # type: ignore[union-attr]
        indices = (
            self.source.indices[: int(indptr[-1])] if rows is None else rows.indices  # type: ignore[union-attr]
        )
        here = indices < count
        kept = torch.repeat_interleave(torch.arange(count, device="cpu"), indptr.diff())[here]
        return Graph.from_arcs(indices[here].long(), kept, num_nodes=count)

    def loops(self, adjacency: str) -> int:
        """Arcs that the normalisation adds: a loop a vertex."""
        return self.vertices if adjacency in ("gcn", "loops") else 0


@dataclass(frozen=True)
class HostLines:
    """The hosts along a grid's lines: of each rank of a line along row, and along inner."""

    of: tuple[list[int], list[int]]

    @classmethod
    def on(cls, grid: Grid, places: int | Sequence[int]) -> HostLines | None:
        """`places`: the host of each rank, or ranks a host, dealt out in their order. None where no line has
        anything to share, or lines differ.

        >>> HostLines.on(Grid(4), 2), HostLines.on(Grid(4), [0, 1, 0, 1])
        (HostLines(of=([0, 0, 1, 1], [0])), HostLines(of=([0, 1, 0, 1], [0])))
        >>> HostLines.on(Grid(2, 2), 2) is None, HostLines.on(Grid(4), 4) is None
        (True, True)
        """
        if isinstance(places, int):
            places = [rank // places for rank in range(grid.size)]
        if len(set(places)) in (1, grid.size):
            return None
        shared = False
        found: list[list[int]] = []
        for at, axis in enumerate(("row", "inner")):
            lines = set()
            for rank in (
                rank for rank in range(grid.size) if not grid.place(rank)[at]
            ):  # the first of a line
                hosts = [places[peer] for peer in grid.peers(rank, axis)]
                lines.add(tuple(list(dict.fromkeys(hosts)).index(host) for host in hosts))
            if len(lines) > 1:
                return None
            found.append(list(lines.pop()))
            shared |= groups_of(found[-1]) is not None
        return cls((found[0], found[1])) if shared else None


def cut(
    shape: Shape, grid: Grid, partition: str, adjacency: str, seed: int = 0, hosts: HostLines | None = None
) -> Cut:
    """The graph on a grid under a partition, counted where it can be.

    >>> from weft.graph import karate
    >>> found = cut(Shape.of(karate()), Grid(2), "block", "gcn")
    >>> found.how, int(found.arcs.sum()), found.lines(0, "sparse")[0].need
    ('counted', 190, [9])
    """
    graph = shape.graph
    if graph is not None:
        return _counted(shape, graph, grid, _blocks(shape, graph, grid, partition, seed), adjacency, hosts)
    if partition == "block" and shape.source is not None and len(shape.ends[0]):
        how = f"sampled: {len(shape.ends[0]):,} arcs were looked at"
        return _expected(shape, grid, adjacency, 1.0, how, hosts, in_order(shape, grid))
    if partition in ("random", "block", "hash"):
        how = "from numbers" if shape.source is None else "from degrees"
        return _expected(shape, grid, adjacency, 1.0, how, hosts)
    sample = shape.sample
    if sample is None:
        raise UserError(
            f"partition {partition} needs the graph's arcs: by numbers alone only random is planned."
        )
    key = ("saves", grid.shape, partition, seed)
    if key not in shape.cuts:
        shape.cuts[key] = _saving(sample, grid, partition, seed)
    saves = shape.cuts[key]
    return _expected(shape, grid, adjacency, saves, f"sampled: {sample.num_nodes:,} vertices were cut", hosts)


def in_order(shape: Shape, grid: Grid) -> Blocks:
    """Blocks of the vertices in their order: a store's parts where it has as many, else even ones."""
    parts = shape.source.parts if isinstance(shape.source, Store) else None
    if parts is not None and len(parts) == grid.size:
        return Blocks(grid, InOrder(shape.vertices), parts)
    return Blocks.even(shape.vertices, grid)


def _blocks(shape: Shape, graph: Graph, grid: Grid, partition: str, seed: int) -> Blocks:
    if partition == "block":
        return in_order(shape, grid)
    if partition == "random":
        return Blocks.even(shape.vertices, grid, seed if grid.size > 1 else None)
    if partition.endswith(".npy"):
        from ..parallel.assign import read_parts

        return Blocks.of_parts(read_parts(partition, shape.vertices), grid)
    key = (grid.shape, partition, seed)
    if key not in shape.cuts:
        shape.cuts[key] = partition_for_grid(graph, grid.shape, partition, PartitionOptions(seed=seed))
    return Blocks.of_parts(shape.cuts[key], grid)


def _counted(
    shape: Shape, graph: Graph, grid: Grid, blocks: Blocks, adjacency: str, hosts: HostLines | None
) -> Cut:
    place = (blocks.parts // grid.feature).numpy()
    r, k = grid.row, grid.inner
    read, wrote = crossings(graph, place, (r, k))
    united = None if hosts is None else crossings(graph, place, (r, k), hosts.of)
    rows, columns = rows_and_columns(graph)
    at = (place[rows] // k * r + place[columns] // k) * k + place[columns] % k
    arcs = np.bincount(at, minlength=r * r * k).reshape(r, r, k)
    if shape.loops(adjacency):  # one for each vertex that has none
        bare = np.ones(shape.vertices, dtype=bool)
        bare[rows[rows == columns]] = False
        np.add.at(arcs, (place[bare] // k, place[bare] // k, place[bare] % k), 1)
    return Cut(blocks, read, wrote, arcs, "counted", united)


def _expected(
    shape: Shape, grid: Grid, adjacency: str, saves: float, how: str, hosts: HostLines | None,
    lying: Blocks | None = None,
) -> Cut:  # fmt: skip
    """A random partition, as degrees have it; `saves`: times the rows that cross. `lying`: the vertices lie
    in their order, and arcs cross as often as a sample of them does."""
    n, r, k = shape.vertices, grid.row, grid.inner
    blocks = lying or Blocks.even(n, grid)  # in order: nobody holds n numbers
    rows, columns = shape.degrees

    def apart(axis: int, of: Sequence[int]) -> float:
        """The share of arcs that lead from one of the even parts along row (0) or inner (1) to another;
        `of`: which part each slab is of."""
        if lying is None:
            return 1 - 1 / (max(of) + 1)
        here, there = (np.asarray(of)[_slabs(lying, ends, axis)] for ends in shape.ends)
        return float(np.mean(here != there))

    def touched(degrees: np.ndarray, axis: int, of: Sequence[int]) -> float:
        """The share of rows with at least one arc into a certain other part."""
        share = min(1.0, apart(axis, of) / max(1, max(of)))
        if shape.source is None:
            return float(1 - np.exp(-degrees[0] * share))  # the degrees are Poisson's
        return float(np.mean(1 - (1 - share) ** degrees))

    def size(i: int, p: int) -> int:
        begin, end = blocks.union(i, p)
        return end - begin

    crossing = min(1.0, saves)
    read, wrote = np.zeros((r, r, k), dtype=np.int64), np.zeros((k, r, k), dtype=np.int64)
    arcs = np.zeros((r, r, k), dtype=np.int64)
    reads, writes = touched(columns, 0, range(r)) * crossing, touched(rows, 1, range(k)) * crossing
    away = apart(0, range(r)) / max(1, r - 1)
    for i in range(r):
        whole = shape.arcs / r
        if lying is not None and shape.source is not None:
            whole = count_arcs(shape.source, *lying.slab(i))  # two numbers are read
        for p in range(k):
            for j in range(r):
                if j != i:
                    read[i, j, p] = round(size(j, p) * reads)
                arcs[i, j, p] = round(whole / k * (away if j != i else 1 - (r - 1) * away))
            for q in range(k):
                if q != p:
                    wrote[q, i, p] = round(size(i, p) * writes)
            arcs[i, i, p] += size(i, p) if shape.loops(adjacency) else 0
    if hosts is None:
        return Cut(blocks, read, wrote, arcs, how)
    united = []
    for axis, (of, degrees) in enumerate(zip(hosts.of, (columns, rows), strict=True)):
        share = touched(degrees, axis, of) * crossing
        whole_sizes = np.array([[size(i, p) for p in range(k)] for i in range(r)])
        count = max(of) + 1
        united.append(np.broadcast_to(np.round(whole_sizes * share), (count, r, k)).astype(np.int64))
    return Cut(blocks, read, wrote, arcs, how, (united[0], united[1]))


def _slabs(blocks: Blocks, vertices: np.ndarray, axis: int) -> np.ndarray:
    """The slab along row (0) or inner (1) that each of these vertices is in; they lie in order. [m] → [m]"""
    grid = blocks.grid
    rank = np.searchsorted(np.array(blocks.offsets[1:]), vertices, side="right")
    return rank // grid.feature // grid.inner if axis == 0 else rank // grid.feature % grid.inner


def _saving(sample: Graph, grid: Grid, partition: str, seed: int) -> float:
    """Rows that cross under a partition, as a share of those under a random one."""
    pair = (grid.row, grid.inner)
    crossed = []
    for method in (partition, "random"):
        blocks = _blocks(Shape.of(sample), sample, grid, method, seed)
        read, wrote = crossings(sample, (blocks.parts // grid.feature).numpy(), pair)
        crossed.append(int(read.sum() + wrote.sum()))
    return crossed[0] / max(1, crossed[1])

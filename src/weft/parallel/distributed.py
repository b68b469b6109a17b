"""A graph on a grid: what a model multiplies with, and what a trainer asks of it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..errors import UserError, unknown
from ..kernels import CSR, Move, Stream
from ..kernels.kept import Kept, repeat
from . import edges
from .attend import Attend, Attention, SelfAttend
from .blocks import Blocks
from .exchange import Exchange
from .grid import Grid
from .propagate import Columns, Plan, Propagate, PropagateExtremum, Sliced
from .source import Arcs, Source, read_normalised, read_vertices
from .volume import Count, Line, Volume, count_move


class DistributedGraph:
    """The normalised adjacency of a graph on a grid of ranks, and this rank's share of the vertices.

    One rank is the 1×1×1 grid: the same code.

        rows        [n_own]  the vertices that this rank owns, by their number in the graph
        A @ h       [n_own, w] → [n_own, w], with messages among the ranks

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> from weft.graph import karate
    >>> def work(comm):
    ...     graph = DistributedGraph.build(karate(), comm, Grid(2, 1, 2), how="mean")
    ...     return graph.collect(graph @ torch.ones(graph.rows.numel(), 3))[0].tolist()
    >>> run_ranks(work, 4, "threads")[0]
    [1.0, 1.0, 1.0]
    """

    def __init__(self, comm: Communicator, blocks: Blocks, plan: Plan, rows: Tensor, arcs: int):
        self.comm, self.blocks, self.plan, self.rows, self.arcs = comm, blocks, plan, rows, arcs
        self.num_nodes = blocks.order.numel()
        self._kept = Kept()
        self._counts: Tensor | None = None

    @property
    def grid(self) -> Grid:
        return self.blocks.grid

    @classmethod
    def build(
        cls,
        source: Source,
        comm: Communicator,
        grid: Grid,
        how: str = "gcn",
        exchange: str = "dense",
        blocks: Blocks | None = None,
        dtype: torch.dtype = torch.float32,
        overlap: bool = True,
        move_adjacency: bool = False,
    ) -> DistributedGraph:
        """Read this rank's share of a graph or a store, normalise it, and make the plan.

        `blocks` says who owns what; by default even blocks of the vertices in their order.
        `move_adjacency` holds A(i,k) in slices along feature and gathers it for every product.
        """
        if grid.size != comm.size:
            raise UserError(
                f"grid {grid} needs {grid.size} ranks, {comm.size} are here. Use --ranks {grid.size}."
            )
        if exchange not in ("dense", "sparse"):
            raise unknown("exchange", exchange, ["dense", "sparse"])
        blocks = Blocks.even(source.num_nodes, grid) if blocks is None else blocks
        if blocks.grid != grid:
            raise UserError(
                f"the blocks are for grid {blocks.grid}, this is {grid}. Make them for this grid."
            )
        if blocks.order.numel() != source.num_nodes:
            raise UserError(
                f"the blocks are those of {blocks.order.numel()} vertices, the graph has {source.num_nodes}. "
                "Make them for this graph."
            )
        i, _, _ = grid.place(comm.rank)
        slab, own = blocks.slab(i), blocks.own(comm.rank)
        arcs = read_normalised(
            source, blocks.order[slab[0] : slab[1]], how, comm,
            (own[0] - slab[0], own[1] - slab[0]), blocks.sizes, blocks.place_of,
        )  # fmt: skip
        plan = _plan(arcs, blocks, comm, exchange == "sparse", dtype, overlap)
        if move_adjacency:
            check_slices(grid)
            line = plan.columns.comm
            plan.matrices = [Sliced(plan.matrix(j), line) for j in range(grid.row)]
        return cls(comm, blocks, plan, blocks.order[own[0] : own[1]], sum(a.arcs for a in plan.matrices))

    @classmethod
    def local(cls, a: CSR) -> DistributedGraph:
        """One rank that holds this matrix: the 1×1×1 grid. A may be a block of rows × columns of two sizes.

        >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
        >>> (DistributedGraph.local(a) @ torch.tensor([[1.0], [2.0]])).ravel()
        tensor([2., 1.])
        """
        grid, comm = Grid(1, 1, 1), single()
        blocks = Blocks.even(a.shape[0], grid)
        rows = torch.arange(a.shape[0]) if a.rows is None else a.rows
        line = {axis: grid.along(comm, axis) for axis in ("row", "inner", "feature")}
        plan = Plan(
            Columns(line["feature"], blocks, 0), Exchange(line["row"], [a.shape[1]]),
            Exchange(line["inner"], [a.shape[0]]), [a],
            [torch.arange(a.shape[1], dtype=a.indices.dtype)], rows,
        )  # fmt: skip
        return cls(comm, blocks, plan, rows, a.arcs)

    # What a layer asks (weft.nn.Adjacency).

    def __matmul__(self, h: Tensor) -> Tensor:
        return self.propagate(h)

    def propagate(self, h: Tensor) -> Tensor:
        """A h. [n_own, w] → [n_own, w]."""
        if h.dim() != 2 or h.shape[0] != self.rows.numel():
            raise ValueError(f"this rank owns {self.rows.numel()} vertices, h is {tuple(h.shape)}")
        return Propagate.apply(h, self.plan)

    def aggregate(self, h: Tensor, reduce: str = "sum") -> Tensor:
        """y[i] = ⊕ over j of a_ij h[j], ⊕ one of sum, mean, max, min."""
        if reduce == "sum":
            return self.propagate(h)
        if reduce == "mean":
            return self.propagate(h) / self._degrees().clamp(min=1).to(h.dtype)
        if reduce in ("max", "min"):
            return PropagateExtremum.apply(h, self.plan, reduce == "max")
        raise unknown("reduction", reduce, ["sum", "mean", "max", "min"])

    def once(self, x: Tensor, reduce: str = "sum", hops: int = 1) -> Tensor:
        """The same, `hops` times over, for an x that never changes: computed on first use and kept."""
        return self._kept.get((reduce, hops), x, lambda: repeat(lambda y: self.aggregate(y, reduce), x, hops))

    def keep(self, name: str, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """`make()`, which depends on A and on an x that never changes alone: made on first use and kept."""
        return self._kept.get((name,), x, make)

    # What an attention asks (weft.nn.algebra): numbers per arc of A.

    def attend(
        self,
        row: Tensor,
        column: Tensor,
        x: Tensor,
        gain: Tensor | None = None,
        scale: Tensor | None = None,
        kind: str = "additive",
        heads: int = 1,
        slope: float = 1.0,
        softmax: bool = True,
        drop: tuple[float, Stream] | None = None,
    ) -> Tensor:
        """Ψ x, Ψ the (row softmax of the) scores at A's entries, through the fused kernels.

            additive  s_ij = leaky(row_i + column_j)     row, column  [n_own, heads]
            dot       s_ij = scale_i gain_j ⟨row_i, column_j⟩    row, column  [n_own, heads · d],
                                                         scale, gain  [n_own, heads], 1 where not given
            x         [n_own, heads · out], each head's columns beside each other; so is the result
            drop      (p, stream): share of the arcs left out in each head

        A's own values are not read: `attend` sees where A has entries.
        """
        if kind not in ("additive", "dot"):
            raise unknown("attention", kind, ["additive", "dot"])
        self._check({"row": row, "scale": scale}, {"column": column, "x": x, "gain": gain})
        for name, t in (("row", row), ("column", column), ("x", x)):
            if t.shape[1] % heads:
                raise ValueError(f"{name} is {tuple(t.shape)}, which {heads} heads do not divide")
        if kind == "additive" and not row.shape[1] == column.shape[1] == heads:
            raise ValueError(
                f"additive scores have {heads} columns, not {row.shape[1]} and {column.shape[1]}"
            )
        for name, factor in (("gain", gain), ("scale", scale)):
            if factor is not None and (kind != "dot" or factor.shape[1] != heads):
                raise ValueError(
                    f"a {name} is [n, {heads}], of dot products; not {tuple(factor.shape)} of {kind}"
                )
        if row.shape[1] != column.shape[1]:
            raise ValueError(f"the two sides have {row.shape[1]} and {column.shape[1]} columns")
        dropped = None if drop is None or drop[0] == 0 else (drop[0], drop[1].key)
        how = Attention(kind, heads, slope, softmax, dropped)
        if kind == "dot" and row is column is x and self._square:
            learns = torch.is_grad_enabled()
            learned = [learns and t is not None and t.requires_grad for t in (x, scale, gain)]
            sloped = learned == [False, True, False]
            if sloped or not any(learned) or self._symmetric:
                ones = x.new_ones(x.shape[0], heads)
                scale, gain = ones if scale is None else scale, ones if gain is None else gain
                names = self.plan.row_names.long(), self.plan.names[0].long()
                return SelfAttend.apply(x, scale, gain, self.plan.matrix(0), how, names, sloped)
        if scale is not None:
            by_head = row.view(row.shape[0], heads, row.shape[1] // heads)  # a rank may have no rows
            row = (by_head * scale[:, :, None]).view_as(row)
        return Attend.apply(row, column, x, gain, self.plan, how)

    @functools.cached_property
    def _square(self) -> bool:
        """Whether this rank has all of A, with the same vertices on both sides."""
        if self.comm.size > 1:
            return False
        plan, shape = self.plan, self.plan.matrix(0).shape
        return shape[0] == shape[1] and torch.equal(plan.row_names.long(), plan.names[0].long())

    @functools.cached_property
    def _symmetric(self) -> bool:
        """Whether, moreover, A has an entry (j, i) for every (i, j)."""
        if not self._square:
            return False
        a = self.plan.matrix(0)
        return torch.equal(a.T.indptr, a.indptr) and torch.equal(a.T.indices, a.indices)

    def _check(self, rows: dict[str, Tensor | None], columns: dict[str, Tensor | None]) -> None:
        """Refuse operands that kernels would misread: of another number of rows, or of another type.

        A row-side operand has a row for each row of A at hand; a column-side one for each own vertex, which
        of a single matrix are its columns.
        """
        across = self.plan.matrix(0).shape[1] if self.comm.size == 1 else self.rows.numel()
        first = next((name, t.dtype) for name, t in (rows | columns).items() if t is not None)
        for side, wanted in ((rows, self.rows.numel()), (columns, across)):
            for name, t in side.items():
                if t is None:
                    continue
                if t.dim() != 2 or t.shape[0] != wanted:
                    raise ValueError(f"{name} is {tuple(t.shape)}, for {wanted} vertices at hand")
                if t.dtype != first[1]:
                    raise TypeError(
                        f"{name} is {t.dtype}, {first[0]} is {first[1]}. Bring both to one type with .to()."
                    )

    def spread(self, x: Tensor, side: str) -> Tensor:
        """e[arc] = x[i] (side "row") or x[j] (side "column"). [n_own, h] → [arcs, h]."""
        return edges.spread(self.plan, x, side)

    def dots(self, x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
        """e[arc, h] = ⟨x[i], y[j]⟩ in head h. [n_own, heads · d], twice → [arcs, heads]."""
        self._check({"x": x}, {"y": y})
        return edges.Dots.apply(x, y, self.plan, heads)

    def sum_arcs(self, e: Tensor) -> Tensor:
        """y[i] = Σ over the arcs of row i of e[arc]. [arcs, h] → [n_own, h]."""
        return edges.sum_arcs(self.plan, e)

    def softmax_arcs(self, e: Tensor) -> Tensor:
        """Softmax over the arcs of each row. [arcs, h] → [arcs, h]."""
        return edges.Softmax.apply(e, self.plan)

    def weigh(self, e: Tensor, x: Tensor, reduce: str = "sum") -> Tensor:
        """y[i] = ⊕ over the arcs of row i of e[arc] x[j]. [arcs, heads], [n_own, heads · w] → the latter."""
        self._check({}, {"x": x})
        if x.shape[1] % e.shape[1]:
            raise ValueError(f"S has {e.shape[1]} heads, which do not divide the {x.shape[1]} columns of X")
        e = e.to(x.dtype)
        if reduce in ("max", "min"):
            parts = x.unflatten(1, (e.shape[1], x.shape[1] // e.shape[1])).unbind(1)
            best = [
                edges.WeighExtremum.apply(s, part, self.plan, reduce == "max")
                for s, part in zip(e.split(1, 1), parts, strict=True)
            ]
            return best[0] if len(best) == 1 else torch.cat(best, 1)
        if reduce not in ("sum", "mean"):
            raise unknown("reduction", reduce, ["sum", "mean", "max", "min"])
        y = edges.Weigh.apply(e, x, self.plan)
        return y if reduce == "sum" else y / self._degrees().clamp(min=1).to(y.dtype)

    def drop_arcs(self, e: Tensor, p: float, stream: Stream) -> Tensor:
        """keep ∘ e / (1 − p): the mask depends on the stream, both vertices and the head alone."""
        return e if p == 0 else edges.drop_arcs(self.plan, e, p, stream.key)

    def number(self, x: Tensor) -> Tensor:
        """A weight [heads] or [] among numbers per arc: counted once, though a feature line has f of it."""
        ranks = self.grid.feature
        return x if ranks == 1 or not x.requires_grad else edges.Number.apply(x, ranks)

    @property
    def plain(self) -> bool:
        """Whether every entry of A is 1."""
        return all(a.values is None for a in self.plan.matrices)

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        """A's own values, [arcs, 1]; as they are stored where no type is named."""
        return edges.values_of(self.plan, dtype)

    def _degrees(self) -> Tensor:
        """Entries of each own row, [n_own, 1], whoever holds them."""
        if self._counts is None:
            plain: list[CSR | Sliced] = []
            for j in range(len(self.plan.matrices)):
                a = self.plan.matrix(j)
                plain.append(CSR(a.indptr, a.indices, None, a.shape))
            plan = dataclasses.replace(self.plan, matrices=plain)
            # One column would leave feature ranks without any.
            width = self.grid.feature
            self._counts = plan.forward(torch.ones(self.rows.numel(), width, dtype=torch.float64))[:, :1]
        return self._counts

    # What a trainer asks.

    def own(self, x: Tensor) -> Tensor:
        """This rank's rows of a global tensor. [n, ...] → [n_own, ...]."""
        return x[self.rows]

    def read(self, source: Source, key: str) -> Tensor | None:
        """This rank's rows of the features, labels or a mask, read from where they are."""
        return read_vertices(source, self.rows, key)

    def collect(self, x: Tensor) -> Tensor:
        """The global tensor of everybody's rows, on every rank. [n_own, ...] → [n, ...]."""
        width = math.prod(x.shape[1:])  # not from the elements: a rank may have no rows
        flat = x.detach().reshape(-1)
        got = self.comm.all_gather(flat, [s * width for s in self.blocks.sizes], phase="collect")
        out = torch.empty_like(got).view(self.num_nodes, width)
        out[self.blocks.order] = got.view(self.num_nodes, width)
        return out.view(self.num_nodes, *x.shape[1:])

    def predict(
        self, widths: Sequence[int], forward: bool = True, backward: bool = True, winners: bool = False
    ) -> Volume:
        """Words and messages that this rank receives for one propagation at each of these widths."""
        kind = "extremum" if winners else "propagate"
        return self.predict_moves([Move(kind, width) for width in widths], forward, backward)

    def predict_moves(self, moves: Sequence[Move], forward: bool = True, backward: bool = True) -> Volume:
        """Words and messages that this rank receives for these moves (`Model.moves`), by closed formulas."""
        row, inner = (_line(exchange) for exchange in (self.plan.row, self.plan.inner))
        count = Count(self.blocks, self.comm.rank, row, inner, edges.arcs_of(self.plan), self._adjacency())
        for move in moves:
            count_move(count, move, forward, backward)
        return count.volume

    def _adjacency(self) -> Volume:
        """What one product, forward or backward, gathers of A where that lies in slices."""
        volume = Volume()
        for traffic in (t for a in self.plan.matrices if isinstance(a, Sliced) for t in a.traffic()):
            if traffic.words:
                volume = volume + Volume({"adjacency": traffic.words}, {"adjacency": traffic.messages})
        return volume


def check_slices(grid: Grid) -> None:
    """Refuse `move_adjacency` on a grid that has nothing to cut."""
    if grid.feature == 1:
        raise UserError(
            f"--move-adjacency cuts A along the feature axis, grid {grid} has none. "
            "Use --strategy 2d, 3d or feature with more ranks."
        )


def _line(exchange: Exchange) -> Line:
    me = exchange.comm.rank
    return Line(
        [rows for p, rows in enumerate(exchange.need_sizes) if p != me],
        [rows for p, rows in enumerate(exchange.give_sizes) if p != me],
    )


def _plan(
    arcs: Arcs, blocks: Blocks, comm: Communicator, sparse: bool, dtype: torch.dtype, overlap: bool
) -> Plan:
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
    place = blocks.place_of[arcs.vertex]
    slab_of = torch.full_like(place, -1)
    for j, (begin, end) in enumerate(unions):
        slab_of[(place >= begin) & (place < end)] = j
    inside = slab_of >= 0
    arcs, place, slab_of = arcs.pick(inside), place[inside], slab_of[inside]

    # rows of T, by the rank of the inner line that they are for
    row, pieces = arcs.row, [end - begin for begin, end in mine]
    rows_written: list[Tensor] | None = None
    if sparse:
        written = torch.zeros(slab[1] - slab[0], dtype=torch.bool)
        written[row] = True
        begin, end = mine[k]
        written[begin - slab[0] : end - slab[0]] = True  # the own piece is whole
        rows_written = [written[b - slab[0] : e - slab[0]].nonzero().ravel() for b, e in mine]
        pieces = [r.numel() for r in rows_written]
        row = (written.cumsum(0) - 1)[row]
    total = sum(pieces)
    row_names = blocks.order[slab[0] : slab[1]]
    row_names = row_names if rows_written is None else row_names[written]

    index = torch.int32 if max(total, blocks.order.numel()) < 2**31 else torch.int64
    matrices: list[CSR | Sliced] = []
    names, columns_read = [], []
    for j, (begin, end) in enumerate(unions):
        here = slab_of == j
        column, width = place[here] - begin, end - begin
        name = blocks.order[begin:end]
        if sparse and j != i:
            read, column = torch.unique(column, return_inverse=True)
            name, width = name[read], read.numel()
            columns_read.append(read)
        else:
            columns_read.append(torch.arange(width))
        counts = torch.bincount(row[here], minlength=total)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        value = None if arcs.value is None else arcs.value[here].to(dtype)
        matrices.append(CSR(indptr, column.to(index), value, (total, width)))
        names.append(name.to(index))

    row_sizes = [end - begin for begin, end in unions]
    return Plan(
        Columns(lines["feature"], blocks, comm.rank),
        Exchange(lines["row"], row_sizes, columns_read if sparse else None, overlap),
        Exchange(lines["inner"], [e - b for b, e in mine], rows_written, overlap),
        matrices,
        names,
        row_names,
    )

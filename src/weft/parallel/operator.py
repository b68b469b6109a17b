"""The operator: A between a layout of rows and a layout of columns, and what a layer may ask of it.

    what                                   rows                  columns              h
    the whole graph on a grid              the own vertices      the same             Rows
    a sampled block of one rank            its targets           its sources          of one rank
    the same, features cut by columns      targets of all ranks  sources              Columns

Which kernel runs is chosen here and below. What moves follows from the plan; `foretell` runs the same code on
tensors without numbers, on communicators that count, so that words are known before anything is sent.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..errors import UserError, unknown
from ..kernels import CSR, Semiring, Stream, dropout, gather_rows, norms
from ..kernels.fold import Fold
from . import direct
from .arcwise import Arcwise
from .blocks import Blocks
from .by_host import ByHost
from .cutting import cut_into_plan, reads_of
from .entries import Entries, extremum_of
from .exchange import Exchange
from .fetch import ByBlocks
from .fold import FoldArcs
from .grid import Grid
from .layout import Partial, Replicated, Rows, Stacked, redistribute
from .propagate import FeatureLine, Plan, Propagate, PropagateExtremum, Sliced, Wrap
from .source import Arcs, Source, check_how, read_normalised
from .transposed import transposed
from .volume import Volume, counted

Sampled = TypeVar("Sampled", covariant=True)


class Virtual(Protocol[Sampled]):
    """An n×n matrix that is never made (`weft.nn.algebra`): it can be seen where A has entries."""

    def sampled_at(self, A: Any) -> Sampled: ...


class Operator(Arcwise):
    """A, and this rank's share of its rows.

        rows      [t]  the vertices of the rows that `A @ h` gives here, by their number in the graph
        columns   [s]  the vertices of the rows of h; the same where A is a whole graph
        layout    who owns which vertex, of a whole graph

    One rank is the 1×1×1 grid: the same code.

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> from weft.graph import karate
    >>> def work(comm):
    ...     A = Operator.build(karate(), comm, Grid(2, 1, 2), how="mean")
    ...     return A.layout.collect(A @ torch.ones(A.rows.numel(), 3))[0].tolist()
    >>> run_ranks(work, 4, "threads")[0]
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        plan: Plan,
        rows: Tensor,
        columns: Tensor | None = None,
        layout: Rows | None = None,
        targets: Tensor | None = None,
        given: Tensor | None = None,
        partial: Partial | None = None,
        owners: Stacked | None = None,
        first_column: int = 0,
        width: int = 0,
    ):
        """
        targets       [t] where the rows stand among those of h; None: h's first t
        given         h, where that lies in columns first_column … of `width`; then results are `partial`
        owners        whose rows they are then: the first ones the first rank's, and so on
        """
        self.plan, self.rows, self.columns, self._layout = plan, rows, columns, layout
        self._targets, self._given, self._partial, self._owners = targets, given, partial, owners
        self._first_column, self._width = first_column, width
        self._held: Tensor | None = None
        self._made: dict[Hashable, tuple[int, Tensor]] = {}
        self._degrees: Tensor | None = None
        self._said: dict[str, str] = {}
        self._transpose: tuple[Operator, Tensor] | None = None
        self._real: tuple[Operator, Wrap] | None = None  # of a dry one: whose sizes it has
        self.made_once: dict[Hashable, Tensor] = {}
        """What follows from A's entries alone, by name."""

    # Where it comes from.

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
        device: torch.device | str = "cpu",
        data: Collection[str] = (),
        by_host: bool = False,
    ) -> Operator:
        """Read this rank's share of a graph or a store, normalise it, and make the plan.

        `blocks` says who owns what; by default even blocks of the vertices in their order.
        `move_adjacency` holds A(i,k) in slices along feature and gathers it for every product.
        `data` names what arcs carry and layers read: the matrices then have it (`CSR.data`), floating-point
        numbers as [arcs, d] of type `dtype`, whole ones as int64; of loops as in `with_loops`.
        `by_host` lets rows that several ranks of a host read cross to it once (`ByHost`).
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
        if blocks.count != source.num_nodes:
            raise UserError(
                f"the blocks are those of {blocks.count} vertices, the graph has {source.num_nodes}. "
                "Make them for this graph."
            )
        check_how(how)
        if direct.serves(source, blocks, data):
            layout = Rows(comm, blocks)
            plan = direct.read_plan(source, blocks, comm, how, exchange == "sparse", dtype, overlap, by_host)
            A = cls(plan, layout.ids, layout=layout)
        else:
            i, _, _ = grid.place(comm.rank)
            slab, own = blocks.slab(i), blocks.own(comm.rank)
            arcs = read_normalised(
                source, blocks.span(*slab), how, comm, (own[0] - slab[0], own[1] - slab[0]),
                ByBlocks(blocks), data, dtype, reads_of(blocks, comm.rank),
            )  # fmt: skip
            A = cls.of_arcs(arcs, blocks, comm, exchange == "sparse", dtype, overlap, by_host)
        if move_adjacency:
            check_slices(grid)
            line = A.plan.feature.comm
            A.plan.matrices = [Sliced(A.plan.matrix(j), line) for j in range(grid.row)]
        A.plan = A.plan if str(device) == "cpu" else A.plan.to(device)
        return A

    @classmethod
    def of_arcs(
        cls, arcs: Arcs, blocks: Blocks, comm: Communicator, sparse: bool, dtype: torch.dtype,
        overlap: bool = True, by_host: bool = False,
    ) -> Operator:  # fmt: skip
        """A from the arcs into this rank's slab, as they are: by row, within a row by vertex."""
        layout = Rows(comm, blocks)
        plan = cut_into_plan(arcs, blocks, comm, sparse, dtype, overlap, by_host)
        return cls(plan, layout.ids, layout=layout)

    @classmethod
    def local(cls, a: CSR, rows: Tensor | None = None, columns: Tensor | None = None, mean: bool = False,
              **more: Any) -> Operator:  # fmt: skip
        """One rank that holds this matrix; it may be a block of rows × columns of two sizes.

            rows, columns   the vertices that they stand for; by default 0, 1, …
            mean            a row's sum is divided by its number of entries

        >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
        >>> (Operator.local(a) @ torch.tensor([[1.0], [2.0]])).ravel()
        tensor([2., 1.])
        """
        line = _alone()
        rows = torch.arange(a.shape[0], device=a.indptr.device) if rows is None else rows
        names = None if columns is None else [columns]
        plan = Plan(
            FeatureLine(line, [a.shape[0]]), Exchange(line, [a.shape[1]]), Exchange(line, [a.shape[0]]),
            [a], names, rows, mean,
        )  # fmt: skip
        return cls(plan, rows, columns, **more)

    @classmethod
    def planned(cls, plan: Plan, rows: Tensor) -> Operator:
        """An operator of a plan that has sizes and no numbers, on a grid."""
        out = cls(plan, rows)
        out.__dict__.update(_whole=False, _square=False, _symmetric=False, _block=False)
        return out

    # What a layer asks (weft.nn.Adjacency).

    def __matmul__(self, h: Tensor) -> Tensor:
        return self.aggregate(h)

    def __mul__(self, virtual: Virtual[Sampled]) -> Sampled:
        """A * V: the virtual n×n matrix V, seen where A has entries."""
        return virtual.sampled_at(self)

    def aggregate(self, h: Tensor, reduce: str | Semiring = "sum") -> Tensor:
        """y[i] = ⊕ over j of a_ij ⊗ h[j]. [s, w] → [t, w].

            sum, mean, max, min   of the products a_ij h_j; 0 in rows without arcs
            a Semiring            its ⊕ and ⊗; its zero in rows without arcs, from which no gradient goes

        An arc without a weight has the entry 1, also where ⊗ is +.

        >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([5.0, 1.0]), (2, 2))
        >>> nearest = Semiring(torch.minimum, torch.add, torch.inf)
        >>> Operator.local(a).aggregate(torch.tensor([[0.0], [2.0]]), nearest).ravel()
        tensor([3., inf])
        """
        return self.keep(reduce, h, lambda: self._aggregate(h, reduce))

    def _aggregate(self, h: Tensor, reduce: str | Semiring) -> Tensor:
        self.check({}, {"h": h})
        how = extremum_of(reduce, h.dtype)
        own_values = how is not None or isinstance(reduce, Semiring)
        if (
            own_values and self.plan.mean
        ):  # a mean's entries are 1/degree, which a sum alone takes from the plan
            return self.entries.weigh(self.entries.values(h.dtype), h, reduce)
        if how is not None:
            return PropagateExtremum.apply(h, self.plan, how)
        if isinstance(reduce, Semiring):
            if reduce.native and reduce.sum == "sum":
                return Propagate.apply(h, self.plan)
            return FoldArcs.apply(h, None, None, self.plan, Fold.of(reduce))
        if reduce == "sum":
            return Propagate.apply(h, self.plan)
        if reduce == "mean":
            mean = dataclasses.replace(self.plan, mean=True) if self._whole else None
            if mean is not None:
                return Propagate.apply(h, mean)
            return Propagate.apply(h, self.plan) / self.degrees.clamp(min=1).to(h.dtype)
        raise unknown("reduction", reduce, ["sum", "mean", "max", "min"])

    @property
    def T(self) -> Operator:
        """Aᵀ, on the same ranks: no entry moves. Made on first use, and kept; A.T.T is A.

        >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([3.0, 4.0]), (2, 2))
        >>> (Operator.local(a).T @ torch.tensor([[1.0], [10.0]])).ravel()
        tensor([3., 4.])
        """
        return self._turn()[0]

    def _turn(self) -> tuple[Operator, Tensor]:
        """(Aᵀ, the place in A of each of its entries)."""
        if self._transpose is None:
            if self._real is not None:
                real, order = self._real[0]._turn()
                turned, order = real.dry(self._real[1]), order.to("meta")
            else:
                if self.rows.is_meta:
                    raise TypeError("a plan of sizes alone has no transpose: its entries are not known")
                plan, order = transposed(self.plan)
                block = self._layout is None
                rows = plan.row_names if block else self.rows
                turned = Operator(plan, rows, self.rows if block else None, self._layout)
            inverse = torch.empty_like(order)
            inverse[order] = torch.arange(order.numel(), device=order.device)
            self._transpose, turned._transpose = (turned, order), (self, inverse)
        return self._transpose

    def own(self, h: Tensor) -> Tensor:
        """The rows' own among those of h; what has a row for each already stays. [s, w] → [t, w]."""
        rows = self.rows.numel()
        if self._targets is not None and (h.shape[0] != rows or rows == self._across):
            return gather_rows(h, self._targets, distinct=self._partial is None)
        return h if h.shape[0] == rows else h[:rows]

    def complete(self, t: Tensor, sync: str = "sum") -> Tensor:
        """A layer's result, added up at the rows' owners, or the largest of the ranks'; the identity where h
        has complete rows."""
        if self._partial is None or self._owners is None:
            return t
        return redistribute(t, dataclasses.replace(self._partial, op=sync), self._owners, phase="pull")

    def sync(self, t: Tensor) -> Tensor:
        """Numbers that are linear in h, added up over the ranks that each have some columns of it.

        The identity where h has complete rows. What is not linear in h (a score under a LeakyReLU, a length)
        must be made of numbers that are synced.
        """
        if self._partial is None:
            return t
        return redistribute(t, self._partial, Replicated(self._partial.comm), phase="scores")

    def in_columns(self, h: Tensor) -> bool:
        """Whether h is the input and lies in columns: then products of its rows are partial."""
        return self._given is not None and h is self._given

    def widen(self, v: Tensor, width: int, among: float = 0.0) -> Tensor:
        """Own rows as a summand of a partial result: this rank's columns among zeros. [t, w_own] → [t, w]."""
        if self._partial is None:
            return v
        after = width - self._first_column - v.shape[1]
        return torch.nn.functional.pad(v, (self._first_column, after), value=among)

    def norms(self, h: Tensor, heads: int = 1) -> Tensor:
        """The length of each row of h in each head. [s, heads · w] → [s, heads]."""
        if not self.in_columns(h):
            return norms(h, heads)
        squares = self.sync(h.square().sum(1, keepdim=True))
        # The square root of 0 has no slope: a row of zeros gets gradient 0.
        return torch.where(squares == 0, 0.0, torch.where(squares == 0, 1.0, squares).sqrt())

    def drop_input(self, h: Tensor, p: float, stream: Stream) -> Tensor:
        """keep ∘ h / (1 − p), by vertex and column of the whole input."""
        ids = self.rows if self.columns is None else self.columns
        if self._partial is None:
            return dropout(h, p, stream, ids)
        # The mask of a column is that of its place in the whole input.
        whole = dropout(h.new_ones(h.shape[0], self._width), p, stream, ids)
        self._given = h * whole[:, self._first_column : self._first_column + h.shape[1]]
        return self._given

    # What never changes is made once.

    def hold(self, x: Tensor) -> None:
        """x never changes: what A makes of it is made on first use and kept."""
        if x.requires_grad:
            raise ValueError("x is learned: it changes, and is not held")
        self._held, self._made = x, {}

    def holds(self, h: Tensor) -> bool:
        """Whether h is what `hold` was told of."""
        return h is self._held

    def keep(self, name: Hashable, h: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """`make()`, which depends on A and h alone; where h is held, made once."""
        if not self.holds(h):
            return make()
        found = self._made.get(name)
        if found is None or found[0] != h._version:  # changed in place: the old answer would be wrong
            with torch.no_grad():
                found = self._made[name] = (h._version, make())
        return found[1]

    def gathers_first(self, h: Tensor, outputs: int) -> bool:
        """Whether (A h) W costs less than A (h W), W of `outputs` columns.

        A whole graph moves and multiplies the narrower of the two; of equal ones h W, whose backward needs h
        alone. A block has fewer rows than h.
        """
        return self._block or h.shape[1] < outputs or self.holds(h)

    @functools.cached_property
    def _block(self) -> bool:
        return self._layout is None

    # Arc by arc: attention and messages are `Arcwise`'s.

    @functools.cached_property
    def entries(self) -> Entries:
        """Numbers at A's entries."""
        return Entries(self)

    def note(self, what: str, how: str) -> None:
        """Remember how an expression was computed, for `explain`."""
        self._said[what] = how

    def explain(self) -> dict[str, str]:
        """What was asked of A so far → which kernels did it; where not the fused ones, why not.

        >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
        >>> Operator.local(a).explain()
        {}
        """
        return dict(self._said)

    # What it is.

    @property
    def layout(self) -> Rows:
        """Who owns which vertex, of a whole graph."""
        if self._layout is None:
            raise TypeError("a block has no layout: its rows are this rank's alone")
        return self._layout

    @property
    def grid(self) -> Grid:
        return self.layout.blocks.grid

    @property
    def by_host(self) -> bool:
        """Whether rows cross between hosts once and are passed on there."""
        return any(isinstance(line, ByHost) for line in (self.plan.row, self.plan.inner))

    @property
    def arcs(self) -> int:
        """Entries that this rank holds."""
        return sum(a.arcs for a in self.plan.matrices)

    @property
    def degrees(self) -> Tensor:
        """Entries of each row, [t, 1], whoever holds them; counted on first use, by all ranks together."""
        # Not a cached_property: in Python 3.11 that holds one lock for all, and ranks may be threads.
        if self._degrees is None:
            self._degrees = self._count_degrees()
        return self._degrees

    def _count_degrees(self) -> Tensor:
        plain: list[CSR | Sliced] = [CSR(a.indptr, a.indices, None, a.shape) for a in self.plan.blocks()]
        plan = dataclasses.replace(self.plan, matrices=plain, mean=False)
        # One column would leave feature ranks without any.
        width = plan.feature.comm.size
        ones = torch.ones(self._across, width, dtype=torch.float64, device=self.rows.device)
        return plan.forward(ones)[:, :1]

    @functools.cached_property
    def _whole(self) -> bool:
        """Whether this rank has all of A."""
        return self._layout is None or self._layout.comm.size == 1

    @property
    def _across(self) -> int:
        """Rows of h here: of a single matrix its columns."""
        return self.plan.matrices[0].shape[1] if self._whole else self.rows.numel()

    @functools.cached_property
    def _square(self) -> bool:
        """Whether this rank has all of A, with the same vertices on both sides."""
        shape = self.plan.matrices[0].shape
        if not self._whole or shape[0] != shape[1]:
            return False
        names = self.plan.names
        if self._given is not None or self._targets is not None or self.rows.is_meta:
            return False  # dry, nobody knows; one rank's kernels move nothing either way
        return names is None or torch.equal(self.plan.row_names.long(), names[0].long())

    @functools.cached_property
    def _symmetric(self) -> bool:
        """Whether, moreover, A has an entry (j, i) for every (i, j)."""
        if not self._square:
            return False
        a = self.plan.matrix(0)
        return torch.equal(a.T.indptr, a.indptr) and torch.equal(a.T.indices, a.indices)

    def check(self, rows: dict[str, Tensor | None], columns: dict[str, Tensor | None]) -> None:
        """Refuse operands that kernels would misread: of another number of rows, or of another type.

        A row-side operand has a row for each row of A at hand; a column-side one for each row of h.
        """
        first: tuple[str, torch.dtype] | None = None
        for side, wanted in ((rows, self.rows.numel()), (columns, self._across)):
            for name, t in side.items():
                if t is None:
                    continue
                first = first or (name, t.dtype)
                if t.dim() != 2 or t.shape[0] != wanted:
                    raise ValueError(f"{name} is {tuple(t.shape)}, for {wanted} vertices at hand")
                if t.dtype != first[1]:
                    raise TypeError(
                        f"{name} is {t.dtype}, {first[0]} is {first[1]}. Bring both to one type with .to()."
                    )

    # What it would move.

    def dry(self, wrap: Wrap) -> Operator:
        """The same operator without numbers, on communicators that count."""
        out = Operator(
            self.plan.dry(wrap), self.rows.to("meta"),
            None if self.columns is None else self.columns.to("meta"), self._layout,
        )  # fmt: skip
        for name in ("_square", "_symmetric"):
            out.__dict__[name] = getattr(self, name)  # they look at numbers
        out._degrees = None if self._degrees is None else self._degrees.to("meta")
        out.made_once = {name: t.to("meta") for name, t in self.made_once.items()}
        out._real = self, wrap
        return out

    def foretell(self, work: Callable[[Operator], object]) -> Volume:
        """What this rank would receive if `work(A)` ran: it runs on tensors without numbers (device "meta").

        >>> from weft.comm import run_ranks
        >>> from weft.graph import karate
        >>> def words(comm):
        ...     A = Operator.build(karate(), comm, Grid(2))
        ...     return A.foretell(lambda A: A @ torch.empty(A.rows.numel(), 8, device="meta")).words
        >>> run_ranks(words, 2, "threads")
        [{'gather': 136}, {'gather': 136}]
        """
        return counted(self.layout.comm, lambda wrap: functools.partial(work, self.dry(wrap)))


@functools.cache
def _alone() -> Communicator:
    """The line of an operator that one rank has to itself: nothing is ever sent on it."""
    return single()


def check_slices(grid: Grid) -> None:
    """Refuse `move_adjacency` on a grid that has nothing to cut."""
    if grid.feature == 1:
        raise UserError(
            f"--move-adjacency cuts A along the feature axis, grid {grid} has none. "
            "Use --strategy 2d, 3d or feature with more ranks."
        )

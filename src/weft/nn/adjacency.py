"""What a layer asks of A, and nothing more. One process, a grid of ranks and a sampled block all answer it.

A layer sees these protocols; `weft.parallel.Operator` is what answers them. mypy checks that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Unpack

import torch
from torch import Tensor

from ..kernels import Semiring, Stream
from ..kernels.fold import Fold
from ..kernels.scoring import Scoring


class EntryNumbers(Protocol):
    """Numbers at A's entries, [arcs, heads], and the ways from the vertices to them and back."""

    @property
    def plain(self) -> bool:
        """Whether every entry of A is 1."""

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        """A's own values, [arcs, 1]."""

    def spread(self, x: Tensor, side: str) -> Tensor:
        """e[arc] = x[i] (side "row") or x[j] (side "column")."""

    def dots(self, x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
        """e[arc, h] = ⟨x[i], y[j]⟩ in head h."""

    def sum(self, e: Tensor) -> Tensor:
        """y[i] = Σ over the arcs of row i of e[arc]."""

    def softmax(self, e: Tensor) -> Tensor:
        """Softmax over the arcs of each row."""

    def weigh(self, e: Tensor, x: Tensor, reduce: str | Semiring = "sum") -> Tensor:
        """y[i] = ⊕ over the arcs of row i of e[arc] ⊗ x[j]."""

    def drop(self, e: Tensor, p: float, stream: Stream) -> Tensor:
        """keep ∘ e / (1 − p)."""

    def turned(self, e: Tensor) -> Tensor:
        """Numbers at A's entries as numbers at those of A.T."""

    def number(self, x: Tensor) -> Tensor:
        """A weight among numbers per arc; without it a feature axis would count its gradient too often."""

    def data(self, name: str) -> Tensor:
        """What the arcs carry under this name, [arcs, …]."""

    def lookup(self, table: Tensor, name: str) -> Tensor:
        """e[arc] = table[kind of the arc]."""

    def share_of_kind(self, name: str, kinds: int) -> Tensor:
        """e[arc] = 1 / how many arcs of its row are of its kind."""

    def project(self, name: str, weight: Tensor) -> Tensor:
        """e[arc] = f[arc] W."""

    def data_dots(self, x: Tensor, name: str, heads: int = 1) -> Tensor:
        """e[arc, h] = ⟨x[i,h,:], f[arc]⟩."""

    def data_sums(self, e: Tensor, name: str) -> Tensor:
        """y[i,h,:] = Σ over the arcs of row i of e[arc,h] f[arc]."""


class Adjacency(Protocol):
    """The matrix A [t, s] as a layer sees it.

    h is [s, w], one row per vertex that is read here; results are [t, w]. Of a whole graph both are the
    vertices at hand, which in one process are all of them; of a sampled block t targets read s sources.
    `A * virtual` samples a virtual n×n matrix at A's entries: see `weft.nn.algebra`.
    """

    @property
    def rows(self) -> Tensor:
        """[t] the global number of each row of the result."""

    def __matmul__(self, h: Tensor) -> Tensor:
        """A h."""

    def __mul__(self, virtual: Any) -> Any:
        """A * V, sampled at A's entries."""

    def aggregate(self, h: Tensor, reduce: str | Semiring = "sum") -> Tensor:
        """y[i] = ⊕ over j of a_ij ⊗ h[j]: sum, mean, max, min of products, or over a semiring."""

    @property
    def T(self) -> Adjacency:
        """Aᵀ: an entry (j, i) for every (i, j)."""

    def own(self, h: Tensor) -> Tensor:
        """The rows' own among those of h. [s, w] → [t, w]."""

    def complete(self, t: Tensor, sync: str = "sum") -> Tensor:
        """A partial result added up over the ranks, or the largest; the identity where nothing is partial."""

    def sync(self, t: Tensor) -> Tensor:
        """What is linear in h, added up so that every rank has all of it; elsewhere the identity."""

    def in_columns(self, h: Tensor) -> bool:
        """Whether h is the input and lies in columns."""

    def widen(self, v: Tensor, width: int, among: float = 0.0) -> Tensor:
        """Own rows as a summand of a partial result."""

    def norms(self, h: Tensor, heads: int = 1) -> Tensor:
        """The length of each row of h, per head. [s, heads]."""

    def drop_input(self, h: Tensor, p: float, stream: Stream) -> Tensor:
        """Dropout of the input, by vertex and column."""

    def holds(self, h: Tensor) -> bool:
        """Whether h never changes, so that what A makes of it is kept."""

    def keep(self, name: Hashable, h: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """`make()`, which depends on A and h alone; where h never changes, made once."""

    def gathers_first(self, h: Tensor, outputs: int) -> bool:
        """Whether (A h) W costs less than A (h W)."""

    @property
    def entries(self) -> EntryNumbers:
        """Numbers at A's entries."""

    def attend(self, row: Tensor, column: Tensor, x: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Ψ x through the fused kernels."""

    def attend_data(
        self, row: Tensor, column: Tensor, x: Tensor, values: str = "features", **how: Unpack[Scoring]
    ) -> tuple[Tensor, Tensor]:
        """The same, and Σ_j Ψ_ij f_ij beside it, f what arcs carry."""

    def fold(
        self, h: Tensor, fold: Fold, data: str = "", target: bool = False, learned: Sequence[Tensor] = ()
    ) -> Tensor:
        """⊕ over j of message(h_j, what the arc carries, h_i)."""

    def channel_sum(
        self, kind: str, column: Tensor, row: Tensor | None = None, x: Tensor | None = None,
        edge: tuple[str, Tensor] | None = None, value_weight: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Messages made column by column of row_i + column_j + f_ij W, summed up."""

    def channel_stats(self, column: Tensor, edge: tuple[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        """Sum, sum of squares, maximum and minimum of column_j + f_ij W."""

    @property
    def degrees(self) -> Tensor:
        """Entries of each row, [t, 1]."""

    def note(self, what: str, how: str) -> None:
        """Remember how an expression was computed, for `explain`."""

    def explain(self) -> dict[str, str]:
        """What was asked of A → which kernels did it, and why not the fused ones."""


class Chain:
    """A_K … A_1 as one matrix, for a layer of several hops: a layer multiplies with it, no more.

        C @ h         A_K (… (A_1 h)); where A_1 leaves its result partial, A_1 h
        C.complete(t) then adds it up and does the other hops

    >>> import torch
    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> (Chain([A, A]) @ torch.tensor([[1.0], [2.0]])).ravel()
    tensor([1., 2.])
    """

    def __init__(self, hops: list[Adjacency], partial: bool = False):
        self.hops, self.partial = hops, partial
        self.first, self.rest = hops[0], hops[1:]

    @property
    def rows(self) -> Tensor:
        return self.hops[-1].rows

    def __matmul__(self, h: Tensor) -> Tensor:
        return self.first.keep(("hops", len(self.hops)), h, lambda: self._multiply(h))

    def _multiply(self, h: Tensor) -> Tensor:
        # Of what is held, only the last product is kept: the first hop is asked for by another name.
        y = self.first.aggregate(h) if not self.first.holds(h) else self.first.aggregate(h.view_as(h))
        return y if self.partial else self._others(y)

    def _others(self, y: Tensor) -> Tensor:
        for hop in self.rest:
            y = hop @ y
        return y

    def own(self, h: Tensor) -> Tensor:
        for hop in self.hops:
            h = hop.own(h)
        return h

    def complete(self, t: Tensor, sync: str = "sum") -> Tensor:
        t = self.first.complete(t, sync)
        return self._others(t) if self.partial else t

    def gathers_first(self, h: Tensor, outputs: int) -> bool:
        return self.first.gathers_first(h, outputs)

    def widen(self, v: Tensor, width: int, among: float = 0.0) -> Tensor:
        return self.first.widen(v, width, among)

    def drop_input(self, h: Tensor, p: float, stream: Stream) -> Tensor:
        return self.first.drop_input(h, p, stream)

    def __getattr__(self, name: str) -> Any:
        raise TypeError(f"a layer of {len(self.hops)} hops may multiply with A; {name} is for one hop.")

"""What a layer asks of the graph, and nothing more. One process and a grid of ranks both answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from ..kernels import Move


class Adjacency(Protocol):
    """The n×n matrix A as a layer sees it: it can be multiplied with the features of the vertices at hand.

    h is [n_own, w]: one row per vertex that is at hand here, which is all of them in one process.
    `A * virtual` samples a virtual n×n matrix at A's entries: see `weft.nn.algebra`.
    """

    @property
    def rows(self) -> Tensor | None:
        """[n_own] int64, the global number of each row at hand; None where row r is vertex r."""

    def __matmul__(self, h: Tensor) -> Tensor:
        """A h."""

    def aggregate(self, h: Tensor, reduce: str = "sum") -> Tensor:
        """y[i] = ⊕ over j of a_ij h[j], ⊕ one of sum, mean, max, min."""

    def once(self, x: Tensor, reduce: str = "sum", hops: int = 1) -> Tensor:
        """The same, `hops` times over, for an x that never changes: computed on first use and kept."""

    def keep(self, name: str, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """`make()`, which depends on A and on an x that never changes alone: made on first use and kept."""


class Tally:
    """A graph without vertices that writes down what is asked of it: so a model tells what it will move.

    It answers everything that a `DistributedGraph` answers, with no rows and with autograd; a layer that a
    user wrote is counted like ours.

    >>> tally = Tally()
    >>> _ = tally @ torch.empty(0, 16, requires_grad=True)
    >>> tally.moves[0].kind, tally.moves[0].width, tally.moves[0].grads
    ('propagate', 16, (True,))
    """

    rows = None

    def __init__(self, plain: bool = True):
        self.moves: list[Move] = []
        self.plain = plain

    def _note(self, kind: str, width: int, *operands: Tensor | None, **more: Any) -> None:
        grads = tuple(t is not None and t.requires_grad and torch.is_grad_enabled() for t in operands)
        self.moves.append(Move(kind, width, grads, **more))

    def __matmul__(self, h: Tensor) -> Tensor:
        self._note("propagate", h.shape[1], h)
        return h * 1

    def aggregate(self, h: Tensor, reduce: str = "sum") -> Tensor:
        self._note("extremum" if reduce in ("max", "min") else "propagate", h.shape[1], h)
        return h * 1

    def once(self, x: Tensor, reduce: str = "sum", hops: int = 1) -> Tensor:
        return x

    def keep(self, name: str, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        return x

    def attend(
        self, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None = None,
        scale: Tensor | None = None, kind: str = "additive", heads: int = 1, slope: float = 1.0,
        softmax: bool = True, drop: Any = None,
    ) -> Tensor:  # fmt: skip
        # On a grid the scale goes into the row operand, which is then no longer x itself.
        row = row if scale is None else row * scale.sum()
        self._note(
            f"attend {kind}", x.shape[1], row, column, x, gain, heads=heads, key_width=row.shape[1],
            softmax=softmax, together=column is x, gain=gain is not None,
        )  # fmt: skip
        total = row.sum() + column.sum() + (0 if gain is None else gain.sum())
        return x + total

    def spread(self, x: Tensor, side: str) -> Tensor:
        self._note(f"spread {side}", x.shape[1], x)
        return x * 1

    def dots(self, x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
        self._note("dots", x.shape[1], x, y, heads=heads)
        return (x * y)[:, :heads]

    def sum_arcs(self, e: Tensor) -> Tensor:
        self._note("sum", e.shape[1], e)
        return e * 1

    def softmax_arcs(self, e: Tensor) -> Tensor:
        self._note("softmax", e.shape[1], e)
        return e * 1

    def weigh(self, e: Tensor, x: Tensor, reduce: str = "sum") -> Tensor:
        if reduce in ("max", "min"):  # a head at a time
            for _ in range(e.shape[1]):
                self._note("weigh extremum", x.shape[1] // e.shape[1], e, x)
        else:
            self._note("weigh", x.shape[1], e, x, heads=e.shape[1])
        return x + e.sum()

    def drop_arcs(self, e: Tensor, p: float, stream: Any) -> Tensor:
        if p:
            self._note("arcs", e.shape[1], e)
        return e * 1

    def number(self, x: Tensor) -> Tensor:
        return x

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        self._note("arcs", 1)
        return torch.empty(0, 1, dtype=dtype)

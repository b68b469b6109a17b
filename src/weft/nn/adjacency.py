"""What a layer asks of the graph, and nothing more. One process and a grid of ranks both answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Adjacency(Protocol):
    """The n×n matrix A as a layer sees it: it can be multiplied with the features of the vertices at hand.

    h is [n_own, w]: one row per vertex that is at hand here, which is all of them in one process.
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


@dataclass(frozen=True)
class Move:
    """One propagation that a layer asks for in a training epoch: from it follow the words that travel."""

    width: int
    backward: bool = True
    """Whether its gradient is propagated too."""
    winners: bool = False
    """Whether it is a max or min, whose winners are remembered."""

"""What an input is to the converter: segments of arcs, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Arcs:
    """Some arcs as a file has them, in its order.

    source, target  [m] int64, or bytes of fixed width where ids are names
    weights         [m] float32 or float64, or None;  data  name → [m] or [m, d]
    sign            0, or what the weights of the mirrored arcs are multiplied by, where those are there too
    """

    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None
    data: dict[str, np.ndarray] = field(default_factory=dict)
    sign: int = 0


@dataclass
class Bad:
    """Lines that `skip_bad` left out: how many, and what is wrong with the first, on line `line`."""

    count: int = 0
    line: int = 1 << 62
    first: str = ""

    def add(self, other: Bad) -> None:
        """Those of another piece, too."""
        self.count += other.count
        if other.count and other.line < self.line:
            self.line, self.first = other.line, other.first


@dataclass(frozen=True)
class Segment:
    """A piece of an input: its number, what it takes of the input's bytes, its arcs on request.

    bad   filled while the arcs are read
    """

    number: int
    bytes: int
    arcs: Callable[[], Iterator[Arcs]]
    bad: Bad = field(default_factory=Bad)


class Input(Protocol):
    """A file of arcs, whatever its format.

    num_nodes   what the file announces, or None;  fixed  whether ids are those of 0..num_nodes-1, and stay
    undirected  whether the file says so;  size  its bytes
    whole       whether it can only be read from the front to the back, so that one rank reads all of it
    """

    path: Path
    size: int
    num_nodes: int | None
    fixed: bool
    undirected: bool

    @property
    def whole(self) -> bool: ...

    @property
    def weighted(self) -> bool:
        """Whether arcs have weights."""

    @property
    def weight_bytes(self) -> int:
        """What a weight takes; 0 without."""

    @property
    def carried(self) -> dict[str, int]:
        """What arcs carry beside: name → columns, 0 for a list."""

    def stamp(self) -> list[Any]:
        """What tells it from other inputs, and from itself after a change."""

    def expected(self) -> int:
        """About how many arcs there are."""

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        """Pieces of about `size` bytes, numbered from 0 on, without those that are done."""

    def check(self, given: int) -> None:
        """Raise where the file does not hold what it announces; so many arcs were read in all."""

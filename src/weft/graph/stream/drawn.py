"""Graphs that are drawn piece by piece: Erdős–Rényi and Kronecker of any size, into a store or an edge list.

    piece k   2^20 draws from the generator of (seed, k): it can be drawn again, or alone, on any thread

They are not the graphs that `er` and `kronecker` give for the same seed: there, labels are permuted by a
table, er draws until so many arcs differ, Kronecker joins a vertex left alone to another. Here arcs drawn
twice are merged, labels are permuted by a formula, and vertices without arcs stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError, unknown
from weft.graph.generators.common import positive
from weft.graph.generators.kronecker import MAX_SCALE, A, B, C
from weft.graph.stream.pieces import Arcs, Segment
from weft.graph.stream.runs import in_order
from weft.graph.writer import check_new, replacing

PIECE = 1 << 20
KINDS = {
    "er": {"nodes": 10_000, "degree": 16.0, "seed": 0, "directed": False},
    "kronecker": {"scale": 14, "degree": 16.0, "seed": 0, "directed": False},
}
"""Generator → what it takes, with the defaults."""


class Drawn:
    """Arcs out of nothing, as an input of the converter.

    >>> some = Drawn("kronecker", {"scale": 6, "degree": 4})
    >>> [arcs] = [arcs for segment in some.segments(1, set()) for arcs in segment.arcs()]
    >>> some.num_nodes, some.expected(), 100 < len(arcs.source) <= 128
    (64, 128, True)
    """

    fixed = True
    weighted = False

    def __init__(self, kind: str, arguments: dict[str, Any]) -> None:
        if kind not in KINDS:
            raise unknown("generator that streams", kind, KINDS)
        for key in arguments:
            if key not in KINDS[kind]:
                raise unknown(f"argument of {kind} --stream", key, KINDS[kind])
        self.kind, self.path = kind, Path(kind)
        self._how: dict[str, Any] = KINDS[kind] | arguments
        positive("degree", self._how["degree"], least=0)
        if kind == "kronecker":
            if not 0 <= self._how["scale"] <= MAX_SCALE:
                raise UserError(f"scale={self._how['scale']} is no such scale. Use 0 to {MAX_SCALE}.")
            self.num_nodes = 1 << self._how["scale"]
        else:
            positive("nodes", self._how["nodes"])
            self.num_nodes = self._how["nodes"]
        self.undirected = not self._how["directed"]
        self._draws = round(self.num_nodes * self._how["degree"] / (2 if self.undirected else 1))
        self.size = 16 * self._draws
        self.carried: list[str] = []

    def stamp(self) -> list[Any]:
        """What it is drawn from."""
        return [self.kind, self._how]

    def expected(self) -> int:
        return self._draws

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        for number in range(-(-self._draws // PIECE)):
            if number not in done:
                count = min(PIECE, self._draws - number * PIECE)
                yield Segment(number, 16 * count, partial(self._arcs, number, count))

    def check(self, given: int) -> None:
        """Nothing is announced but the vertices."""

    def _arcs(self, number: int, count: int) -> Iterator[Arcs]:
        yield self.draw(number, count)

    def draw(self, number: int, count: int) -> Arcs:
        """Piece `number`, of so many draws; loops are left out."""
        rng = np.random.Generator(np.random.SFC64([self._how["seed"], number]))
        if self.kind == "er":
            source, target = (rng.integers(self.num_nodes, size=count) for _ in range(2))
        else:
            source, target = self._rmat(rng, count)
        keep = source != target
        return Arcs(source[keep], target[keep])

    def _rmat(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Graph500's recursion: bit by bit a quadrant, by thresholds of 16 bits."""
        scale = self._how["scale"]
        u, v = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
        lower = np.uint16(round((A + B) * 65536))
        right = np.array([round(A / (A + B) * 65536), round(C / (1 - A - B) * 65536)], np.uint16)
        for _ in range(scale):
            low = rng.integers(65536, size=count, dtype=np.uint16) >= lower
            side = rng.integers(65536, size=count, dtype=np.uint16) >= right[low.view(np.uint8)]
            u, v = u << np.uint32(1) | low, v << np.uint32(1) | side
        return self._renamed(u), self._renamed(v)

    def _renamed(self, ids: np.ndarray) -> np.ndarray:
        """A permutation of 0..2^scale-1 by a formula: odd factors and shifts, each of which can be undone."""
        scale = self._how["scale"]
        if scale < 2:
            return ids.astype(np.int64)
        mask = np.uint64((1 << scale) - 1)
        half = np.uint64((scale + 1) // 2)
        x = ids.astype(np.uint64)
        for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            x = x * np.uint64(factor) + np.uint64(self._how["seed"] + 1) & mask
            x ^= x >> half
        return x.view(np.int64)


def write_arcs(drawn: Drawn, out: str | Path, threads: int, tick: Any = None) -> int:
    """An edge list of what is drawn, one line `source target` a draw; how many there are."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    path = Path(out)
    check_new(path)
    mark = {".csv": ",", ".tsv": "\t"}.get(path.suffix, " ")
    how = pacsv.WriteOptions(include_header=False, delimiter=mark, quoting_style="none")

    def text(segment: Segment) -> tuple[pa.Buffer, int, int]:
        (arcs,) = segment.arcs()
        sink = pa.BufferOutputStream()
        pacsv.write_csv(pa.table({"a": arcs.source, "b": arcs.target}), sink, how)
        return sink.getvalue(), len(arcs.source), segment.bytes

    total = done = 0
    with replacing(path) as file:
        kind = "Undirected" if drawn.undirected else "Directed"
        file.write(f"# {kind} graph: {drawn.kind}\n# Nodes: {drawn.num_nodes}\n".encode())
        for block, count, size in in_order(text, drawn.segments(0, set()), threads):
            file.write(block)
            total, done = total + count, done + size
            if tick is not None:
                tick("draw", done, drawn.size)
    return total

"""Graphs that are drawn piece by piece: Erdős–Rényi, Kronecker and BTER of any size, into a store or an edge
list, or on ranks (`weft.parallel.drawn`).

    piece k   2^20 draws from the generator of (seed, k): it can be drawn again, or alone, on any thread

They are not the graphs that `er`, `kronecker` and `bter` give for the same seed: there, labels are permuted
by a table, er draws until so many arcs differ, Kronecker joins a vertex left alone to another. Here arcs
drawn twice are merged, labels are permuted by a formula, and vertices without arcs stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError, unknown
from weft.graph.generators.bter import like_degrees, power_law
from weft.graph.generators.common import fraction, positive
from weft.graph.generators.kronecker import MAX_SCALE, A, B, C
from weft.graph.stream.drawn_bter import PIECE, BterDraws
from weft.graph.stream.pieces import Arcs, Segment
from weft.graph.stream.plan import check_disk
from weft.graph.stream.runs import in_order
from weft.graph.writer import check_new, replacing

KINDS: dict[str, dict[str, Any]] = {
    "er": {"nodes": 10_000, "degree": 16.0, "seed": 0, "directed": False},
    "kronecker": {"scale": 14, "degree": 16.0, "seed": 0, "directed": False},
    "bter": {
        "nodes": 10_000,
        "degree": 10.0,
        "max_degree": 0,
        "clustering": 0.5,
        "seed": 0,
        "like": "",
        "times": 1,
    },
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
    whole = False
    weighted = False
    weight_bytes = 0

    def __init__(self, kind: str, arguments: dict[str, Any]) -> None:
        if kind not in KINDS:
            raise unknown("generator that streams", kind, KINDS)
        for key in arguments:
            if key not in KINDS[kind]:
                raise unknown(f"argument of {kind} --stream", key, KINDS[kind])
        self.kind, self.path = kind, Path(kind)
        self._how: dict[str, Any] = KINDS[kind] | arguments
        positive("degree", self._how["degree"], least=0)
        self._bter: BterDraws | None = None
        if kind == "kronecker":
            if not 0 <= self._how["scale"] <= MAX_SCALE:
                raise UserError(f"scale={self._how['scale']} is no such scale. Use 0 to {MAX_SCALE}.")
            self.num_nodes = 1 << self._how["scale"]
        elif kind == "bter":
            self._bter = _bter(self._how)
            self.num_nodes = self._bter.num_nodes
            # Names are permuted as Kronecker's are, among the powers of two, until they are vertices.
            self._how["scale"] = max(2, (self.num_nodes - 1).bit_length())
        else:
            positive("nodes", self._how["nodes"])
            self.num_nodes = self._how["nodes"]
        self.undirected = not self._how.get("directed", False)
        draws = round(self.num_nodes * self._how["degree"] / (2 if self.undirected else 1))
        self.sizes = [min(PIECE, draws - at) for at in range(0, draws, PIECE)]
        """Draws of each piece."""
        if self._bter is not None:
            self.sizes, draws = self._bter.sizes, self._bter.expected
        self._draws = draws
        self.size = 16 * sum(self.sizes)
        self.carried: dict[str, int] = {}

    def stamp(self) -> list[Any]:
        """What it is drawn from."""
        return [self.kind, self._how]

    def expected(self) -> int:
        return self._draws

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        for number, count in enumerate(self.sizes):
            if number not in done:
                yield Segment(number, 16 * count, partial(self._arcs, number, count))

    def check(self, given: int) -> None:
        """Nothing is announced but the vertices."""

    def _arcs(self, number: int, count: int) -> Iterator[Arcs]:
        yield self.draw(number, count)

    def draw(self, number: int, count: int) -> Arcs:
        """Piece `number`, of so many draws; loops are left out."""
        if self._bter is not None:
            source, target = (self._within(self._renamed(ends)) for ends in self._bter.draw(number))
            keep = source != target
            return Arcs(source[keep], target[keep])
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

    def _within(self, ids: np.ndarray) -> np.ndarray:
        """Names that are no vertices are renamed again: the permutation leads each back among them."""
        while (beyond := ids >= self.num_nodes).any():
            ids[beyond] = self._renamed(ids[beyond])
        return ids


def _bter(how: dict[str, Any]) -> BterDraws:
    if how["like"] or how["times"] != 1:
        degrees, clustering = like_degrees(how["like"], how["times"], False, how["seed"])
    else:
        degrees = power_law(how["nodes"], how["degree"], how["max_degree"] or None)
        fraction("clustering", how["clustering"])
        clustering = np.full(len(degrees), float(how["clustering"]))
    return BterDraws(degrees, clustering, how["seed"])


def write_arcs(drawn: Drawn, out: str | Path, threads: int, tick: Any = None) -> int:
    """An edge list of what is drawn, one line `source target` a draw; how many there are."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    path = Path(out)
    check_new(path)
    line = 2 * len(str(drawn.num_nodes)) + 2
    check_disk(drawn.expected() * line, path.parent, "the edge list", "--out")
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

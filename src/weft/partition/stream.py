"""Partitioning in passes over the rows, for graphs whose arcs no partitioner can hold.

    weigh      one pass               the work of each vertex
    cluster    passes over the arcs   a vertex joins the cluster that most of its in-neighbours are in, while
                                      that is light enough; who reads nothing joins one that reads it
    contract   one pass               arcs between clusters, added up: a graph that METIS holds
    cut                               METIS on it
    refine     passes                 a vertex moves to the part that most of its in-neighbours are in, where
                                      that has room

Rows are taken one after the other, in their order, and each sees what those before it chose. Held are 17
bytes a vertex, the contracted graph, and the rows of some `buffer` arcs.

Size-constrained label propagation as coarsening is that of Meyerhenke, Sanders and Schulz, *Partitioning
Complex Networks via Size-constrained Clustering* (SEA 2014).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..graph.guard import check_fits
from . import passes as loops
from .metis import cut_weighted
from .walk import Source, Walk

_COARSE_ARCS = 1 << 22
"""Different arcs of the contracted graph that are kept, the heaviest."""
_COUNTED = 3 << 22
"""Different ones that are counted at a time: then the lightest go."""
_CLUSTERS = 64
"""Clusters a part, at least: METIS then has something to choose from."""
_LEAST = 8192
"""Clusters in all, at least."""
_ARC = 16
"""Bytes that an arc takes in a rank: A and its transpose, index and value."""
_WIDTHS = 5
"""Rows of the hidden width that a rank holds of a vertex, of a model with two layers."""
_HIDDEN = 64
_PER_COARSE, _SECONDS_PER_COARSE = 130, 2.5e-6
"""Bytes and seconds that METIS and what is made for it take, an arc of the contracted graph."""

_TRIALS = 7
"""Stretches of rows, less one, that are tried for an estimate."""
_JOIN, _MOVE, _CONTRACT = 0.45, 0.22, 1.0
"""A pass of each kind over one in which every vertex is a cluster of its own."""


def stream(
    source: Source, parts: int, epsilon: float = 0.03, seed: int = 0, passes: int = 4, buffer: int = 1 << 20,
    say: Callable[[str], None] | None = None, vertex_work: int = 0,
) -> Made:  # fmt: skip
    """Parts of about equal work with few arcs between them, in bounded memory.

        source  a graph, or a store, which is read row by row
        work    of a vertex: the nonzeros of its row of A + I, and `vertex_work`; of a part ≤ (1 + ε) mean,
                where rows allow it
        passes  over all arcs, of each of the two kinds;      buffer  arcs that are looked at together

    >>> from weft.graph import karate
    >>> sorted(set(stream(karate(), 3).part.tolist()))
    [0, 1, 2]
    """
    tell = say or (lambda line: None)
    walk = Walk.over(source, buffer)
    needed = foretold_bytes(walk.n, walk.arcs, buffer)
    check_fits(needed, "partitioning by passes over the rows")
    made = _Passes(walk, parts, vertex_work, passes)
    tell(
        f"stream: {walk.n:,} vertices, {walk.arcs:,} arcs; {parts} parts, {2 * passes + 2} passes; some "
        f"{needed / 1e6:,.0f} MB, {made.seconds():,.0f} s"
    )
    label = made.clusters()
    count, weight, (low, high, times) = made.contract(label)
    tell(f"stream: {count:,} clusters, {len(low):,} arcs between them")
    if parts > 1 and count > parts and importlib.util.find_spec("pymetis") is not None:
        cut = cut_weighted(low, high, times, weight, parts, epsilon, seed)
    else:
        cut = np.minimum(np.cumsum(weight) * parts // max(1, int(weight.sum())), parts - 1)
    del low, high, times
    cut = cut.astype(np.int32)
    load = np.bincount(cut, weights=weight, minlength=parts).astype(np.int64)
    part = cut[label]
    del label
    made.refine(part, load, epsilon)
    return Made(part, (load, made.heaviest))


@dataclass(frozen=True)
class Made:
    """part [n] int32;  balance  (the work of each part [P], that of the heaviest row)."""

    part: np.ndarray
    balance: tuple[np.ndarray, int]


def foretold_bytes(n: int, arcs: int, buffer: int = 1 << 20) -> int:
    """What it holds at most beside the process itself.

    Clustering has 4 or 8 bytes a vertex for labels, 8 for sizes, and 5 more while clusters are numbered; the
    table of pairs, and then METIS, come on top of the labels alone.

    >>> foretold_bytes(10**9, 10**11) / 1e9 < 18
    True
    """
    label = 4 if n < 2**31 else 8
    rows = 24 * min(arcs, buffer)
    coarse = min(arcs, _COARSE_ARCS)
    table = 12 * _slots(min(arcs, _COUNTED)) + 16 * coarse
    return rows + max((2 * label + 9) * n, label * n + max(table, _PER_COARSE * coarse))


def _slots(pairs: int) -> int:
    return 1 << max(4, (4 * pairs // 3).bit_length())


def vertex_work(features: int, hidden: int = _HIDDEN) -> int:
    """Arcs that take as much of a rank's memory as a vertex does: its features, twice, and activations.

    Of a graph without features nothing is known of that: 0.

    >>> vertex_work(8, 16), vertex_work(0)
    (24, 0)
    """
    return features and round(4 * (2 * features + _WIDTHS * hidden) / _ARC)


class _Passes:
    def __init__(self, walk: Walk, parts: int, extra: int, passes: int):
        self.walk, self.parts, self.extra, self.passes = walk, parts, extra, passes
        self.heaviest = 0

    def seconds(self) -> float:
        """About how long all passes take: rows of some places are read twice and joined once, on trial."""
        walk, n = self.walk, self.walk.n
        if not walk.arcs:
            return 0.0
        label, size, reads = self._alone()
        size += 1
        cold = warm = work = 0.0
        arcs = 0
        for number in sorted({(len(walk) - 1) * k // _TRIALS for k in range(_TRIALS + 1)}):
            begun = time.perf_counter()
            walk.piece(number)
            read = time.perf_counter()
            rows = walk.piece(number)
            again = time.perf_counter()
            loops.join(rows, self.extra, label, size, reads, max(2, n))
            cold, warm = cold + read - begun, warm + again - read
            work, arcs = work + time.perf_counter() - again, arcs + len(rows.columns)
        # Against a first join, where all labels differ: later ones, moves among parts, the table of pairs.
        looked = self.passes * (_JOIN + _MOVE) + _CONTRACT
        passes = cold + (2 * self.passes + 1) * warm + looked * work
        return passes * walk.arcs / max(1, arcs) + _SECONDS_PER_COARSE * min(walk.arcs, _COARSE_ARCS)

    def _alone(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n = self.walk.n
        kind = np.int32 if n < 2**31 else np.int64
        return np.arange(n, dtype=kind), np.zeros(n, dtype=np.int64), loops.bits(n)

    def clusters(self) -> np.ndarray:
        """The cluster of each vertex, 0 … clusters − 1. [n] int32, or int64 of very many."""
        label, size, reads = self._alone()
        n, alone = self.walk.n, 1 + self.extra
        for rows in self.walk.raw():
            size[rows.begin : rows.end] = loops.weigh(rows, self.extra, reads)
        self.heaviest = int(size.max()) if n else 0
        most = int(size.sum()) // max(_LEAST, _CLUSTERS * self.parts)
        for _ in range(self.passes if most > 1 else 0):
            if not sum(loops.join(rows, self.extra, label, size, reads, most) for rows in self.walk.raw()):
                break
        self._gather(label, size, reads, max(1, most // alone))
        del size
        used = np.zeros(n, dtype=bool)
        used[label] = True
        number = np.cumsum(used, dtype=label.dtype)
        number -= 1
        return number[label]

    def _gather(self, label: np.ndarray, size: np.ndarray, reads: np.ndarray, together: int) -> None:
        """Who reads nothing, and is read by none that had room, stands with others of that kind."""
        lonely = label == np.arange(self.walk.n, dtype=label.dtype)
        lonely &= ~loops.is_set(reads, self.walk.n)
        lonely &= size == 1 + self.extra
        alone = np.flatnonzero(lonely).astype(label.dtype)
        if len(alone):
            label[alone] = alone[np.arange(len(alone)) // together * together]

    def contract(self, label: np.ndarray) -> tuple[int, np.ndarray, Arcs]:
        """(clusters, the work of each, the arcs between them)."""
        count = int(label.max()) + 1 if len(label) else 0
        work = np.zeros(count, dtype=np.int64)
        arcs = max(1, self.walk.arcs)
        pairs = loops.Pairs(count, min(arcs + 1, _COUNTED), min(arcs, _COARSE_ARCS))
        for rows in self.walk.raw():
            pairs.add(rows, self.extra, label, work)
        return count, work, pairs.arcs()

    def refine(self, part: np.ndarray, load: np.ndarray, epsilon: float) -> None:
        """Moves `part` and `load`."""
        most = int((1 + epsilon) * -(-int(load.sum()) // self.parts))
        for _ in range(self.passes):
            if not sum(loops.move(rows, self.extra, part, load, most) for rows in self.walk.raw()):
                break


Arcs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(one end, the other, how many), each pair once."""

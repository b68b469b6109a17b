"""What a pass does with each row: C++ where it is built, plain Python else. The results are the same.

Rows come one after the other, so each one sees what those before it chose. The work of a vertex is the
nonzeros of its row of A + I, and `extra`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from .walk import Raw


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("weft._native")
    except ImportError:
        return None


extension: ModuleType | None = _load()


def _call(name: str, rows: Raw, *more: Any) -> Any:
    columns, indptr = np.ascontiguousarray(rows.columns), np.ascontiguousarray(rows.indptr, dtype=np.int64)
    kind = {4: "_i32", 8: "_i64"}[columns.dtype.itemsize]
    rest = (x.ctypes.data if isinstance(x, np.ndarray) else x for x in more)
    return getattr(extension, name + kind)(
        rows.begin, len(indptr) - 1, indptr.ctypes.data, columns.ctypes.data, *rest
    )


def bits(n: int) -> np.ndarray:
    """Room for a bit a vertex, none of them set."""
    return np.zeros(-(-n // 64), dtype=np.uint64)


def is_set(marks: np.ndarray, n: int) -> np.ndarray:
    """The bits as bool [n].

    >>> is_set(np.array([5], dtype=np.uint64), 3).tolist()
    [True, False, True]
    """
    return np.unpackbits(marks.view(np.uint8), bitorder="little")[:n].astype(bool)


def weigh(rows: Raw, extra: int, reads: np.ndarray) -> np.ndarray:
    """The work of each row [rows]; the bits of those that read another vertex are set in `reads`."""
    if extension is not None:
        work = np.empty(rows.count, dtype=np.int64)
        _call("passes_weigh", rows, extra, work, reads)
        return work
    others = np.zeros(rows.count, dtype=np.int64)
    for v, near in rows.each():
        others[v - rows.begin] = len(near)
        if len(near):
            reads[v // 64] |= np.uint64(1 << v % 64)
    return others + 1 + extra


def join(rows: Raw, extra: int, label: np.ndarray, size: np.ndarray, reads: np.ndarray, most: int) -> int:
    """Each vertex to the cluster that most of those it reads are in, while that is light enough.

    One that reads nothing and is alone joins one that reads it. Returns how many moved.
    """
    if extension is not None:
        return int(_call("passes_join", rows, extra, label, size, reads, most))
    moved, alone = 0, 1 + extra
    for v, near in rows.each():
        seen: dict[int, int] = {}
        quiet = []
        for u in near.tolist():
            found = int(label[u])
            seen[found] = seen.get(found, 0) + 1
            if found == u and not int(reads[u // 64]) >> u % 64 & 1:
                quiet.append(u)
        own, work = int(label[v]), len(near) + 1 + extra
        best, score = own, 2 * seen[own] + 1 if own in seen else 1
        for found, times in seen.items():
            if 2 * times > score and found != own and size[found] + work <= most:
                best, score = found, 2 * times
        moves = [(v, own, work)] if best != own else []
        moves += [(u, u, alone) for u in quiet]
        for vertex, old, weight in moves:
            if vertex != v and (vertex == best or size[vertex] != alone or size[best] + alone > most):
                continue
            size[old] -= weight
            size[best] += weight
            label[vertex] = best
            moved += 1
    return moved


@dataclass
class Pairs:
    """Different pairs of clusters and the arcs between them: a table that keeps to its size.

    With more than `limit` of them the lightest go, until `keep` are left, or fewer: equals go together.
    """

    clusters: int
    limit: int
    keep: int

    def __post_init__(self) -> None:
        self._plain: dict[int, int] = {}
        self._held = 0
        if extension is not None:
            self._slots = 1 << max(4, (4 * self.limit // 3).bit_length())
            self._keys, self._times = np.zeros(self._slots, np.uint64), np.zeros(self._slots, np.uint32)

    @property
    def _table(self) -> tuple[Any, ...]:
        return (self._slots, self._held, self.limit, self.keep)

    def add(self, rows: Raw, extra: int, label: np.ndarray, work: np.ndarray) -> None:
        """The arcs of some rows between clusters; their work to that of their clusters."""
        if extension is not None:
            self._held = _call(
                "passes_contract",
                rows,
                extra,
                label,
                self.clusters,
                self._keys,
                self._times,
                *self._table,
                work,
            )
            return
        for v, near in rows.each():
            own = int(label[v])
            work[own] += len(near) + 1 + extra
            for other in label[near].tolist():
                if other != own:
                    if len(self._plain) >= self.limit:
                        self._lighten()
                    key = min(own, other) * self.clusters + max(own, other)
                    self._plain[key] = self._plain.get(key, 0) + 1

    def _lighten(self) -> None:
        if extension is not None:
            at = (self._keys.ctypes.data, self._times.ctypes.data)
            self._held = extension.passes_lighten(*at, *self._table)
            return
        edge = sorted(self._plain.values(), reverse=True)[self.keep]
        self._plain = {key: times for key, times in self._plain.items() if times > edge}

    def arcs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(low, high, how many) of each pair, ascending; at most `keep`. The table is empty afterwards."""
        if (self._held if extension is not None else len(self._plain)) > self.keep:
            self._lighten()
        if extension is None:
            key = np.array(sorted(self._plain), dtype=np.int64)
            times = np.array([self._plain[k] for k in key.tolist()], dtype=np.int32)
        else:
            used = np.flatnonzero(self._keys)
            key, many = self._keys[used].astype(np.int64) - 1, self._times[used]
            del self._keys, self._times, used
            order = np.argsort(key)
            key, times = key[order], np.minimum(many[order], np.uint32(2**31 - 1)).astype(np.int32)
        low, high = np.divmod(key, max(1, self.clusters))
        kind = np.int32 if self.clusters < 2**31 else np.int64
        return low.astype(kind), high.astype(kind), times


def move(rows: Raw, extra: int, part: np.ndarray, load: np.ndarray, most: int) -> int:
    """Each vertex to the part that most of those it reads are in, where that has room; how many moved.

    Out of a part that is too heavy to any of theirs.
    """
    if extension is not None:
        return int(_call("passes_move", rows, extra, part, len(load), load, most))
    moved = 0
    for v, near in rows.each():
        here, work = int(part[v]), len(near) + 1 + extra
        seen: dict[int, int] = {}
        for p in part[near].tolist():
            seen[p] = seen.get(p, 0) + 1
        stay, leaves, best = seen.get(here, 0), load[here] > most, -1
        for p, times in seen.items():
            if p == here or load[p] + work > most or not (times > stay or leaves):
                continue
            if best < 0 or times > seen[best] or (times == seen[best] and load[p] < load[best]):
                best = p
        if best >= 0:
            load[here] -= work
            load[best] += work
            part[v] = best
            moved += 1
    return moved


def mark_readers(rows: Raw, part: np.ndarray, low: int, marks: np.ndarray) -> int:
    """The bit of each part low … low + 63 that reads a vertex of another, in marks[vertex]; where low is 0,
    how many arcs go between parts."""
    if extension is not None:
        return int(_call("passes_readers", rows, part, low, marks))
    cut = 0
    for v, near in rows.each():
        here = int(part[v])
        if low and not low <= here < low + 64:
            continue
        others = near[part[near] != here]
        cut += len(others)
        if low <= here < low + 64:
            marks[others] |= np.uint64(1 << here - low)
    return cut

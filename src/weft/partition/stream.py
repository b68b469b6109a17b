"""Partitioning in passes over the rows, for graphs whose arcs no partitioner can hold.

    cluster    passes over the arcs   a vertex joins the cluster that most of its in-neighbours are in, while
                                      that is light enough; who reads nothing joins one that reads it
    contract   one pass               arcs between clusters, added up: a graph that METIS holds
    cut                               METIS on it
    refine     passes                 a vertex moves to the part that most of its in-neighbours are in, where
                                      that has room

Held are 17 bytes a vertex, the contracted graph, and the rows of some `buffer` arcs, which are looked at
together: all of them choose by what was chosen before. A pass takes them in two halves, chosen at random,
because two neighbours that choose at once may change places for ever.

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
from .metis import cut_weighted
from .simple import mixed
from .walk import Chunk, Source, Walk

_COARSE_ARCS = 1 << 22
"""Different arcs of the contracted graph that are kept, the heaviest."""
_CLUSTERS = 64
"""Clusters a part, at least: METIS then has something to choose from."""
_LEAST = 8192
"""Clusters in all, at least."""
_WORK = 120
"""Bytes that an arc of the buffer takes while it is looked at."""


def stream(
    source: Source, parts: int, epsilon: float = 0.03, seed: int = 0, passes: int = 4, buffer: int = 1 << 20,
    say: Callable[[str], None] | None = None,
) -> Made:  # fmt: skip
    """Parts of about equal work with few arcs between them, in bounded memory.

        source  a graph, or a store, which is read row by row
        work    of a vertex: the nonzeros of its row of A + I; of a part ≤ (1 + ε) mean, where rows allow it
        passes  over all arcs, of each of the two kinds;      buffer  arcs that are looked at together

    >>> from weft.graph import karate
    >>> sorted(set(stream(karate(), 3).part.tolist()))
    [0, 1, 2]
    """
    tell = say or (lambda line: None)
    walk = Walk.over(source, buffer)
    needed = 17 * walk.n + 64 * min(walk.arcs, 2 * _COARSE_ARCS) + _WORK * min(walk.arcs, buffer)
    check_fits(needed, "partitioning by passes over the rows")
    tell(
        f"stream: {walk.n:,} vertices, {walk.arcs:,} arcs; {parts} parts, {2 * passes + 1} passes; some "
        f"{needed / 1e6:,.0f} MB, {_seconds(walk, 2 * passes + 1):,.0f} s"
    )
    label = _clusters(walk, parts, passes, seed)
    count, weight, (low, high, times) = _contract(walk, label)
    tell(f"stream: {count:,} clusters, {len(low):,} arcs between them")
    if parts > 1 and count > parts and importlib.util.find_spec("pymetis") is not None:
        made = cut_weighted(low, high, times, weight, parts, epsilon, seed)
    else:
        made = np.minimum(np.cumsum(weight) * parts // max(1, int(weight.sum())), parts - 1)
    part = made.astype(np.int32)[label]
    del label
    return Made(part, _refine(walk, part, parts, epsilon, passes, seed))


@dataclass(frozen=True)
class Made:
    """part [n] int32;  balance  (the work of each part [P], that of the heaviest row)."""

    part: np.ndarray
    balance: tuple[np.ndarray, int]


def _seconds(walk: Walk, passes: int) -> float:
    """About how long so many passes take, judged by the first rows."""
    started = time.perf_counter()
    first = next(iter(walk), None)
    if first is None or not len(first.row):
        return 0.0
    _tally(first.row, first.column)
    return 1.5 * passes * (time.perf_counter() - started) * walk.arcs / len(first.row)


def _tally(row: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, label, how many) of the different pairs, by row."""
    bits = int(label.max()).bit_length() if len(label) else 0
    key = (row << bits) | label
    key.sort()
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.arange(0)
    times = np.diff(first, append=len(key))
    key = key[first]
    return key >> bits, key & ((1 << bits) - 1), times


def _best(row: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The place of each row's best score, of equals the first; rows ascend."""
    if not len(row):
        return np.arange(0)
    first = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    most = np.repeat(np.maximum.reduceat(score, first), np.diff(first, append=len(row)))
    top = np.flatnonzero(score == most)
    return top[np.concatenate([[True], row[top][1:] != row[top][:-1]])]


def _fitting(target: np.ndarray, weight: np.ndarray, gain: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Which moves go through: of those to one target the best, as far as its room goes."""
    order = np.lexsort((-gain, target))
    sorted_ = target[order]
    total = np.cumsum(weight[order])
    first = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]])) if len(order) else order
    before = np.repeat(total[first] - weight[order][first], np.diff(first, append=len(order)))
    return order[total - before <= room[sorted_]]


def _halves(vertices: np.ndarray, turn: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    first = mixed(vertices, seed + 7919 * turn) & np.uint64(1) == 0
    return first, ~first


def _clusters(walk: Walk, parts: int, passes: int, seed: int) -> np.ndarray:
    """The cluster of each vertex, 0 … clusters − 1. [n] int32."""
    n = walk.n
    kind = np.int32 if n < 2**31 else np.int64
    label, size = np.arange(n, dtype=kind), np.zeros(n, dtype=np.int64)
    reads = np.zeros(n, dtype=bool)
    for chunk in walk:
        size[chunk.begin : chunk.end] = chunk.weight
        reads[chunk.begin + chunk.row] = True
    most = int(size.sum()) // max(_LEAST, _CLUSTERS * parts)
    for turn in range(passes if most > 1 else 0):
        for chunk in walk:
            for active in _halves(np.arange(chunk.begin, chunk.end), turn, seed):
                at = active[chunk.row]
                _join(label, size, chunk.row[at] + chunk.begin, chunk.column[at], chunk, most)
            quiet = ~reads[chunk.column]
            if quiet.any():  # its readers are all that is known of it
                column, row = chunk.column[quiet].astype(np.int64), chunk.row[quiet] + chunk.begin
                order = np.argsort(column, kind="stable")
                _join(label, size, column[order], row[order], None, most)
    alone = np.flatnonzero(~reads & (label == np.arange(n)) & (size == 1))
    label[alone] = alone[np.arange(len(alone)) // max(1, most) * max(1, most)] if len(alone) else 0
    used = np.zeros(n, dtype=bool)
    used[label] = True
    return (np.cumsum(used, dtype=kind) - 1)[label]


def _join(
    label: np.ndarray, size: np.ndarray, vertex: np.ndarray, near: np.ndarray, chunk: Chunk | None, most: int
) -> None:
    """Vertices join the cluster that most of those near them are in; one who reads nothing weighs 1."""
    if not len(vertex):
        return
    begin = int(vertex[0])
    who, found, times = _tally(vertex - begin, label[near])
    who += begin
    weight = np.ones(len(who), dtype=np.int64) if chunk is None else chunk.weight[who - chunk.begin]
    own = label[who] == found
    fits = own | (size[found] + weight <= most)
    score = np.where(fits, 2 * times + own, 0)
    best = _best(who, score)
    best = best[(score[best] > 0) & ~own[best]]
    best = best[_fitting(found[best], weight[best], times[best], most - size)]
    np.subtract.at(size, label[who[best]], weight[best])
    np.add.at(size, found[best], weight[best])
    label[who[best]] = found[best]


Arcs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(one end, the other, how many), each pair once."""


def _contract(walk: Walk, label: np.ndarray) -> tuple[int, np.ndarray, Arcs]:
    """(clusters, the work of each, the arcs between them)."""
    count = int(label.max()) + 1 if len(label) else 0
    weight = np.zeros(count, dtype=np.int64)
    keys, times = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    held = 0
    for chunk in walk:
        weight += np.bincount(label[chunk.begin : chunk.end], weights=chunk.weight, minlength=count).astype(
            np.int64
        )
        one, other = label[chunk.begin + chunk.row].astype(np.int64), label[chunk.column].astype(np.int64)
        apart = one != other
        one, other = one[apart], other[apart]
        key, many = np.unique(np.minimum(one, other) * count + np.maximum(one, other), return_counts=True)
        keys.append(key)
        times.append(many)
        held += len(key)
        if held > 2 * _COARSE_ARCS:
            key, many = _merged(keys, times)
            keys, times, held = [key], [many], len(key)
    key, many = _merged(keys, times)
    return count, weight, (*np.divmod(key, max(1, count)), many)


def _merged(keys: list[np.ndarray], times: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, how often; of too many the heaviest."""
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    many = np.bincount(place, weights=np.concatenate(times), minlength=len(key)).astype(np.int64)
    if len(key) > _COARSE_ARCS:
        kept = np.sort(np.argpartition(-many, _COARSE_ARCS)[:_COARSE_ARCS])
        key, many = key[kept], many[kept]
    return key, many


def _refine(
    walk: Walk, part: np.ndarray, parts: int, epsilon: float, passes: int, seed: int
) -> tuple[np.ndarray, int]:
    load, heaviest = np.zeros(parts, dtype=np.int64), 0
    for chunk in walk:
        heaviest = max(heaviest, int(chunk.weight.max()))
        load += np.bincount(part[chunk.begin : chunk.end], weights=chunk.weight, minlength=parts).astype(
            np.int64
        )
    most = int((1 + epsilon) * -(-int(load.sum()) // parts))
    for turn in range(passes):
        moved = 0
        for chunk in walk:
            for active in _halves(np.arange(chunk.begin, chunk.end), turn, seed + 1):
                at = active[chunk.row]
                moved += _move(part, load, chunk, chunk.row[at], chunk.column[at], most)
        if not moved:
            break
    return load, heaviest


def _move(
    part: np.ndarray, load: np.ndarray, chunk: Chunk, row: np.ndarray, near: np.ndarray, most: int
) -> int:
    """Vertices to the part where most of those near them are; from one that is too heavy, anywhere else."""
    who, found, times = _tally(row, part[near])
    here = part[chunk.begin + who]
    own = here == found
    staying = np.zeros(len(chunk.weight), dtype=np.int64)
    staying[who[own]] = times[own]
    weight = chunk.weight[who]
    gain = times - staying[who]
    wanted = ~own & (load[found] + weight <= most) & ((gain > 0) | (load[here] > most))
    who, found, gain, weight = who[wanted], found[wanted], gain[wanted], weight[wanted]
    best = _best(who, gain)
    best = best[_fitting(found[best], weight[best], gain[best], most - load)]
    old = part[chunk.begin + who[best]]
    np.subtract.at(load, old, weight[best])
    np.add.at(load, found[best], weight[best])
    part[chunk.begin + who[best]] = found[best]
    return len(best)

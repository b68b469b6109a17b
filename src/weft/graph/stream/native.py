"""The inner loops: C++ where it is built, numpy and pyarrow else. The results are the same."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple

import numpy as np


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("weft._native")
    except ImportError:
        return None


extension: ModuleType | None = _load()
SKIP, REAL, WHOLE = 0, 1, 2
"""How a column after the two ids is read."""
_ROOM = 1 << 12


def _at(array: np.ndarray | None) -> int:
    return 0 if array is None else array.ctypes.data


class Parsed(NamedTuple):
    """What `parse` found.

    source, target  [arcs] int64;  columns  one array, or None, for each further column
    lines     ends of lines;  odd  where lines begin that were not understood, at most 4,096 of them
    not_whole columns asked for as WHOLE that hold another number
    """

    source: np.ndarray
    target: np.ndarray
    columns: list[np.ndarray | None]
    lines: int
    odd: np.ndarray
    not_whole: list[int]


def count_lines(text: bytes) -> int:
    """Ends of lines.

    >>> count_lines(b"a\\nb\\nc")
    2
    """
    if extension is None:
        return text.count(b"\n")
    view = np.frombuffer(text, np.uint8)
    return int(extension.stream_lines(_at(view), len(view)))


def parse(text: bytes, comma: bool, kinds: list[int]) -> Parsed:
    """The arcs of whole lines, each `id id` and a number for each of `kinds`; the C++ alone can.

    >>> found = parse(b"0 1 0.5\\n# no\\nx 1 1\\n7 3 2\\n", False, [REAL])
    >>> found.source.tolist(), found.columns[0].tolist(), found.odd.tolist()
    ([0, 7], [0.5, 2.0], [13])
    """
    assert extension is not None
    view = np.frombuffer(text, np.uint8)
    room = count_lines(text) + 1
    source, target = np.empty(room, np.int64), np.empty(room, np.int64)
    types = {SKIP: None, REAL: np.float64, WHOLE: np.int64}
    columns = [None if types[kind] is None else np.empty(room, types[kind]) for kind in kinds]
    outs = np.array([_at(column) for column in columns], dtype=np.uint64)
    how = np.array(kinds, dtype=np.int32)
    odd = np.empty(_ROOM, np.int64)
    arcs, lines, wrong, not_whole = extension.stream_parse(
        _at(view),
        len(view),
        comma,
        len(kinds),
        _at(how),
        _at(outs),
        _at(source),
        _at(target),
        _at(odd),
        _ROOM,
    )
    return Parsed(
        source[:arcs], target[:arcs], [None if c is None else c[:arcs] for c in columns], lines,
        odd[: min(wrong, _ROOM)], [c for c in range(len(kinds)) if not_whole >> c & 1],
    )  # fmt: skip


def pack(
    source: np.ndarray, target: np.ndarray, limit: int, keys: np.ndarray, present: np.ndarray | None
) -> bool:
    """keys[k] = target[k] << 32 | source[k], and their bits set in `present`; False where an id is too large.

    >>> keys, present = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    >>> pack(np.array([3]), np.array([1]), 64, keys, present), int(keys[0]) == (1 << 32) + 3, int(present[0])
    (True, True, 10)
    """
    count = len(source)
    assert len(target) == count <= len(keys)
    if extension is not None:
        done = extension.stream_pack(_at(source), _at(target), count, limit, _at(keys), _at(present))
        return bool(done == count)
    if count and max(source.max(), target.max()) >= limit:
        return False
    keys[:count] = target.astype(np.uint64) << np.uint64(32) | source.astype(np.uint64)
    if present is not None:
        for ids in (source, target):
            ids = np.unique(ids).astype(np.uint64)
            np.bitwise_or.at(present, ids >> np.uint64(6), np.uint64(1) << (ids & np.uint64(63)))
    return True


def sort(keys: np.ndarray, scratch: np.ndarray, index: np.ndarray | None, other: np.ndarray | None) -> None:
    """Sort keys in place, stably; `index` goes along. `scratch` and `other` are as large.

    >>> keys, index = np.array([5, 3], np.uint64), np.array([0, 1], np.uint32)
    >>> sort(keys, keys.copy(), index, index.copy())
    >>> keys.tolist(), index.tolist()
    ([3, 5], [1, 0])
    """
    if extension is not None:
        extension.stream_sort(_at(keys), _at(scratch), len(keys), _at(index), _at(other))
    elif index is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys[:], index[:] = keys[order], index[order]


def unique(keys: np.ndarray, first: np.ndarray | None) -> int:
    """Drop repeated keys of a sorted list in place; how many are left, and in `first` which these were.

    >>> keys, first = np.array([3, 3, 5], np.uint64), np.zeros(3, np.int64)
    >>> unique(keys, first), keys[:2].tolist(), first[:2].tolist()
    (2, [3, 5], [0, 2])
    """
    if extension is not None:
        return int(extension.stream_unique(_at(keys), len(keys), _at(first)))
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    (places,) = np.nonzero(new)
    keys[: len(places)] = keys[places]
    if first is not None:
        first[: len(places)] = places
    return len(places)


class Ranks:
    """Of a set of ids, given as bits, the place of each among them in ascending order.

    >>> ranks = Ranks(np.array([0b1010], np.uint64))
    >>> ranks.count, ranks.ids(0, 64).tolist()
    (2, [1, 3])
    """

    def __init__(self, present: np.ndarray) -> None:
        self.present = present
        self.before = np.empty(len(present), np.uint32)
        if extension is not None:
            self.count = int(extension.stream_count_before(_at(present), len(present), _at(self.before)))
        else:
            bits = np.unpackbits(present.view(np.uint8)).reshape(len(present), 64).sum(1)
            self.count = int(bits.sum())
            self.before[:] = np.cumsum(bits) - bits

    def ids(self, first: int, last: int) -> np.ndarray:
        """Those of first..last-1, both multiples of 64."""
        bits = np.unpackbits(self.present[first // 64 : last // 64].view(np.uint8), bitorder="little")
        return np.nonzero(bits)[0] + first

    def of(self, ids: np.ndarray) -> np.ndarray:
        """The place of each of these."""
        ids = ids.astype(np.uint64)
        below = self.present[ids >> np.uint64(6)] & (np.uint64(1) << (ids & np.uint64(63))) - np.uint64(1)
        bits = np.unpackbits(below.view(np.uint8)).reshape(len(ids), 64).sum(1)
        return self.before[ids >> np.uint64(6)] + bits


def split(keys: np.ndarray, ranks: Ranks | None, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys as rows: `columns` gets the sources; back come the targets, each once, and how many arcs.

    >>> columns = np.zeros(3, np.int32)
    >>> rows, counts = split(np.array([7, 1 << 32, 1 << 32 | 9], np.uint64), None, columns)
    >>> rows.tolist(), counts.tolist(), columns.tolist()
    ([0, 1], [1, 2], [7, 0, 9])
    """
    count = len(keys)
    if extension is not None:
        rows, counts = np.empty(count, np.uint32), np.empty(count, np.int64)
        name = "stream_split_i32" if columns.dtype == np.int32 else "stream_split_i64"
        present, before = (None, None) if ranks is None else (ranks.present, ranks.before)
        found = getattr(extension, name)(
            _at(keys), count, _at(present), _at(before), _at(columns), _at(rows), _at(counts)
        )
        return rows[:found], counts[:found]
    low = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    columns[:] = low if ranks is None else ranks.of(low)
    rows, counts = np.unique(keys >> np.uint64(32), return_counts=True)
    return (rows if ranks is None else ranks.of(rows)).astype(np.uint32), counts

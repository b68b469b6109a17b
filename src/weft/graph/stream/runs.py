"""Sorted runs on disk, and the arcs of all of them range by range: an external sort.

    run      keys, ascending [count] uint64, then each column [count, ...] in the order of the keys
    fences   every 4,096th key of a run, kept in memory: a range of keys is found in it with one small read
    range    keys lo ≤ key < hi of every run: small enough to be sorted in memory, stably, in the runs' order

Ranges ascend, so what is made of them is written once, from the front to the back. There is no merge of many
runs that reads a little of each in turn: a range takes one read of each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from weft.errors import UserError
from weft.graph.stream import native
from weft.graph.writer import raw_bytes

FENCE = 1 << 12
T = TypeVar("T")


@dataclass
class Run:
    """A sorted run on disk.

    order    where its arcs stood in the input, against other runs: equal keys are met in this order
    columns  name → (type, width): what goes along with the keys; width 0 is a list
    """

    path: Path
    count: int
    order: tuple[int, ...]
    columns: dict[str, tuple[str, int]] = field(default_factory=dict)
    kind: str = "<u8"
    fences: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def facts(self) -> dict[str, Any]:
        """What a journal keeps; the rest is in the file."""
        columns = {name: list(kind) for name, kind in self.columns.items()}
        return {
            "file": self.path.name, "count": self.count, "order": list(self.order), "columns": columns,
            "kind": self.kind,
        }  # fmt: skip

    @classmethod
    def told(cls, folder: Path, facts: dict[str, Any]) -> Run:
        """The run of such facts, without its fences."""
        columns = {name: (str(kind), int(width)) for name, (kind, width) in facts["columns"].items()}
        return cls(
            folder / facts["file"], int(facts["count"]), tuple(facts["order"]), columns, str(facts["kind"])
        )

    @classmethod
    def known(cls, folder: Path, facts: dict[str, Any]) -> Run:
        """The run of a journal's entry."""
        run = cls.told(folder, facts)
        run.fences = run.read(0, run.count)[::FENCE].copy() if run.count else run.fences
        return run

    @property
    def bytes(self) -> int:
        return self.count * (np.dtype(self.kind).itemsize + sum(map(_bytes, self.columns.values())))

    def read(self, first: int, last: int, column: str | None = None) -> np.ndarray:
        """Keys, or entries of a column, first..last-1."""
        start = 0
        kind, width = self.kind, 0
        if column is not None:
            start = self.count * np.dtype(self.kind).itemsize
            for name, other in self.columns.items():
                if name == column:
                    break
                start += self.count * _bytes(other)
            kind, width = self.columns[column]
        shape = (last - first, width) if width else (last - first,)
        out = np.empty(shape, kind)
        read_into(self.path, start + first * out.itemsize * max(1, width), out)
        return out

    def place(self, key: Any) -> int:
        """How many of its keys are below this one."""
        key = _key(key)
        block = int(np.searchsorted(self.fences, key)) - 1
        if block < 0:
            return 0
        first = block * FENCE
        return first + int(np.searchsorted(self.read(first, min(self.count, first + FENCE)), key))


def _bytes(column: tuple[str, int]) -> int:
    kind, width = column
    return np.dtype(kind).itemsize * max(1, width)


def read_into(path: Path, at: int, out: np.ndarray) -> None:
    """Fill an array from a place of a file."""
    if not out.size:
        return
    view = raw_bytes(out)
    with open(path, "rb", buffering=0) as file:
        while view:
            got = os.preadv(file.fileno(), [view], at)
            if not got:
                raise UserError(f"{path} was cut short while it was in use. Convert again.")
            view, at = view[got:], at + got


def write_run(path: Path, keys: np.ndarray, columns: dict[str, np.ndarray], order: tuple[int, ...]) -> Run:
    """A run of sorted keys and what goes along with them."""
    with open(path, "wb", buffering=0) as file:
        for array in (keys, *columns.values()):
            write_all(file, array)
    kinds = {name: (x.dtype.str, x.shape[1] if x.ndim == 2 else 0) for name, x in columns.items()}
    return Run(path, len(keys), order, kinds, keys.dtype.str, keys[::FENCE].copy())


def write_all(file: Any, array: np.ndarray) -> None:
    """An array's bytes to a file without a buffer."""
    view = raw_bytes(np.ascontiguousarray(array))
    while view:
        view = view[file.write(view[: 1 << 24]) :]


def bounds(runs: Sequence[Run], most: int, low: Any = 0, high: Any = None) -> list[Any]:
    """Keys from `low` on, below `high`, at which ranges of about `most` entries begin; by the fences alone.

    >>> run = Run(Path("-"), 3 * FENCE, (0,), fences=np.array([0, 10, 20], np.uint64))
    >>> bounds([run], FENCE), bounds([run], FENCE, 5, 20)
    ([0, 10, 20], [5])
    """
    fences = np.sort(np.concatenate([run.fences for run in runs])) if runs else np.zeros(0, np.uint64)
    if not len(fences):
        return []
    first, last = np.searchsorted(fences, _key(low)), len(fences)
    if high is not None:
        last = np.searchsorted(fences, _key(high))
    chosen = np.unique(fences[first : last : max(1, most // FENCE)])
    return [low, *(key for key in chosen[1:].tolist())]


def _key(key: Any) -> Any:
    return np.uint64(key) if isinstance(key, int) else np.bytes_(key)  # names of any width compare


@dataclass(frozen=True)
class Range:
    """The entries of all runs between two keys.

    slices   (run, first, last) of each that has some, in the runs' order
    """

    number: int
    count: int
    slices: list[tuple[Run, int, int]]


def ranges(runs: Sequence[Run], most: int, low: Any = 0, high: Any = None) -> Iterator[Range]:
    """Ranges of about `most` entries that cover all keys from `low` on, below `high`; ascending."""
    ordered = sorted(runs, key=lambda run: run.order)
    ends = [*bounds(ordered, most, low, high), high]
    before = [run.place(low) for run in ordered]
    for number, end in enumerate(ends[1:]):
        after = [run.count if end is None else run.place(end) for run in ordered]
        slices = [(run, a, b) for run, a, b in zip(ordered, before, after, strict=True) if a < b]
        if slices:
            yield Range(number, sum(b - a for _, a, b in slices), slices)
        before = after


class Space:
    """Arrays of one thread that are used again: fresh memory costs more than what is done in it."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def take(self, name: str, count: int, kind: Any) -> np.ndarray:
        have = self._arrays.get(name)
        if have is None or len(have) < count or have.dtype != np.dtype(kind):
            self._arrays.pop(name, None)
            have = self._arrays[name] = np.empty(count, kind)
        return have[:count]


@dataclass(frozen=True)
class Sorted:
    """Keys, ascending, each once, with what was made of their columns."""

    keys: np.ndarray
    columns: dict[str, np.ndarray]
    given: int


def gather(part: Range, space: Space, kinds: dict[str, str], merge: Mapping[str, np.ufunc]) -> Sorted:
    """A range's entries: sorted, equal keys made one.

    kinds   name → the type that a column has in the end
    merge   name → how values of equal keys are put together; the others keep the first
    """
    keys = space.take("keys", part.count, np.uint64)
    at = 0
    for run, first, last in part.slices:
        _fill(run, first, last, keys[at : at + last - first])
        at += last - first
    index = other = None
    if kinds:
        index, other = space.take("index", part.count, np.uint32), space.take("other", part.count, np.uint32)
        index[:] = np.arange(part.count, dtype=np.uint32)
    native.sort(keys, space.take("scratch", part.count, np.uint64), index, other)
    first_of = space.take("first", part.count, np.int64) if kinds else None
    kept = native.unique(keys, first_of)
    columns = {}
    for name, kind in kinds.items():
        assert index is not None
        assert first_of is not None
        together = [run.read(first, last, name).astype(kind, copy=False) for run, first, last in part.slices]
        values = np.concatenate(together)[index]
        places = first_of[:kept]
        if kept == part.count:
            columns[name] = values
        elif name in merge:
            columns[name] = merge[name].reduceat(values, places)
        else:
            columns[name] = values[places]
    return Sorted(keys[:kept], columns, part.count)


def _fill(run: Run, first: int, last: int, out: np.ndarray) -> None:
    read_into(run.path, first * 8, out)


def in_order(work: Callable[[T], Any], items: Iterable[T], threads: int) -> Iterator[Any]:
    """work(item) of each item in the items' order, on some threads, few of them ahead.

    >>> list(in_order(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    waiting: list[Future[Any]] = []
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()

"""Ids that are wide or text: the distinct ones, ascending; a vertex is the place of its id among them.

    read   of each segment the distinct ids, sorted, and its arcs as places among these ("codes")
    name   range after range of the ids of all segments: each distinct one gets the next number, which every
           segment that has it is told
    key    codes → numbers → keys, sorted into runs, as where ids are narrow

Nothing of n is held: the ids go to the store as they are numbered, the numbers to a file beside each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.stream import native
from weft.graph.stream.journal import Journal
from weft.graph.stream.pieces import Arcs, Bad, Input, Segment
from weft.graph.stream.plan import Plan
from weft.graph.stream.runs import Range, Run, Space, in_order, ranges, read_into, write_run
from weft.graph.writer import Writer

Keyed = Callable[[int, Segment, Iterator[Arcs], int, np.ndarray | None], tuple[list[Run], int]]
Segments = Callable[[set[tuple[int, int]]], Iterator[tuple[int, Input, Segment]]]


class Names:
    """The ids of a conversion, and its arcs by numbers."""

    def __init__(
        self, journal: Journal, plan: Plan, inputs: Sequence[Input], text: bool, space: Callable[[], Space],
        tick: Callable[[str, int, int], None],
    ) -> None:  # fmt: skip
        self._journal, self._plan, self._inputs, self._text = journal, plan, inputs, text
        self._space, self._tick = space, tick
        self._ids = journal.folder / "ids"
        self._count = self._top = 0
        self._width = 1
        self._stay = False
        self.given = 0
        self.per_file = [0] * len(inputs)
        self.bad = Bad()

    def num_nodes(self, announced: int | None) -> int:
        """n, where so many were announced."""
        return announced if announced is not None and self._stay else self._count

    def read(self, keyed: Keyed, segments: Segments, announced: int | None) -> list[Run]:
        """All input as sorted runs of keys."""
        pieces = self._read(segments)
        self._name(pieces)
        self._stay = announced is not None and not self._text and self._top < announced
        return self._key(pieces, keyed)

    # Read

    def _read(self, segments: Segments) -> list[tuple[int, Run, Run]]:
        """(file, distinct ids, codes) of each piece."""
        found: list[tuple[int, Run, Run]] = []
        done = set()
        folder = self._journal.folder
        passed = 0
        for entry in self._journal.done:
            if entry.get("stage") == "names":
                done.add((entry["file"], entry["segment"]))
                passed += entry["bytes"]
                self.per_file[entry["file"]] += entry["given"]
                self.bad.add(Bad(*entry["skipped"]))
                for a, b in entry["runs"]:
                    found.append((entry["file"], Run.known(folder, a), Run.known(folder, b)))
        total = sum(source.size for source in self._inputs)

        def work(item: tuple[int, Input, Segment]) -> tuple[int, Segment, list[tuple[Run, Run]]]:
            at, _, segment = item
            return at, segment, list(self._coded(at, segment))

        for at, segment, pairs in in_order(work, segments(done), self._plan.threads):
            given = sum(codes.count for _, codes in pairs)
            self._journal.add(
                {"stage": "names", "file": at, "segment": segment.number, "bytes": segment.bytes,
                 "given": given, "runs": [[a.facts(), b.facts()] for a, b in pairs],
                 "skipped": list(vars(segment.bad).values())}
            )  # fmt: skip
            self.per_file[at] += given
            self.bad.add(segment.bad)
            found += [(at, a, b) for a, b in pairs]
            passed += segment.bytes
            self._tick("read", passed, total)
        self.given = sum(self.per_file)
        return found

    def _coded(self, at: int, segment: Segment) -> Iterator[tuple[Run, Run]]:
        """A segment's pieces: distinct ids, and codes with what goes along."""
        most = max(1 << 20, self._plan.run // 6 * 16)  # bytes: some copies of them are made
        held: list[Arcs] = []
        count = number = 0
        for arcs in segment.arcs():
            size = arcs.source.nbytes + arcs.target.nbytes
            if held and count + size > most:
                yield self._spill(at, segment.number, number, held)
                held, count, number = [], 0, number + 1
            held.append(arcs)
            count += size
        if count:
            yield self._spill(at, segment.number, number, held)

    def _spill(self, at: int, segment: int, number: int, held: list[Arcs]) -> tuple[Run, Run]:
        ids, codes = distinct(np.concatenate([x for arcs in held for x in (arcs.source, arcs.target)]))
        columns: dict[str, np.ndarray] = {}
        sides: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        first = 0
        for arcs in held:
            for side in sides:
                side.append(codes[first : first + len(arcs.source)])
                first += len(arcs.source)
        columns["target"] = np.concatenate(sides[1])
        if held[0].weights is not None:
            columns["weight"] = np.concatenate([arcs.weights for arcs in held if arcs.weights is not None])
        for name in held[0].data:
            columns[f"data {name}"] = np.concatenate([arcs.data[name] for arcs in held])
        order = (0, at, segment, number)
        path = self._journal.folder / f"n-{at}-{segment}-{number}"
        coded = write_run(path.with_suffix(".codes"), np.concatenate(sides[0]), columns, order)
        return write_run(path, ids, {}, order), coded

    # Name

    def _name(self, pieces: list[tuple[int, Run, Run]]) -> None:
        runs = [ids for _, ids, _ in pieces]
        self._width = max((np.dtype(run.kind).itemsize for run in runs), default=1)
        each = 8 * 6 if not self._text else 6 * self._width + 48
        most = max(1 << 12, self._plan.free // 2 // (self._plan.threads + 1) // each)
        total, seen = max(1, sum(run.count for run in runs)), 0

        def work(part: Range) -> tuple[Range, np.ndarray, np.ndarray]:
            values = np.concatenate([run.read(first, last) for run, first, last in part.slices])
            return part, *distinct(values)

        with open(self._ids, "wb") as file:
            for part, ids, codes in in_order(work, ranges(runs, most), self._plan.threads):
                file.write(np.ascontiguousarray(ids.astype(self._kind())).tobytes())
                at = 0
                for run, first, last in part.slices:
                    numbers = (codes[at : at + last - first].astype(np.int64) + self._count).astype(np.uint32)
                    _put(_numbers_of(run), 4 * first, numbers)
                    at += last - first
                self._count += len(ids)
                if not self._text and len(ids):
                    self._top = int(ids[-1])
                if self._count > 2**32 - 1:
                    raise UserError(
                        "there are more than 4,294,967,295 vertices. weft numbers them in 32 bits."
                    )
                seen += part.count
                self._tick("name", seen, total)

    def _kind(self) -> str:
        return f"S{self._width}" if self._text else "<u8"

    # Key

    def _key(self, pieces: list[tuple[int, Run, Run]], keyed: Keyed) -> list[Run]:
        runs: list[Run] = []
        limit = 2**32

        def work(item: tuple[int, tuple[int, Run, Run]]) -> tuple[list[Run], Run, Run]:
            number, (at, ids, codes) = item
            numbers = np.empty(ids.count, np.uint32)
            read_into(_numbers_of(ids), 0, numbers)
            own = ids.read(0, ids.count).astype(np.int64) if self._stay else numbers.astype(np.int64)
            made, _ = keyed(at, Segment(number, 0, lambda: iter(())), self._numbered(codes, own), limit, None)
            return made, ids, codes

        for seen, (made, ids, codes) in enumerate(in_order(work, enumerate(pieces), self._plan.threads), 1):
            runs += made
            for path in (ids.path, codes.path, _numbers_of(ids)):
                path.unlink()
            self._tick("key", seen, len(pieces))
        return runs

    def _numbered(self, codes: Run, own: np.ndarray) -> Iterator[Arcs]:
        step = 1 << 18
        for first in range(0, codes.count, step):
            last = min(codes.count, first + step)
            read = {name: codes.read(first, last, name) for name in codes.columns}
            data = {name[5:]: x for name, x in read.items() if name.startswith("data ")}
            source = own[codes.read(first, last)]
            yield Arcs(source, own[read["target"]], read.get("weight"), data)

    def write(self, writer: Writer) -> None:
        """The ids into the store: numbers as `ids`, names as vertex data "name" [n, width]."""
        if self._stay or (not self._text and self._top + 1 == self._count):
            return
        kind, row = ("|u1", (self._width,)) if self._text else ("<i8", ())
        grows = writer.grow("vertex_name" if self._text else "ids", kind, row)
        with open(self._ids, "rb") as file:
            step = max(1, (1 << 22) // self._width) * self._width if self._text else 1 << 22
            while part := file.read(step):
                array = np.frombuffer(part, np.uint8 if self._text else np.int64)
                grows.append(array.reshape(-1, *row))
        grows.end()


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, ascending, and for each of the given which it is (uint32).

    >>> ids, codes = distinct(np.array([9, 4, 9]))
    >>> ids.tolist(), codes.tolist()
    ([4, 9], [1, 0, 1])
    """
    if values.dtype.kind == "S":
        ids, codes = np.unique(values, return_inverse=True)
        return ids, codes.astype(np.uint32)
    keys = values.astype(np.uint64)
    order = np.arange(len(keys), dtype=np.uint32)
    native.sort(keys, np.empty_like(keys), order, np.empty_like(order))
    rank = np.zeros(len(keys), np.uint32)
    np.cumsum(keys[1:] != keys[:-1], out=rank[1:], dtype=np.uint32)
    codes = np.empty_like(rank)
    codes[order] = rank
    return keys[: native.unique(keys, None)], codes


def _numbers_of(run: Run) -> Path:
    return run.path.with_suffix(".numbers")


def _put(path: Path, at: int, array: np.ndarray) -> None:
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.seek(at)
        file.write(array.tobytes())

"""Ids that are wide or text: the distinct ones, ascending; a vertex is the place of its id among them.

    read   of each segment the distinct ids, sorted, and its arcs as places among these ("codes")
    name   range after range of the ids of all segments: each distinct one gets the next number, which every
           segment that has it is told
    key    codes → numbers → keys, sorted into runs, as where ids are narrow

Nothing of n is held: the ids go to the store as they are numbered, the numbers to a file beside each segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.stream import native
from weft.graph.stream.journal import Journal
from weft.graph.stream.pieces import Arcs, Bad, Input, Segment
from weft.graph.stream.plan import Plan
from weft.graph.stream.runs import Range, Run, in_order, ranges, read_into, write_all, write_run
from weft.graph.stream.team import Team, cuts, runs_of_all, together
from weft.graph.writer import Writer

Keyed = Callable[[int, Segment, Iterator[Arcs], int, np.ndarray | None], tuple[list[Run], int]]
Tick = Callable[[str, int, int], None]
_MOST = 2**32 - 1
Segments = Callable[[set[tuple[int, int]]], Iterator[tuple[int, Input, Segment]]]


class Names:
    """The ids of a conversion, and its arcs by numbers."""

    def __init__(
        self, journal: Journal, plan: Plan, inputs: Sequence[Input], text: bool, team: Team, tick: Tick,
    ) -> None:  # fmt: skip
        self._journal, self._plan, self._inputs, self._text = journal, plan, inputs, text
        self._team, self._tick = team, tick
        self._count = self._top = 0
        self._cuts: list[Any] = []
        self._bases: list[int] = []
        self._width = 1
        self._stay = False
        self.given = 0
        self.per_file = [0] * len(inputs)
        self.bad = Bad()

    def num_nodes(self, announced: int | None) -> int:
        """n, where so many were announced."""
        return announced if announced is not None and self._stay else self._count

    def read(self, keyed: Keyed, segments: Segments, announced: int | None) -> list[Run]:
        """All input as sorted runs of keys, of which this rank makes some."""
        team = self._team
        pieces: list[tuple[int, Run, Run]] = []

        def work() -> list[Any]:
            pieces.extend(self._read(segments))
            return [self.per_file, list(vars(self.bad).values())]

        told = together(team, work, lambda: self._journal.flag("stop"))
        self.per_file = [sum(counts) for counts in zip(*(counts for counts, _ in told), strict=True)]
        self.given, self.bad = sum(self.per_file), Bad()
        for _, bad in told:
            self.bad.add(Bad(*bad))
        runs = runs_of_all(team, self._journal.folder, "ids", [ids for _, ids, _ in pieces])
        self._name(runs)
        self._stay = announced is not None and not self._text and self._top < announced
        number = {run.path: place for place, run in enumerate(runs)}
        made: list[Run] = []
        together(team, lambda: made.extend(self._key(pieces, number, keyed)))
        return made

    # Read

    def _read(self, segments: Segments) -> list[tuple[int, Run, Run]]:
        """(file, distinct ids, codes) of each piece that this rank reads."""
        found: list[tuple[int, Run, Run]] = []
        folder = self._journal.folder
        done = {(e["file"], e["segment"]) for e in self._journal.done if e.get("stage") == "names"}
        passed = 0
        for entry in self._journal.own("names"):
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
            self._tick("read", min(total, passed * self._team.size), total)
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

    def _name(self, runs: Sequence[Run]) -> None:
        """Number the distinct ids of all runs: each rank those of a range, from 0 on; bases follow."""
        team, rank = self._team, self._team.rank
        self._width = max((np.dtype(run.kind).itemsize for run in runs), default=1)
        each = 8 * 6 if not self._text else 6 * self._width + 48
        most = max(1 << 12, self._plan.free // 2 // (self._plan.threads + 1) // each)
        total = max(1, sum(run.count for run in runs))
        self._cuts = cuts(team, runs)
        between = self._cuts[rank], self._cuts[rank + 1]

        def distinct_of(part: Range) -> tuple[Range, np.ndarray, np.ndarray]:
            values = np.concatenate([run.read(first, last) for run, first, last in part.slices])
            return part, *distinct(values)

        def work() -> list[int]:
            count = top = seen = 0
            with open(self._ids(rank), "wb") as file:
                for part, ids, codes in in_order(
                    distinct_of, ranges(runs, most, *between), self._plan.threads
                ):
                    file.write(np.ascontiguousarray(ids.astype(self._kind())).tobytes())
                    at = 0
                    for run, first, last in part.slices:
                        numbers = (codes[at : at + last - first].astype(np.int64) + count).astype(np.uint32)
                        _put(_numbers_of(run), 4 * first, numbers)
                        at += last - first
                    count += len(ids)
                    if not self._text and len(ids):
                        top = int(ids[-1])
                    if count > _MOST:
                        raise _too_many()
                    seen += part.count
                    self._tick("name", min(total, seen * team.size), total)
            return [count, top]

        found = together(team, work)
        counts = [count for count, _ in found]
        self._bases = [sum(counts[:rank]) for rank in range(team.size)]
        self._count, self._top = sum(counts), max(top for _, top in found)
        if self._count > _MOST:
            raise _too_many()

    def _ids(self, rank: int) -> Path:
        return self._journal.folder / f"ids-{rank}"

    def _kind(self) -> str:
        return f"S{self._width}" if self._text else "<u8"

    # Key

    def _key(
        self, pieces: list[tuple[int, Run, Run]], number: dict[Path, int], keyed: Keyed
    ) -> Iterator[Run]:
        limit = 2**32

        def work(item: tuple[int, Run, Run]) -> tuple[list[Run], Run, Run]:
            at, ids, codes = item
            if self._stay:
                own = ids.read(0, ids.count).astype(np.int64)
            else:
                own = self._numbers(ids)
            place = Segment(number[ids.path], 0, lambda: iter(()))
            made, _ = keyed(at, place, self._numbered(codes, own), limit, None)
            return made, ids, codes

        for seen, (made, ids, codes) in enumerate(in_order(work, pieces, self._plan.threads), 1):
            yield from made
            for path in (ids.path, codes.path, _numbers_of(ids)):
                path.unlink()
            self._tick("key", seen, len(pieces))

    def _numbers(self, ids: Run) -> np.ndarray:
        """The numbers of a piece's ids: those of their ranges, and what the ranges before have."""
        found = np.empty(ids.count, np.uint32)
        read_into(_numbers_of(ids), 0, found)
        own = found.astype(np.int64)
        places = [*(ids.place(key) for key in self._cuts[:-1]), ids.count]
        for base, first, last in zip(self._bases, places[:-1], places[1:], strict=True):
            own[first:last] += base
        return own

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
        step = max(1, (1 << 22) // self._width) * self._width if self._text else 1 << 22
        for rank in range(self._team.size):
            with open(self._ids(rank), "rb") as file:
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
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)  # other ranks may write to it, too
    with open(handle, "wb", buffering=0) as file:
        file.seek(at)
        write_all(file, array)


def _too_many() -> UserError:
    return UserError(f"there are more than {_MOST:,} vertices. weft numbers them in 32 bits.")

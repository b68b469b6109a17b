"""A store out of sorted runs: each rank sorts a range of the rows and writes it to its place.

    sort    a rank's ranges of keys, to columns and pointers; rank 0 writes its own at once, since it knows
            where, the others keep theirs
    place   now that all know how many arcs the ranks before have: room for every section
    copy    what was kept, to its place; features row by row, each rank some
    end     rank 0 puts the checksums of the pieces together, and makes it a store

A mistake of one rank, at any of these, ends all of them, and leaves no store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.stream import native
from weft.graph.stream.attach import Attached
from weft.graph.stream.names import Names
from weft.graph.stream.plan import Plan
from weft.graph.stream.runs import Range, Run, Sorted, Space, gather, in_order, ranges
from weft.graph.stream.sections import Grows, Pointers, Spool, write_ids
from weft.graph.stream.team import Team, cuts, together
from weft.graph.stream.telling import Tick
from weft.graph.writer import Growing, Part, Writer, replacing


class Assembly:
    """The writing of one store.

    columns  name → (type, width) of what arcs carry, 0 for a list;  merge  how values of equal arcs meet
    """

    def __init__(
        self, out: Path, folder: Path, team: Team, plan: Plan, space: Callable[[], Space], tick: Tick,
        columns: Mapping[str, tuple[str, int]], merge: Mapping[str, np.ufunc],
        note: Callable[[Path], None],
    ) -> None:  # fmt: skip
        self._note = note
        self._out, self._folder, self._team, self._plan = out, folder, team, plan
        self._space, self._tick, self._merge = space, tick, merge
        self._kinds = {name: kind for name, (kind, _) in columns.items()}
        self._wide = {_section(name): (width,) for name, (_, width) in columns.items() if width}
        self._grows: dict[str, Growing] = {}
        self._spools: dict[str, Spool] = {}

    def write(
        self, name: str, runs: Sequence[Run], n: int, ranks: native.Ranks | None, names: Names | None,
        extra: Attached, origin: str,
    ) -> int:  # fmt: skip
        """The store of n vertices; how many arcs it has."""
        team, rank = self._team, self._team.rank
        index_kind = "<i4" if n < 2**31 else "<i8"
        keys = cuts(team, runs, rows=True)
        rows = [*(_row_of(key, ranks) for key in keys[:-1]), n]
        types = {"indptr": "<i8", "indices": index_kind} | {_section(c): k for c, k in self._kinds.items()}
        shape = (extra.num_features,)
        with ExitStack() as stack:

            def begin() -> str | None:
                if rank:
                    return None
                self._file = stack.enter_context(replacing(self._out))
                self._note(Path(self._file.name))
                self._writer = Writer(self._file)
                self._grows["indptr"] = self._writer.grow("indptr", "<i8", rows=n + 1)
                self._grows["indices"] = self._writer.grow("indices", index_kind)
                return str(self._file.name)

            path = together(team, begin)[0]
            own = keys[rank : rank + 2], rows[rank : rank + 2]
            counts = together(team, lambda: self._sort(runs, *own, ranks, index_kind, origin))
            base, total = sum(counts[:rank]), sum(counts)

            def place() -> dict[str, int] | None:
                if rank:
                    return None
                self._grows["indices"].leave(total)
                for column, kind in self._kinds.items():
                    section = _section(column)
                    self._grows[section] = self._writer.grow(section, kind, self._row(section), rows=total)
                if ranks is not None:
                    write_ids(self._writer, ranks)
                if names is not None:
                    names.write(self._writer)
                if extra.has_features:
                    self._grows["features"] = self._writer.grow("features", extra.kind, shape, rows=n)
                return {section: grows.offset for section, grows in self._grows.items()}

            offsets = together(team, place)[0]

            def copy() -> dict[str, Any]:
                with ExitStack() as opened:
                    file = self._file if rank == 0 else opened.enter_context(open(path, "r+b"))
                    parts: dict[str, Part] = {}
                    for section, spool in self._spools.items():
                        first = rows[rank] + 1 if section == "indptr" else base
                        row = self._row(section)
                        part = parts[section] = Part(file, offsets[section], types[section], row, first)
                        spool.to(part, base if section == "indptr" else 0)
                    if extra.has_features:
                        first, last = (n * k // team.size for k in (rank, rank + 1))
                        part = parts["features"] = Part(file, offsets["features"], extra.kind, shape, first)
                        extra.rows(part, first, last, self._copied(extra, n, last - first))
                return {section: [part.rows, part.pieces] for section, part in parts.items()}

            copied = together(team, copy)

            def end() -> None:
                if rank:
                    return
                for section, grows in self._grows.items():
                    for parts in copied:
                        if section in parts:
                            grows.join(*parts[section])
                    grows.end()
                extra.write(self._writer)
                self._writer.finish(name, extra.num_classes)
                stack.close()

            together(team, end)
        return total

    def _copied(self, extra: Attached, n: int, own: int) -> Callable[[int], None]:
        """Tells of the features: this rank's so far stand for all."""
        each = np.dtype(extra.kind).itemsize * extra.num_features
        return lambda rows: self._tick("copy", each * n * rows // max(1, own), each * n)

    def _row(self, section: str) -> tuple[int, ...]:
        """The shape of one of its entries."""
        return self._wide.get(section, ())

    def _sort(
        self, runs: Sequence[Run], keys: Sequence[Any], rows: Sequence[int], ranks: native.Ranks | None,
        index_kind: str, origin: str,
    ) -> int:  # fmt: skip
        """This rank's arcs in order; how many there are."""
        rank, size = self._team.rank, self._team.size
        total, seen = max(1, sum(run.count for run in runs)), 0
        kept = {} if rank == 0 else {"indptr": "<i8", "indices": index_kind}
        kept |= {_section(column): kind for column, kind in self._kinds.items()}
        for number, (section, kind) in enumerate(kept.items()):
            self._spools[section] = Spool(self._folder / f"s-{rank}-{number}", kind, self._row(section))
        into: dict[str, Grows] = {**self._grows, **self._spools}
        pointers = Pointers(into["indptr"], rows[0], rows[1], zero=rank == 0)

        def work(part: Range) -> tuple[Sorted, np.ndarray, np.ndarray, np.ndarray]:
            found = gather(part, self._space(), self._kinds, self._merge)
            columns = np.empty(len(found.keys), index_kind)
            in_part, counts = native.split(found.keys, ranks, columns)
            return found, columns, in_part.copy(), counts.copy()

        self._tick("write", 0, total)
        parts = ranges(runs, self._plan.part, *keys)
        for found, columns, in_part, counts in in_order(work, parts, self._plan.threads):
            into["indices"].append(columns)
            pointers.add(in_part, counts)
            for column in self._kinds:
                into[_section(column)].append(_sound(column, found.columns[column], origin))
            seen += found.given
            self._tick("write", min(total, seen * size), total)
        pointers.end()
        return pointers.total


def _section(column: str) -> str:
    return "weights" if column == "weight" else f"arc_{column}"


def _row_of(key: int, ranks: native.Ranks | None) -> int:
    """The number of the first row whose keys are not below this one."""
    row = key >> 32
    if ranks is None or not row:
        return row
    return int(ranks.of(np.array([row]))[0])


def _sound(name: str, values: np.ndarray, origin: str) -> np.ndarray:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        wild = float(values[~np.isfinite(values)][0])
        what = "a weight" if name == "weight" else f"{name} of an arc"
        raise UserError(f"{origin}: {what} is {wild}. Replace it by a finite number.")
    return values

"""From files of any size to a store, in a bounded amount of memory.

    read    segments of the input, on all cores: arcs → keys (target, source), sorted into runs on disk
    name    where ids are wide or text: the distinct ones, sorted; keys are then made of their places
    write   range after range of the keys: sorted, equal arcs merged, appended to the store

What is held at a time follows from `memory` alone; of n only a bit a vertex, where ids are below 64 times the
number of arcs. A vertex's place is that of its id in ascending order, as everywhere in weft.

On several ranks each reads some of the segments, then sorts a range of the rows and writes it to its place in
the one store, which is that of one process, byte for byte. Scratch files, input and store lie where all ranks
see them: a run is written by the rank that read it, and read by those whose rows it has.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import Note, UserError
from weft.graph.guard import allowed_bytes
from weft.graph.readers.files import stem
from weft.graph.stream import native
from weft.graph.stream.assemble import Assembly
from weft.graph.stream.attach import Attached
from weft.graph.stream.heap import Heap, TooWide
from weft.graph.stream.inputs import inputs_of
from weft.graph.stream.journal import Journal
from weft.graph.stream.names import Names
from weft.graph.stream.pieces import Arcs, Bad, Input, Segment
from weft.graph.stream.plan import Plan, check_disk, plan
from weft.graph.stream.runs import Range, Run, Space, gather, in_order, ranges, write_run
from weft.graph.stream.team import Alone, Stopped, Team, cleared, cuts, either, runs_of_all, together
from weft.graph.stream.telling import Telling, Tick
from weft.graph.writer import check_new

MOST = 3_037_000_498
"""Vertices that weft can number: row·n + column must fit into 63 bits."""


@dataclass(frozen=True)
class Options:
    """How to convert.

    memory      bytes that the process may hold, its libraries included; None: half of what is free
    undirected  store both directions; None asks the files
    skip_bad    leave out lines that are no arcs, and count them
    text_ids    ids are names: vertex data "name" holds them, uint8 [n, width], padded with 0
    header      with text_ids: the first line of each file names the columns
    features, labels   .npy files, a row a vertex;  split  shares as in `weft.graph.split`
    """

    memory: int | None = None
    undirected: bool | None = None
    arc_columns: Sequence[str] | None = None
    skip_bad: bool = False
    text_ids: bool = False
    header: bool = False
    features: str | None = None
    labels: str | None = None
    split: tuple[float, float] | None = None
    seed: int = 0
    threads: int = 0
    scratch: str | None = None
    name: str | None = None


@dataclass
class Done:
    """What came of it.

    given   arcs that the files hold; fewer are stored where some were given again
    """

    num_nodes: int = 0
    num_arcs: int = 0
    num_features: int = 0
    num_classes: int = 0
    given: int = 0
    skipped: int = 0
    first_skipped: str = ""
    arc_data: dict[str, str] = field(default_factory=dict)
    """Name → type of what arcs carry."""
    arc_widths: dict[str, int] = field(default_factory=dict)
    """Name → columns of those that are no lists."""


def convert(
    paths: Sequence[str | Path], out: str | Path, options: Options | None = None, tick: Tick | None = None,
    team: Team | None = None,
) -> Done:  # fmt: skip
    """Make a store of edge lists, Matrix Market, npz or parquet files of any size.

    Interrupted, the same call goes on where it was. After a mistake, or with a full disk, nothing is left.
    All ranks of `team`, a communicator, call it alike; `memory` and `threads` are those of one rank.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.txt").write_text("0 7\\n0 7\\n3 0\\n")
    ...     _ = (Path(folder) / "b.txt").write_text("7 3\\n")
    ...     done = convert([f"{folder}/a.txt", f"{folder}/b.txt"], f"{folder}/g.weft")
    ...     from weft.graph import open_store
    ...     done.num_nodes, done.given, open_store(f"{folder}/g.weft").graph().ids.tolist()
    (3, 4, [0, 3, 7])
    """
    options = options or Options()
    return _Conversion(
        lambda: inputs_of([Path(path) for path in paths], options), Path(out), options, tick, team or Alone()
    ).run()


def convert_inputs(
    inputs: Sequence[Input], out: str | Path, options: Options | None = None, tick: Tick | None = None,
    team: Team | None = None,
) -> Done:  # fmt: skip
    """The same of inputs that are open, or of something that is no file (`weft.graph.stream.drawn`)."""
    return _Conversion(lambda: list(inputs), Path(out), options or Options(), tick, team or Alone()).run()


class _Conversion:
    def __init__(
        self, opened: Callable[[], list[Input]], out: Path, options: Options, tick: Tick | None, team: Team
    ) -> None:
        self.out, self.options, self.team = out, options, team
        self.tick = tick or (lambda stage, done, total: None)
        self.spaces = threading.local()
        self.given = 0
        self.bad = Bad()
        sizes = together(team, lambda: self._begin(opened))
        # Pieces are the same on all ranks.
        bits, segment = (min(size[k] for size in sizes) for k in range(2))
        self.plan: Plan = replace(self.planned, bits=bits, segment=segment)
        self.per_file = [0] * len(self.inputs)
        self._expect(wide=self.options.text_ids)

    def _expect(self, wide: bool) -> None:
        """Tell who listens about how many bytes each stage will read and write."""
        if not isinstance(self.tick, Telling):
            return
        entries = self.arcs * (2 if self.both else 1)
        runs = entries * (8 + self.payload)
        work = {"read": sum(source.size for source in self.inputs) + runs}
        if wide:  # ids are written as they stand, their numbers beside them, then keys are made of these
            work = {"read": work["read"], "name": 2 * work["read"], "key": work["read"] + runs}
        if self.undirected and self.payload:
            entries, runs = 2 * entries, 2 * runs
            work["mirror"] = runs // 2 + runs
        work["write"] = runs + entries * (4 + self.payload)
        if features := Attached.bytes_of(self.options):
            work["copy"] = 2 * features
        self.tick.expect(work)

    def _begin(self, opened: Callable[[], list[Input]]) -> list[int]:
        check_new(self.out)
        self.inputs = opened()
        self.weighted, self.carried = _same(self.inputs)
        self.undirected = _undirected(self.inputs, self.options.undirected)
        self.arcs = sum(source.expected() for source in self.inputs)
        weights = max(source.weight_bytes for source in self.inputs)
        self.payload = weights + 8 * sum(max(1, width) for width in self.carried.values())
        threads = self.options.threads or len(os.sched_getaffinity(0))
        self.planned = plan(self.options.memory, threads, self.payload, self.arcs)
        if self.team.rank == 0:
            self._check_disk()
        return [self.planned.bits, self.planned.segment]

    @property
    def both(self) -> bool:
        """Whether each arc is entered in both directions at once: nothing goes along that would be merged."""
        return self.undirected and not self.payload

    def run(self) -> Done:
        scratch = Path(self.options.scratch) if self.options.scratch else self.out.parent
        sizes = {"bits": self.plan.bits, "segment": self.plan.segment}
        self.journal = Journal(
            scratch / f".{self.out.name}.convert", self._what(), sizes, self.team, self.out
        )
        self.plan = replace(self.plan, **self.journal.how)
        try:
            found = self._convert()
        except KeyboardInterrupt:
            self.journal.close()
            raise
        except OSError as error:
            cleared(self.team, error, self.journal.remove)
            why = f"{error.strerror or error}"
            raise UserError(f"cannot write {self.out}: {why}. Check the folder and its space.") from None
        except BaseException as error:
            if self.team.size > 1 and not isinstance(error, UserError):
                self.journal.close()  # a rank was lost: the others may go on
            else:
                cleared(self.team, error, self.journal.remove)
            raise
        self.journal.remove()
        return found

    def _convert(self) -> Done:
        names: Names | None = None
        if (self._announced() or 0) > MOST and all(source.fixed for source in self.inputs):
            raise _too_many(self._announced())
        present: np.ndarray | None = None
        wide = self.options.text_ids or any(e.get("stage") == "wide" for e in self.journal.done)
        if not wide:
            fixed = all(source.fixed for source in self.inputs)
            present = None if fixed else np.zeros(self.plan.bits // 64, np.uint64)
            runs, wide = self._keys(present)
        if wide:
            present = None
            self._expect(wide)
            names = Names(self.journal, self.plan, self.inputs, self.options.text_ids, self.team, self.tick)
            runs = names.read(self._keyed, self._segments, self._announced())
            self.given = names.given
            self.per_file, self.bad = names.per_file, names.bad
        for source, given in zip(self.inputs, self.per_file, strict=True):
            source.check(given)
        runs = runs_of_all(self.team, self.journal.folder, "keys", runs)
        if self.undirected and self.payload:
            runs = self._mirrored(runs)
        n, ranks = self._number(present, names)
        merge = {"weight": np.maximum if self.undirected else np.add} if self.weighted else {}
        kinds, folder = self._kinds(runs), self.journal.folder
        columns = {name: (kind, self.carried.get(name, 0)) for name, kind in kinds.items()}
        assembly = Assembly(
            self.out,
            folder,
            self.team,
            self.plan,
            self._space,
            self.tick,
            columns,
            merge,
            self.journal.writes,
        )
        extra: list[Attached] = []
        together(self.team, lambda: extra.append(Attached(self.options, n, self.plan.free)))
        # Known only now: how many vertices there are, each with a pointer and features.
        each = 8
        if extra[0].has_features:
            each += np.dtype(extra[0].kind).itemsize * extra[0].num_features
        why = f"pointers and features of {n:,} vertices"
        together(self.team, lambda: check_disk(each * n, self.out.parent, why))
        name = self.options.name or stem(self.inputs[0].path)
        arcs = assembly.write(name, runs, n, ranks, names, extra[0], str(self.inputs[0].path))
        return self._done(n, arcs, kinds, extra[0])

    # Reading

    def _keys(self, present: np.ndarray | None) -> tuple[list[Run], bool]:
        """This rank's runs of keys, and whether some rank met an id that is too wide for this."""
        runs: list[Run] = []

        def work() -> list[Any]:
            try:
                runs.extend(self._read(present))
            except TooWide:
                self.journal.add({"stage": "wide"})
                self.journal.flag("wide")
                return [None, None]
            return [self.per_file, list(vars(self.bad).values())]

        told = together(self.team, work, lambda: self.journal.flag("stop"))
        if any(counts is None for counts, _ in told):
            return [], True
        self.per_file = [sum(counts) for counts in zip(*(counts for counts, _ in told), strict=True)]
        self.given, self.bad = sum(self.per_file), Bad()
        for _, bad in told:
            self.bad.add(Bad(*bad))
        if present is not None:
            either(self.team, self.journal.folder, present)
        return runs, False

    def _segments(self, done: set[tuple[int, int]]) -> Iterator[tuple[int, Input, Segment]]:
        """This rank's share of what is left: segments in turn, or files where they are read whole."""
        rank, size = self.team.rank, self.team.size
        for at, source in enumerate(self.inputs):
            if source.whole and at % size != rank:
                continue
            for segment in source.segments(self.plan.segment, {s for f, s in done if f == at}):
                if source.whole or (at + segment.number) % size == rank:
                    if self.journal.flagged("stop"):
                        raise Stopped
                    yield at, source, segment

    def _read(self, present: np.ndarray | None) -> list[Run]:
        """Input as sorted runs of keys; the bits of ids that occur are set."""
        limit = self.plan.bits
        if present is None:
            limit = max((source.num_nodes or 0 for source in self.inputs), default=0)
        done = {(e["file"], e["segment"]) for e in self.journal.done if e.get("stage") == "read"}
        total = sum(source.size for source in self.inputs)
        runs, passed = [], 0
        for entry in self.journal.own("read"):
            runs += [Run.known(self.journal.folder, facts) for facts in entry["runs"]]
            self.per_file[entry["file"]] += entry["given"]
            self.bad.add(Bad(*entry["skipped"]))
            passed += entry["bytes"]
        if present is not None:
            for _ in in_order(lambda run: self._mark(run, present), runs, self.plan.threads):
                pass

        def work(item: tuple[int, Input, Segment]) -> tuple[int, Segment, list[Run], int]:
            at, _, segment = item
            found, given = self._keyed(at, segment, segment.arcs(), limit, present)
            return at, segment, found, given

        def progress() -> None:
            self.tick("read", min(total, passed * self.team.size), total)

        progress()
        for at, segment, found, given in in_order(work, self._segments(done), self.plan.threads):
            facts = [run.facts() for run in found]
            self.bad.add(segment.bad)
            self.journal.add(
                {"stage": "read", "file": at, "segment": segment.number, "bytes": segment.bytes,
                 "given": given, "runs": facts, "skipped": list(vars(segment.bad).values())}
            )  # fmt: skip
            runs += found
            self.per_file[at] += given
            passed += segment.bytes
            progress()
            if self.journal.flagged("wide"):
                raise TooWide
        return runs

    def _mark(self, run: Run, present: np.ndarray) -> None:
        for first in range(0, run.count, 1 << 20):
            keys = run.read(first, min(run.count, first + (1 << 20)))
            source, target = (
                (keys & np.uint64(2**32 - 1)).view(np.int64),
                (keys >> np.uint64(32)).view(np.int64),
            )
            native.pack(source, target, len(present) * 64, keys, present)

    def _keyed(
        self, at: int, segment: Segment, pieces: Iterator[Arcs], limit: int, present: np.ndarray | None
    ) -> tuple[list[Run], int]:
        """A segment's arcs as sorted runs, and how many there were."""
        place = (at, segment.number)
        heap = Heap(
            self.journal.folder,
            self.plan,
            self.both,
            bool(self.payload),
            self._space(),
            place,
            limit,
            present,
        )
        given = 0
        for arcs in pieces:
            given += len(arcs.source)
            heap.add(arcs)
        return heap.close(), given

    def _space(self) -> Space:
        if not hasattr(self.spaces, "own"):
            self.spaces.own = Space()
        space: Space = self.spaces.own
        return space

    # Both directions of arcs that carry something

    def _mirrored(self, runs: list[Run]) -> list[Run]:
        """Each arc once, and its mirror: runs of the first, then of the second."""
        kinds, total = self._kinds(runs), max(1, sum(run.count for run in runs))
        merge = {"weight": np.add} if self.weighted else {}
        team, rank = self.team, self.team.rank
        begins = cuts(team, runs)
        own: list[Run] = []

        def mirror(part: Range) -> tuple[list[Run], int]:
            found = gather(part, self._space(), kinds, merge)
            place = (rank, part.number)
            forward = write_run(self._file("f", *place), found.keys, found.columns, (2, *place))
            keys = found.keys >> np.uint64(32) | found.keys << np.uint64(32)
            index = np.arange(len(keys), dtype=np.uint32)
            native.sort(keys, self._space().take("scratch", len(keys), np.uint64), index, index.copy())
            columns = {name: x[index] for name, x in found.columns.items()}
            back = write_run(self._file("b", *place), keys, columns, (3, *place))
            return [forward, back], part.count

        def work() -> None:
            seen = 0
            parts = ranges(runs, self.plan.part, begins[rank], begins[rank + 1])
            for made, count in in_order(mirror, parts, self.plan.threads):
                own.extend(made)
                seen += count
                self.tick("mirror", min(total, seen * team.size), total)

        together(team, work)
        both = runs_of_all(team, self.journal.folder, "mirrors", own)
        self.merged = self.given - sum(run.count for run in both) // 2
        if rank == 0:
            for run in runs:
                run.path.unlink()
        return both

    def _file(self, kind: str, *number: int) -> Path:
        return self.journal.folder / "-".join((kind, *map(str, number)))

    def _kinds(self, runs: list[Run]) -> dict[str, str]:
        """The type of each column in the end: whole numbers only where all are."""
        kinds: dict[str, str] = {}
        for run in runs:
            for name, (kind, _) in run.columns.items():
                kinds[name] = np.promote_types(kinds.get(name, kind), kind).str
        return kinds

    # Numbering

    def _number(self, present: np.ndarray | None, names: Names | None) -> tuple[int, native.Ranks | None]:
        """How many vertices there are, and where ids are not 0..n-1 the places of them."""
        announced = self._announced()
        if names is not None:
            n = names.num_nodes(announced)
        elif present is None:
            n = announced or 0
        else:
            words = np.flatnonzero(present)
            top = int(words[-1]) * 64 + int(present[words[-1]]).bit_length() - 1 if len(words) else -1
            if announced is not None and top < announced:
                n = announced
            else:
                ranks = native.Ranks(present[: int(words[-1]) + 1 if len(words) else 0])
                if ranks.count != top + 1:
                    return ranks.count, ranks
                n = top + 1
        held = sum(source.size for source in self.inputs) + 8 * self.given
        if announced is not None and 8 * (n + 1) > allowed_bytes(held):
            raise UserError(
                f"{self.inputs[0].path}: {n} vertices: {8 * (n + 1) / 1e9:,.1f} GB needed for {held:,} bytes "
                "of file. Correct the size it announces."
            )
        if n > MOST:
            raise _too_many(n)
        return n, None

    def _announced(self) -> int | None:
        """How many vertices the files say there are; None where one does not say."""
        said = [source.num_nodes for source in self.inputs if source.num_nodes is not None]
        return max(said) if len(said) == len(self.inputs) else None

    def _done(self, n: int, arcs: int, kinds: dict[str, str], extra: Attached) -> Done:
        merged = getattr(self, "merged", self.given - arcs)
        if self.carried and merged > 0 and self.team.rank == 0:
            fate = (["weights are added up"] if self.weighted else []) + [
                f"of {', '.join(self.carried)} the first is kept"
            ]
            where = self.inputs[0].path
            warnings.warn(
                f"{where}: {merged:,} {'arc was' if merged == 1 else 'arcs were'} given again and merged: "
                f"{', '.join(fate)}.",
                Note,
                stacklevel=4,
            )
        data = {name: np.dtype(kind).name for name, kind in kinds.items() if name != "weight"}
        return Done(
            n, arcs, extra.num_features, extra.num_classes, self.given, self.bad.count, self.bad.first, data,
            {name: width for name, width in self.carried.items() if width},
        )  # fmt: skip

    # Beforehand

    def _check_disk(self) -> None:
        """Runs and, while these are still there, the store; once more the arcs where they are mirrored."""
        times = 2 if self.undirected else 1
        runs = self.arcs * (8 + self.payload) * (times if self.both else 1)
        runs += self.arcs * (8 + self.payload) * 2 if self.undirected and self.payload else 0
        store = self.arcs * times * (4 + 2 * self.payload) + Attached.bytes_of(self.options)
        scratch = Path(self.options.scratch or self.out.parent)
        if not scratch.is_dir():
            raise UserError(f"no folder {scratch} for scratch files. Make it first.")
        if scratch.stat().st_dev != self.out.parent.stat().st_dev:
            check_disk(runs, scratch, "sorted arcs")
            check_disk(store, self.out.parent, "the store")
        else:
            check_disk(runs + store, self.out.parent, "sorted arcs and the store")

    def _what(self) -> dict[str, Any]:
        """What makes this conversion the one that it is: another one does not go on with its files."""
        files = [source.stamp() for source in self.inputs]
        o = self.options
        return {
            "weft": 2, "files": files, "undirected": self.undirected,
            "columns": list(o.arc_columns) if o.arc_columns is not None else None, "skip_bad": o.skip_bad,
            "text_ids": o.text_ids, "header": o.header,
        }  # fmt: skip


def _too_many(n: int | None) -> UserError:
    return UserError(
        f"{n} vertices are too many. weft sorts arcs by row*n + column, which must fit into 63 bits."
    )


def _same(inputs: list[Input]) -> tuple[bool, dict[str, int]]:
    first = inputs[0]
    for other in inputs[1:]:
        if other.weighted != first.weighted or other.carried != first.carried:
            raise UserError(
                f"{other.path} has {_told(other)}, {first.path} has {_told(first)}. "
                "Convert files together that have the same columns."
            )
    return first.weighted, first.carried


def _told(source: Input) -> str:
    data = [f"{width} columns of {name}" if width else name for name, width in source.carried.items()]
    return ", ".join((["weights"] if source.weighted else []) + data) or "arcs alone"


def _undirected(inputs: list[Input], asked: bool | None) -> bool:
    if asked is not None:
        return asked
    said = {source.undirected for source in inputs}
    if len(said) > 1:
        raise UserError(
            "some of the files say that they are undirected, others don't. Say --undirected for all."
        )
    return said.pop()

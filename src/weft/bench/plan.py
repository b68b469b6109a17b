"""What a plan foretells, held against what ranks then take.

    setting   ranks on a machine, or on hosts with a link: a folder
              profile.json   the machine, calibrated there
              points.jsonl   a line a measured point; what is there is not measured again
              graphs/        the graphs, as ranks read them
    point     graph × model × candidate (strategy, grid, exchange, partition) × ranks
    case      graph × model × ranks: all candidates of it; the plan chooses one

Points are measured on ranks that are started once for many of them; peaks of memory in processes of their
own, because a process keeps what an earlier point made it take.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..comm import Communicator, Ledger
from ..errors import UserError
from ..graph import Store, load, open_store, write_store
from ..memory import trim
from ..meter import Meter
from ..planner.choose import machine_of
from ..planner.cost import Machine
from ..planner.cuts import Shape
from ..planner.plan import Candidate, Forecast, candidates, plan
from ..planner.profile import Profile
from ..train import RunConfig, Trainer
from .ranks import trainable, trained

_LEAST, _MOST, _SECONDS = 5, 200, 0.5
"""Steady epochs of a point: so many, or as many as so many seconds hold. What others use meanwhile is told in
ticks of 10 ms: over half a second one of them is a fiftieth of a core."""
_PACES = 49
"""Products of which the median is a machine's pace: 4 ranks on 2 cores take one or two turns for each."""
NEAR = 1.1
"""The choice is to be within this of the best measured."""
DISTURBED, SLOW = 0.15, 1.5
"""Cores that others used meanwhile, and a fixed piece of work over its usual seconds: from there on a point
is measured again."""


Way = tuple[str, str, str, str, bool]
"""Strategy, sides of its grid, exchange, partition, by host."""


@dataclass(frozen=True)
class Point:
    """One way to train one model on one graph."""

    graph: str
    model: str
    ranks: int
    strategy: str
    sides: str
    """What `--grid` says."""
    exchange: str
    partition: str
    hidden: int = 64
    hosts: int = 1
    threads: int = 1
    """Of a rank."""
    by_host: bool = False
    layers: int = 2

    @property
    def case(self) -> tuple[str, str, int, int, int, int]:
        """What has one best candidate."""
        return self.graph, self.model, self.ranks, self.hosts, self.hidden, self.layers

    @property
    def way(self) -> Way:
        """What a candidate is told by."""
        return self.strategy, self.sides, self.exchange, self.partition, self.by_host

    def config(self) -> RunConfig:
        """What `weft train` would be told."""
        config = RunConfig()
        config.data.graph, config.model.name, config.model.hidden = self.graph, self.model, self.hidden
        config.model.layers = self.layers
        options = config.parallel
        options.ranks, options.strategy, options.grid = self.ranks, self.strategy, self.sides
        options.exchange, options.partition = self.exchange, self.partition
        options.by_host = "on" if self.by_host else "off"
        config.train.threads = self.threads
        return config

    def options(self) -> list[str]:
        """The same on the command line."""
        words = {
            "--model": self.model, "--hidden": self.hidden, "--layers": self.layers,
            "--ranks": self.ranks, "--threads": self.threads,
            "--strategy": self.strategy, "--exchange": self.exchange, "--partition": self.partition,
            "--grid": self.sides, "--by-host": "on" if self.by_host else "off",
        }  # fmt: skip
        return [word for name, value in words.items() if value for word in (name, str(value))]


def way_of(candidate: Candidate) -> Way:
    return (
        candidate.strategy, candidate.sides, candidate.exchange, candidate.partition, candidate.by_host,
    )  # fmt: skip


def points_of(
    graphs: Sequence[str], models: Sequence[str], ranks: int, partitions: Sequence[str], hidden: int,
    hosts: int = 1, threads: int = 1, layers: int = 2,
) -> list[Point]:  # fmt: skip
    """Every candidate of every case.

    >>> found = points_of(["karate"], ["gcn"], 2, ["random"], 16)
    >>> [point.strategy for point in found]
    ['1d', 'halo', 'feature', 'grid']
    """
    return [
        Point(graph, model, ranks, *way[:4], hidden, hosts, threads, way[4], layers)
        for graph in graphs
        for model in models
        for way in dict.fromkeys(map(way_of, candidates(ranks, partitions, hosts=hosts)))
        if ranks > 1 or way[0] == "1d"
    ]


# Measuring.


def graph_file(folder: Path, graph: str) -> Path:
    """Where a setting keeps a graph."""
    return folder / "graphs" / (re.sub(r"[^A-Za-z0-9.=-]+", "_", graph)[-80:] + ".weft")


def prepare(folder: Path, graphs: Iterable[str], features: int = 64, classes: int = 16) -> None:
    """Write the graphs that are not there yet; those without features get random ones."""
    for graph in dict.fromkeys(graphs):
        path = graph_file(folder, graph)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_store(trainable(load(graph), features, classes), path)


def measured(folder: Path) -> list[dict[str, Any]]:
    """What a setting has measured; a last line that was cut off is dropped."""
    path = folder / "points.jsonl"
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            record["point"] = Point(**record["point"])
        except (ValueError, TypeError, KeyError):
            if line.endswith("}"):
                raise UserError(f"{path}, line {number}, is no measured point. Delete that line.") from None
            continue
        found.append(record)
    return found


def quiet(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last of each point that nobody disturbed: others had little of the cores, and a fixed piece of work
    took as long as it mostly does on so many ranks."""
    paces: dict[int, list[float]] = {}
    for record in records:
        paces.setdefault(record["point"].ranks, []).append(record["pace"])
    usual = {ranks: statistics.median(found) for ranks, found in paces.items()}
    kept = [
        record
        for record in records
        if record["beside"] <= DISTURBED and record["pace"] <= SLOW * usual[record["point"].ranks]
    ]
    return list({record["point"]: record for record in kept}.values())


def measure(comm: Communicator, folder: str, points: Sequence[Mapping[str, Any]], seconds: float) -> int:
    """On every rank: points one after the other until the seconds are over; rank 0 writes. How many."""
    path, began, done = Path(folder), time.perf_counter(), 0
    for told in points:
        point = Point(**told)
        over = comm.all_gather_json(time.perf_counter() - began > seconds)[0]
        if over:
            break
        record = _measure(comm, open_store(graph_file(path, point.graph), verify=False), point)
        if comm.rank == 0:
            with (path / "points.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"point": asdict(point), **record}) + "\n")
        done += 1
    return done


def _measure(comm: Communicator, store: Store, point: Point) -> dict[str, Any]:
    """Steady epochs of a point: seconds of each, the slowest rank's; words; where a rank's time went."""
    if comm.engine != "threads":
        torch.set_num_threads(point.threads)
    began = time.perf_counter()
    trainer = Trainer(store, point.config(), comm)
    for epoch in (1, 2):  # A·X is kept, buffers are made
        trainer.step(epoch)
    once = max(comm.all_gather_json(_timed(trainer, 3)))
    epochs = int(min(_MOST, max(_LEAST, _SECONDS / max(once, 1e-6))))
    pace = max(comm.all_gather_json(_pace()))
    busy, own, start = _busy(), time.process_time(), time.perf_counter()
    taken = comm.all_gather_json([_timed(trainer, 4 + epoch) for epoch in range(epochs)])
    ours = sum(comm.all_gather_json(time.process_time() - own))
    wall = time.perf_counter() - start
    beside = max(0.0, _busy() - busy - ours) / wall
    with Ledger(comm) as books, Meter() as meter:
        trainer.step(4 + epochs)
    words = max(comm.all_gather_json(books.words()))
    spent = comm.all_gather_json(meter.seconds)
    del trainer
    gc.collect()
    trim()
    each = [max(ranks) for ranks in zip(*taken, strict=True)]
    return {
        "seconds": statistics.median(each), "quickest": min(each), "epochs": epochs, "words": words,
        "beside": beside, "pace": pace, "spent": spent[0],
        "set_up": time.perf_counter() - began, "load": _load(), "at": round(time.time()),
    }  # fmt: skip


def _timed(trainer: Trainer, epoch: int) -> float:
    start = time.perf_counter()
    trainer.step(epoch)
    return time.perf_counter() - start


def _pace() -> float:
    """Seconds of a fixed piece of work on all ranks at once: whether the machine itself is slower now."""
    h, w = torch.ones(1 << 14, 64), torch.ones(64, 64)
    return statistics.median(_took(lambda: torch.mm(h, w)) for _ in range(_PACES))


def _took(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _busy() -> float:
    """Seconds that the cores have worked for programs, anybody's, or for other machines on the same cores;
    0 where nobody tells."""
    try:
        user, nice, system, _, _, _, _, stolen = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(nice) + int(system) + int(stolen)) / os.sysconf("SC_CLK_TCK")


def _load() -> float:
    try:
        return float(Path("/proc/loadavg").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return float("nan")


def measure_peak(folder: Path, point: Point) -> list[int]:
    """Peak bytes of each rank of a run of its own."""
    with tempfile.TemporaryDirectory(prefix="weft-") as scratch:
        answer = trained(
            graph_file(folder, point.graph), Path(scratch) / "run", [*point.options(), "--epochs", "4"]
        )
    return [int(each) for each in answer["peak_rss_bytes"]]


# Foretelling.


def foretold(
    folder: Path, profile: Profile, records: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Forecast, float]]:
    """Each record with what the plan says of it, and the seconds that its plan took; one plan a case, as
    `weft plan` makes it."""
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        cases.setdefault(record["point"].case, []).append(record)
    shapes: dict[str, Shape] = {}
    for group in cases.values():
        point: Point = group[0]["point"]
        if point.graph not in shapes:
            shapes[point.graph] = Shape.of(open_store(graph_file(folder, point.graph), verify=False))
        ways = {record["point"].way for record in group}
        partitions = list(dict.fromkeys(["random", *(way[3] for way in ways)]))
        began = time.perf_counter()
        found = plan(shapes[point.graph], point.config(), machine(profile, point), partitions, _among(ways))
        seconds = time.perf_counter() - began
        by_way = {way_of(row.candidate): row for row in found.rows}
        for record in group:
            if record["point"].way in by_way:
                yield record, by_way[record["point"].way], seconds


def _among(ways: set[Way]) -> Callable[[Candidate], bool]:
    return lambda candidate: way_of(candidate) in ways


def machine(profile: Profile, point: Point) -> Machine:
    """The ranks of a point."""
    return replace(
        machine_of(profile, point.config(), point.ranks, point.hosts), memory_bytes=profile.memory_bytes
    )


def row_of(
    setting: str, record: Mapping[str, Any], forecast: Forecast, planned: float = 0.0, calibrated: float = 0.0
) -> dict[str, Any]:
    """A line of the table.

    planned, calibrated   seconds that the plan of its case took, and the calibration of its setting
    """
    point: Point = record["point"]
    peak = max(record["peak"]) if record.get("peak") else None
    return {
        "setting": setting, **asdict(point), "foretold": forecast.seconds, "measured": record["seconds"],
        "ratio": forecast.seconds / record["seconds"], "quickest": record["quickest"],
        "message_seconds": forecast.messages_seconds, "compute_seconds": forecast.compute,
        "words": record["words"], "foretold_words": forecast.words, "bytes": forecast.bytes, "peak": peak,
        "peak_ratio": None if peak is None else forecast.bytes / peak, "load": record["load"],
        "planned": planned, "calibrated": calibrated,
    }  # fmt: skip


def error(ratio: float) -> float:
    """How far a forecast is off, as a share of what was measured.

    >>> round(error(0.8), 6), round(error(1.25), 6)
    (0.2, 0.25)
    """
    return abs(ratio - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed.

    >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5), quantile([1.0, 2.0], 0.95)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -(-round(share * len(ordered) * 1e6) // 1_000_000) - 1)]


_CASE = ("setting", "graph", "model", "ranks", "hosts", "hidden", "layers")
"""Of rows: what has one best candidate."""


def choices(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each case of more than one candidate: what the plan takes, over the best measured."""
    cases: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in _CASE)
        cases.setdefault(key, []).append(row)
    found = []
    for key, group in cases.items():
        if len(group) > 1:
            chosen = min(group, key=lambda row: row["foretold"])
            best = min(group, key=lambda row: row["measured"])
            found.append(
                {
                    **dict(zip(_CASE, key, strict=True)),
                    "candidates": len(group), "chosen": name_of(chosen), "best": name_of(best),
                    "ratio": chosen["measured"] / best["measured"],
                }
            )  # fmt: skip
    return found


def name_of(row: Mapping[str, Any]) -> str:
    sides = f" {row['sides']}" if row["sides"] else ""
    by_host = " by host" if row["by_host"] else ""
    return f"{row['strategy']}{sides} {row['exchange']} {row['partition']}{by_host}"


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is asked of plans, in numbers."""
    errors = [error(row["ratio"]) for row in rows]
    peaks = [error(row["peak_ratio"]) for row in rows if row["peak_ratio"] is not None]
    chosen = choices(rows)
    planned = list({tuple(row[name] for name in _CASE): row["planned"] for row in rows}.values())
    return {
        "points": len(rows), "graphs": len({row["graph"] for row in rows}),
        "median_error": statistics.median(errors) if errors else None,
        "error_95": quantile(errors, 0.95) if errors else None,
        "within_30": _share(errors, 0.3),
        "words_differ": sum(row["words"] != row["foretold_words"] for row in rows),
        "peaks": len(peaks), "worst_peak_error": max(peaks, default=None),
        "peaks_within_10": _share(peaks, 0.1),
        "cases": len(chosen), "chosen_near": _share([c["ratio"] for c in chosen], NEAR),
        "worst_choice": max((c["ratio"] for c in chosen), default=None),
        "planned": statistics.median(planned) if planned else None,
        "calibrated": max((row["calibrated"] for row in rows), default=None),
    }  # fmt: skip


def _share(values: Sequence[float], limit: float) -> float | None:
    return sum(value <= limit for value in values) / len(values) if values else None

"""weft bench plan: what plans foretell, held against what ranks take."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..tables import columns
from .options import Parser, number, whole_number
from .outputs import new_file, write_new

if TYPE_CHECKING:
    from ..bench.plan import Point
    from ..comm import Communicator

_GRAPHS = (
    "kronecker:scale=13,degree=16,features=64,classes=16",
    "er:nodes=20000,degree=8,features=64,classes=16",
)
_CALIBRATE = 60.0
"""Seconds: with trials of the trainer's own step."""
_EXAMPLES = """  weft bench plan kronecker:scale=13 er:nodes=20000 --out here --ranks 1,2,4 --seconds 240
  mpirun --hostfile hosts -n 4 weft bench plan kronecker:scale=13 --out lab-100mbit
  weft bench plan --memory 20 --out here          peaks of 20 points, each in a run of its own
  weft bench plan --report here lab-100mbit --csv points.csv"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench plan", "[GRAPH …] --out FOLDER [OPTIONS] | --report FOLDER …",
        "Foretell seconds and memory of every candidate, then measure them. A folder is a setting: its "
        "machine profile, calibrated at the first call, and the points measured so far; a further call goes "
        "on. Under mpirun the ranks that are there measure, on one host or several.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("graph", nargs="*", metavar="GRAPH", help="graphs, or the folders of --report")
    parser.add_argument("--out", metavar="FOLDER", help="the setting's folder")
    parser.add_argument("--models", default="gcn,sage,gat", metavar="TEXT,TEXT", help="(gcn,sage,gat)")
    parser.add_argument("--ranks", default="1,2,4", metavar="N,N", help="ranks to start (1,2,4)")
    parser.add_argument("--partition", default="random,metis", metavar="TEXT,TEXT", help="(random,metis)")
    parser.add_argument("--hidden", default="64", metavar="N", help="width of hidden layers (64)")
    parser.add_argument("--layers", default="2", metavar="N", help="layers of the model (2)")
    parser.add_argument("--seconds", default="240", metavar="X", help="measure no longer than this (240)")
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="kernels of this machine, so that only ranks and links are calibrated",
    )
    parser.add_argument("--memory", metavar="N", help="measure peaks of N points in runs of their own")
    parser.add_argument("--report", action="store_true", help="hold plans against what was measured")
    parser.add_argument("--csv", metavar="FILE", help="with --report: every point, a line each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    if parsed.report:
        return _report([Path(name) for name in parsed.graph], parsed.csv, parsed.json)
    if parsed.csv:
        raise UserError(f"--csv {parsed.csv} is for --report. Add --report, or leave it out.")
    if not parsed.out:
        raise UserError("bench plan needs a folder to measure into. Use --out FOLDER.")
    folder, seconds = Path(parsed.out), number(parsed.seconds, "--seconds")
    if parsed.memory:
        return _peaks(folder, whole_number(parsed.memory, "--memory"), seconds)
    graphs = list(parsed.graph) or list(_GRAPHS)
    models, partitions = parsed.models.split(","), parsed.partition.split(",")
    ranks = [whole_number(part, f"each of --ranks {parsed.ranks}") for part in parsed.ranks.split(",")]
    sizes = whole_number(parsed.hidden, "--hidden"), whole_number(parsed.layers, "--layers")
    from ..comm import in_job

    if in_job():
        return _joined(folder, graphs, models, partitions, sizes, seconds, parsed.profile)
    return _started(folder, graphs, models, ranks, partitions, sizes, seconds, parsed.profile)


def _joined(
    folder: Path, graphs: list[str], models: list[str], partitions: list[str], sizes: tuple[int, int],
    seconds: float, known: str | None,
) -> int:  # fmt: skip
    """On the ranks that are there; `sizes`: width of hidden layers, layers."""
    from ..bench.plan import points_of, prepare
    from ..comm import connect
    from ..planner.calibrate import calibrate
    from ..planner.profile import read_profile, write_profile

    comm = connect()
    hosts = len(set(comm.hosts))
    if comm.rank == 0:
        prepare(folder, graphs)
    comm.barrier()
    if not comm.all_gather_json((folder / "profile.json").exists())[0]:
        profile = calibrate(comm, _CALIBRATE, read_profile(Path(known)) if known else None)
        if comm.rank == 0:
            write_profile(profile, folder / "profile.json")
    points = points_of(graphs, models, comm.size, partitions, sizes[0], hosts, layers=sizes[1])
    _measure_on(comm, folder, points, seconds)
    return 0


def _measure_on(comm: Communicator, folder: Path, points: list[Point], seconds: float) -> None:
    from dataclasses import asdict

    from ..bench.plan import measure, measured, quiet

    # Rank 0 alone looks into the file, which it also writes.
    known = {record["point"] for record in quiet(measured(folder))} if comm.rank == 0 else set()
    todo = comm.all_gather_json([asdict(p) for p in points if p not in known])[0]
    done = measure(comm, str(folder), todo, seconds)
    if comm.rank == 0:
        print(f"{done} points measured on {comm.size} ranks, {len(todo) - done} left", file=sys.stderr)


def _started(
    folder: Path, graphs: list[str], models: list[str], ranks: list[int], partitions: list[str],
    sizes: tuple[int, int], seconds: float, known: str | None,
) -> int:  # fmt: skip
    """On ranks of this machine, started once for each number of them."""
    import time
    from dataclasses import asdict

    from ..bench.plan import measured, points_of, prepare, quiet
    from ..comm import run_ranks
    from ..comm.launch import cores
    from ..planner.profile import parse_profile, read_profile, write_profile

    prepare(folder, graphs)
    end = time.monotonic() + seconds
    if not (folder / "profile.json").exists():
        base = read_profile(Path(known)).as_dict() if known else None
        made = run_ranks(
            "weft.cli.calibrate:measured", min(8, 2 * cores()), "mpi", _CALIBRATE, base, stall_seconds=300
        )[0]
        write_profile(parse_profile(made), folder / "profile.json")
    for count in ranks:
        points = points_of(graphs, models, count, partitions, sizes[0], 1, max(1, cores() // count), sizes[1])
        have = {record["point"] for record in quiet(measured(folder))}
        todo = [asdict(p) for p in points if p not in have]
        left = end - time.monotonic()
        if todo and left > 0:
            done = run_ranks(
                "weft.bench.plan:measure", count, "mpi", str(folder), todo, left, stall_seconds=300,
                threads=max(1, cores() // count),
            )[0]  # fmt: skip
            print(f"{done} points measured on {count} ranks, {len(todo) - done} left", file=sys.stderr)
    return 0


def _peaks(folder: Path, count: int, seconds: float) -> int:
    """Peaks of points that are spread over all that were measured."""
    import time
    from dataclasses import asdict

    from ..bench.plan import measure_peak, measured, quiet

    records = measured(folder)
    if not records:
        raise UserError(f"{folder} has no measured points. Measure some first.")
    end = time.monotonic() + seconds
    have = sum(bool(record.get("peak")) for record in records)
    told = quiet(records)  # a report drops the others
    step = max(1, len(told) // max(1, count))
    for record in told[::step]:
        if record.get("peak") or record["point"].hosts > 1 or have >= count:
            continue
        if time.monotonic() > end:
            break
        record["peak"], have = measure_peak(folder, record["point"]), have + 1
        text = "".join(json.dumps({**r, "point": asdict(r["point"])}) + "\n" for r in records)
        part = folder / "points.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / "points.jsonl")
    print(f"{have} peaks measured", file=sys.stderr)
    return 0


def _report(folders: list[Path], out: str | None, as_json: bool) -> int:
    from ..bench.plan import choices, foretold, judged, measured, quiet, row_of
    from ..planner.profile import read_profile

    if not folders:
        raise UserError("--report needs the folders of what was measured. Name them.")
    if out:
        new_file(out, "--csv")
    rows: list[dict[str, Any]] = []
    for folder in folders:
        all_of_them = measured(folder)
        records = quiet(all_of_them)
        if all_of_them and not records:
            raise UserError(
                f"all {len(all_of_them)} points of {folder} were disturbed by others. Measure them again, "
                f"where nobody else works: --out {folder}."
            )
        if not records:
            raise UserError(f"{folder} has no measured points. Measure some first: --out {folder}.")
        profile = read_profile(folder / "profile.json")
        rows += [row_of(folder.name, *each, profile.seconds) for each in foretold(folder, profile, records)]
        if profile.between is None and any(record["point"].hosts > 1 for record in records):
            print(f"{folder}: its profile has no link between hosts, 10 Gbit/s stand in.", file=sys.stderr)
    if out:
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_new(out, table.getvalue(), "--csv")
    if as_json:
        print(json.dumps({"judged": judged(rows), "choices": choices(rows), "rows": rows}))
        return 0
    for line in describe(rows):
        print(line)
    return 0


def describe(rows: list[dict[str, Any]]) -> list[str]:
    """Tables: what is asked, by setting; then the choices that were not the best."""
    from ..bench.plan import choices, judged
    from ..units import spell_seconds

    names = list(dict.fromkeys(row["setting"] for row in rows))
    groups = [(name, [row for row in rows if row["setting"] == name]) for name in names]
    heads = ["setting", "points", "median error", "95 %", "peaks", "worst", "cases", "within 10 %", "worst",
             "planned in", "calibrated in"]  # fmt: skip
    table = []
    for name, group in [*groups, ("all", rows)] if len(groups) > 1 else groups:
        j = judged(group)
        table.append(
            [name, j["points"], _percent(j["median_error"]), _percent(j["error_95"]), j["peaks"],
             _percent(j["worst_peak_error"]), j["cases"], _percent(j["chosen_near"]),
             f"{j['worst_choice']:.2f}x" if j["worst_choice"] else "",
             spell_seconds(j["planned"]), spell_seconds(j["calibrated"]) if j["calibrated"] else ""]
        )  # fmt: skip
    lines = [columns(heads, table, left=1), ""]
    off = sorted((c for c in choices(rows) if c["ratio"] > 1.1), key=lambda c: -c["ratio"])
    if off:
        heads = ["setting", "graph", "model", "ranks", "chosen", "best", "times as long"]
        table = [
            [c["setting"], c["graph"][:24], c["model"], c["ranks"], c["chosen"], c["best"],
             f"{c['ratio']:.2f}"]
            for c in off
        ]  # fmt: skip
        lines.append(columns(heads, table, left=6))
    return lines


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"

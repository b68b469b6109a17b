"""weft bench pipeline: batches with and without the pipeline, with and without samples drawn ahead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from ..errors import UserError, unknown
from .options import Parser, whole_number
from .ranks import everywhere

_GRAPH = "kronecker:scale=15,degree=30,features=128,classes=16"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench pipeline", "[GRAPH] [OPTIONS]",
                    "Seconds of a batch with and without the pipeline (P3), each with and without samples "
                    "that a thread draws ahead; the four take turns, and their losses are compared. Under "
                    "mpirun, srun or torchrun it takes the ranks that are there.",
                    "  weft bench pipeline --ranks 1,2\n"
                    "  weft bench pipeline --feed push-pull --ahead 4\n"
                    "  mpirun -n 4 --hostfile hosts weft bench pipeline --feed push-pull")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument("--ranks", metavar="N,N", help="to start (1,2)")
    numbers = {
        "batch-size": "seeds a batch, of all ranks (1000)", "hidden": "width (64)",
        "ahead": "batches that are drawn ahead (2)", "batches": "batches a round (8)",
        "rounds": "rounds of each, in turn; the median counts (5)",
    }  # fmt: skip
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[-1].rstrip(")"), metavar="N", help=text)
    parser.add_argument("--fanouts", default="25,10", metavar="N,N", help="(25,10)")
    parser.add_argument("--model", default="sage", metavar="TEXT", help="(sage)")
    parser.add_argument("--feed", default="pull", metavar="TEXT", help="pull or push-pull (pull)")
    parser.add_argument("--engine", metavar="TEXT", help="mpi, torch or threads (mpi)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..comm import in_job

    joins = in_job()
    if joins and (parsed.ranks or parsed.engine):
        raise UserError("these ranks were started by somebody else already. Leave out --ranks and --engine.")
    asked, engine = parsed.ranks or "1,2", parsed.engine or "mpi"
    ranks = [whole_number(part, f"each of --ranks {asked}") for part in asked.split(",")]
    batch, hidden, ahead, batches, rounds = (
        whole_number(getattr(parsed, name.replace("-", "_")), f"--{name}") for name in numbers
    )
    if engine not in ("mpi", "torch", "threads"):
        raise unknown("engine", engine, ["mpi", "torch", "threads"])
    if parsed.feed not in ("pull", "push-pull"):
        raise unknown("feed", parsed.feed, ["pull", "push-pull"])
    from ..bench.pipeline import Task, bench_pipeline, join_pipeline
    from ..comm import connect
    from ..graph import load
    from ..tables import columns

    task = Task(batch, parsed.fanouts, parsed.model, hidden, parsed.feed, ahead, batches, rounds)
    if joins:
        comm = connect()
        engine = comm.engine
        rows = join_pipeline(comm, everywhere(comm, partial(load, parsed.graph)), task)
        if comm.rank:
            return 0
    else:
        rows = bench_pipeline(parsed.graph, ranks, task, engine)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "engine": engine, "rows": rows}))
        return 0
    base = {
        row["ranks"]: row["seconds"] for row in reversed(rows) if not row["pipeline"] and not row["prefetch"]
    }
    print(
        f"{parsed.graph}: {parsed.model}, {batch:,} seeds a batch, fan-outs {parsed.fanouts}, {parsed.feed}"
    )
    print(
        columns(
            ["ranks", "pipeline", "drawn ahead", "ms a batch", "times as fast", "ms drawing", "ms waiting"],
            [
                [r["ranks"], "yes" if r["pipeline"] else "no", r["prefetch"], f"{r['seconds'] * 1e3:.1f}",
                 f"{base[r['ranks']] / r['seconds']:.2f}", f"{r['drawing'] * 1e3:.1f}",
                 f"{r['waiting'] * 1e3:.1f}"]
                for r in rows
            ],
            left=0,
        )
    )  # fmt: skip
    return 0

"""weft bench feed: pull against push-pull."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from ..errors import UserError, unknown
from .options import Parser, whole_number
from .ranks import everywhere

_GRAPH = "kronecker:scale=15,degree=30"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench feed", "[GRAPH] [OPTIONS]",
                    "What a batch moves and takes when features are pulled by rows, and when they stay where "
                    "they are in columns (P3). Features are random, --features wide, on any graph; its own "
                    "labels and split say which vertices are seeds. Under mpirun, srun or torchrun it takes "
                    "the ranks that are there.",
                    "  weft bench feed --plot feed.png\n"
                    "  weft bench feed kronecker:scale=20,degree=16 --features 100 --hidden 16 --ranks 4\n"
                    "  weft bench feed --ranks 2,4 --engine threads    bytes alone\n"
                    "  mpirun -n 4 --hostfile hosts weft bench feed --features 128 --hidden 32")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    lists = {"features": "16,64,128,512", "hidden": "16,32,64,128,256"}
    for name, text in lists.items():
        parser.add_argument(f"--{name}", default=text, metavar="N,N", help=f"({text})")
    parser.add_argument("--ranks", metavar="N,N", help="to start (2,4,8)")
    numbers = {
        "batch-size": "seeds a batch, of all ranks (1000)", "batches": "batches a round (2)",
        "rounds": "rounds of each feed, in turn; the median counts (3)",
    }  # fmt: skip
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[-1].rstrip(")"), metavar="N", help=text)
    parser.add_argument(
        "--fanouts", default="25,10", metavar="N,N", help="the first next to the seeds (25,10)"
    )
    parser.add_argument("--model", default="sage", metavar="TEXT", help="sage, gcn, sgc or gat (sage)")
    parser.add_argument(
        "--dropout", default="0.5", metavar="X", help="dropped activations don't travel (0.5)"
    )
    parser.add_argument("--pipeline", action="store_true", help="three batches in flight")
    parser.add_argument("--engine", metavar="TEXT", help="mpi, torch or threads (mpi)")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..comm import in_job

    joins = in_job()
    if joins and (parsed.ranks or parsed.engine):
        raise UserError("these ranks were started by somebody else already. Leave out --ranks and --engine.")
    asked = {name: getattr(parsed, name) for name in lists} | {"ranks": parsed.ranks or "2,4,8"}
    features, hidden, ranks = (
        sorted({whole_number(part, f"each of --{name} {text}") for part in text.split(",")})
        for name, text in asked.items()
    )
    engine = parsed.engine or "mpi"
    batch, batches, rounds = (
        whole_number(getattr(parsed, name.replace("-", "_")), f"--{name}") for name in numbers
    )
    if engine not in ("mpi", "torch", "threads"):
        raise unknown("engine", engine, ["mpi", "torch", "threads"])
    from ..bench.feed import Task, bench_feed, check_ranks, draw_feed, finite, join_feed
    from ..bench.pictures import check_drawable
    from ..bench.ranks import furnished
    from ..comm import connect
    from .bench import _share

    if parsed.plot:
        check_drawable(parsed.plot)
    if "features=" in parsed.graph:
        raise UserError(f"{parsed.graph} names its features, but --features sets them. Leave them out.")
    task = Task(hidden, batch, parsed.fanouts, parsed.model, _share(parsed.dropout), batches, rounds,
                parsed.pipeline)  # fmt: skip
    if joins:
        comm = connect()
        check_ranks(comm.size)
        loaded = everywhere(comm, partial(furnished, parsed.graph, features[-1]))
        result = join_feed(comm, parsed.graph, loaded, features, task)
        if comm.rank:
            return 0
    else:
        result = bench_feed(parsed.graph, features, ranks, task, engine)
    if parsed.plot:
        draw_feed(result, parsed.plot)
    if parsed.json:
        print(json.dumps(result))
        return 0
    from ..tables import columns

    rows = result["rows"]
    cost = {(r["ranks"], r["features"], r["hidden"], r["feed"]): r for r in rows}
    lines = []
    for size, width, wide in dict.fromkeys((r["ranks"], r["features"], r["hidden"]) for r in rows):
        pull, push = (cost[size, width, wide, feed] for feed in ("pull", "push-pull"))
        lines.append([
            size, width, wide, f"{pull['bytes'] / 1e6:.2f}", f"{push['bytes'] / 1e6:.2f}",
            f"{pull['bytes'] / push['bytes']:.2f}x", f"{pull['messages']:.0f}", f"{push['messages']:.0f}",
            f"{pull['seconds'] * 1e3:.1f}", f"{push['seconds'] * 1e3:.1f}",
            f"{pull['seconds'] / push['seconds']:.2f}x", f"{pull['seeds_per_second']:,.0f}",
            f"{push['seeds_per_second']:,.0f}",
        ])  # fmt: skip
    used, ran = rows[0]["batch_size"], rows[0]["batches"]
    if (used, ran) != (batch, batches):
        print(f"an epoch has {ran} batches of {used:,} seeds: less than was asked for, and what was measured")
    print(
        f"{parsed.graph}: {result['vertices']:,} vertices, {result['arcs']:,} arcs; {parsed.model}, "
        f"{used:,} seeds a batch, fan-outs {parsed.fanouts}; a batch of all ranks, bytes as predicted"
    )
    heads = ["ranks", "features", "hidden", "pull MB", "push-pull MB", "ratio", "messages", "messages",
             "pull ms", "push-pull ms", "ratio", "pull seeds/s", "push-pull seeds/s"]  # fmt: skip
    print(columns(heads, lines, left=0))
    print("\nhidden width from which pull moves fewer bytes")
    crossings = [[c["ranks"], c["features"], finite(c["hidden"], hidden[-1])] for c in result["crossings"]]
    print(columns(["ranks", "features", "hidden"], crossings, left=0))
    return 0

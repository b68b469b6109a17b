"""weft bench cache: rows kept between batches, over the room for them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError, unknown
from .options import Parser, whole_number

_GRAPH = "kronecker:scale=14,degree=16"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench cache", "[GRAPH] [OPTIONS]",
                    "What an epoch of pull moves where a rank keeps rows of others that coming batches read "
                    "again (--cache), beside none and beside the fewest that the room allows. Features are "
                    "random, --features wide, on any graph.",
                    "  weft bench cache --plot cache.png\n"
                    "  weft bench cache kronecker:scale=16,degree=16 --budgets 1%,10%,50% --ranks 8\n"
                    "  weft bench cache --engine threads    words alone")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument("--budgets", default="1%,2%,5%,10%,20%,100%", metavar="X,X",
                        help="shares of all features, or sizes (1%%,2%%,5%%,10%%,20%%,100%%)")  # fmt: skip
    numbers = {
        "features": "columns (100)", "ranks": "(4)", "batch-size": "seeds a batch, of all ranks (128)",
        "hidden": "width of the model (16)",
    }  # fmt: skip
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[-1].rstrip(")"), metavar="N", help=text)
    parser.add_argument(
        "--fanouts", default="25,10", metavar="N,N", help="the first next to the seeds (25,10)"
    )
    parser.add_argument("--model", default="sage", metavar="TEXT", help="(sage)")
    parser.add_argument("--partition", default="random", metavar="TEXT", help="who owns which row (random)")
    parser.add_argument("--engine", default="mpi", metavar="TEXT", help="mpi, torch or threads (mpi)")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    features, ranks, batch, hidden = (
        whole_number(getattr(parsed, name.replace("-", "_")), f"--{name}") for name in numbers
    )
    if parsed.engine not in ("mpi", "torch", "threads"):
        raise unknown("engine", parsed.engine, ["mpi", "torch", "threads"])
    if "features=" in parsed.graph:
        raise UserError(f"{parsed.graph} names its features, but --features sets them. Leave them out.")
    from ..bench.cache import Task, bench_cache, draw_cache
    from ..bench.pictures import check_drawable
    from ..minibatch import parse_room

    budgets = [budget.strip() for budget in parsed.budgets.split(",")]
    for budget in budgets:
        parse_room(budget, 1, 1)
    if parsed.plot:
        check_drawable(parsed.plot)
    task = Task(batch, parsed.fanouts, parsed.model, hidden, parsed.partition)
    rows = bench_cache(parsed.graph, features, ranks, budgets, task, parsed.engine)
    title = f"{parsed.graph}, {ranks} ranks, {batch:,} seeds a batch, fan-outs {parsed.fanouts}"
    if parsed.plot:
        draw_cache(title, rows, parsed.plot)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "ranks": ranks, "features": features, "rows": rows}))
        return 0
    from ..tables import columns

    print(f"{title}; an epoch of {rows[0]['batches']} batches, all ranks, words as foretold")
    print(columns(
        ["room", "rows of room", "rows fetched", "the fewest", "every row once", "words", "over the fewest",
         "less than none", "ms a batch"],
        [[r["budget"], f"{r['room']:,}", f"{r['rows']:,}", f"{r['fewest']:,}",
          f"{r['distinct']:,}" if r["distinct"] else "", f"{r['words']:,}", f"{r['over']:.4f}",
          f"{r['less']:.2f}x", f"{r['seconds'] * 1e3:.1f}"] for r in rows],
    ))  # fmt: skip
    return 0

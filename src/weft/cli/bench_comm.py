"""weft bench comm: latency and bandwidth of every operation on every engine."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .options import Parser, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench comm", "[OPTIONS]", "Latency and bandwidth of every operation, and the fitted α and β.",
        "  weft bench comm\n  weft bench comm --ranks 4 --engines mpi --json",
    )  # fmt: skip
    parser.add_argument("--ranks", default="2", metavar="N", help="(2)")
    parser.add_argument(
        "--engines", default="mpi,torch", metavar="E,E", help="mpi, torch, threads (mpi,torch)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..bench import comm as bench
    from ..errors import unknown

    engines = parsed.engines.split(",")
    for engine in engines:
        if engine not in ("mpi", "torch", "threads"):
            raise unknown("engine", engine, ["mpi", "torch", "threads"])
    rows = bench.bench(engines, whole_number(parsed.ranks, "--ranks"))
    ratios = bench.ratios(rows)
    if parsed.json:
        print(json.dumps({"rows": rows, "mpi_over_torch": ratios}))
        return 0
    print(bench.table(rows))
    for row in ratios:
        if (row["operation"], row["bytes"]) in (("all_reduce", 4_000), ("broadcast", 40_000_000)):
            print(
                f"{row['operation']} of {row['bytes'] / 1000:,.0f} kB: "
                f"mpi is {row['ratio']:.1f}x as fast as torch"
            )
    return 0

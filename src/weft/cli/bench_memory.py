"""weft bench memory: what does a rank hold, and what of it does not shrink?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..tables import columns
from .options import Parser, whole_number

_GRAPHS = ";".join(
    f"kronecker:scale={scale},degree={degree},features=32,classes=8"
    for scale, degree in ((16, 8), (16, 32), (18, 8))
)
_WAYS = "1d,halo,1.5d,a-stationary,2d,3d,feature,batches,link"


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench memory", "[OPTIONS]",
        "Peak memory of the fullest rank above an idle one, for every strategy on 1 to 16 ranks, and a fit:\n"
        "bytes that ranks share (n/P, arcs that one holds) and bytes that every rank has (n).",
        "  weft bench memory\n  weft bench memory --ways halo,batches --ranks 1,4,16 --partition block",
    )  # fmt: skip
    parser.add_argument("--graphs", default=_GRAPHS, metavar="G;G", help="three Kronecker graphs, by default")
    parser.add_argument("--ways", default=_WAYS, metavar="NAMES", help=f"strategies, batches, link ({_WAYS})")
    parser.add_argument("--ranks", default="1,2,4,8,16", metavar="N,N", help="(1,2,4,8,16)")
    parser.add_argument("--partition", default="random", metavar="NAME", help="(random)")
    parser.add_argument("--hidden", default="32", metavar="N", help="of a gcn of two layers (32)")
    parser.add_argument("--epochs", default="2", metavar="N", help="(2)")
    parser.add_argument("--engine", default="mpi", metavar="NAME", help="mpi, torch or threads (mpi)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    ranks = [whole_number(p, f"each of --ranks {parsed.ranks}") for p in parsed.ranks.split(",")]
    hidden, epochs = whole_number(parsed.hidden, "--hidden"), whole_number(parsed.epochs, "--epochs")
    from ..bench.memory import TERMS, bench_memory

    graphs, ways = parsed.graphs.split(";"), parsed.ways.split(",")
    result = bench_memory(
        graphs, ways, ranks, parsed.partition, hidden, epochs, lambda line: print(line, file=sys.stderr),
        parsed.engine,
    )  # fmt: skip
    if parsed.json:
        print(json.dumps(result))
        return 0
    for graph in graphs:
        some = [r for r in result["rows"] if r["graph"] == graph]
        print(f"{graph}: {some[0]['vertices']:,} vertices, {some[0]['arcs']:,} arcs; MB of a rank above idle")
        table = [
            [way, *(f"{r['bytes'] / 1e6:.2f}" for r in some if r["way"] == way)] for way in ways
        ]  # fmt: skip
        print(columns(["way", *(f"P = {p}" for p in ranks)], table), end="\n\n")
    print("bytes by least squares; the last term does not shrink")
    print(
        columns(
            ["way", *TERMS, "error", "median"],
            [
                [
                    f["way"],
                    *(f"{f['bytes'][t]:,.1f}" for t in TERMS),
                    f"{f['error']:.2f}",
                    f"{f['median_error']:.2f}",
                ]
                for f in result["fits"]
            ],
        )
    )
    return 0

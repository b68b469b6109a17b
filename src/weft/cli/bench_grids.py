"""weft bench grids: which grid, exchange and partition moves least?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..tables import columns
from .options import Parser, number, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench grids", "GRAPH [OPTIONS]",
                    "Words that a rank receives for one propagation, forward and back, on every grid, dense "
                    "and sparse, for several partitions; by exact formulas, no ranks are started.",
                    "  weft bench grids com-dblp --ranks 16,64 --method random,hypergraph")  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a generator, data set, file or store")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--ranks", default="16", metavar="N,N", help="(16)")
    parser.add_argument("--method", default="random,hypergraph", metavar="NAMES", help="(random,hypergraph)")
    parser.add_argument("--width", default="64", metavar="N", help="columns of H (64)")
    parser.add_argument("--epsilon", default="0.03", metavar="X", help="(0.03)")
    parser.add_argument("--preset", default="default", metavar="TEXT", help="of Mt-KaHyPar (default)")
    parser.add_argument("--first", default="0", metavar="N", help="print the best N only; 0: all (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    ranks = [whole_number(p, f"each of --ranks {parsed.ranks}", least=2) for p in parsed.ranks.split(",")]
    width, first = whole_number(parsed.width, "--width"), whole_number(parsed.first, "--first", least=0)
    from torch import Tensor

    from ..bench.grids import bench_grids
    from ..graph import load
    from ..parallel.assign import bare
    from ..partition import PartitionOptions, check_method
    from ..partition.methods import check_read

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    methods = parsed.method.split(",")
    check_read(methods, {"epsilon", "preset", "threads", "seed"} & parser.given(arguments))
    options = PartitionOptions(epsilon=number(parsed.epsilon, "--epsilon"), preset=parsed.preset, say=say)
    graph = bare(load(parsed.graph, parsed.data))
    for method in methods:
        check_method(method, max(ranks), graph.num_nodes, options)
    cuts: dict[tuple[str, int, str], Tensor] = {}
    tables = {count: bench_grids(graph, count, methods, width, options, say, cuts) for count in ranks}
    if parsed.json:
        print(
            json.dumps(
                {
                    "graph": parsed.graph,
                    "width": width,
                    "rows": [row for rows in tables.values() for row in rows],
                }
            )
        )
        return 0
    print(f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, width {width}")
    for count, rows in tables.items():
        print(f"\n{count} ranks; words received per rank in one propagation, forward and back; ratio to 1d")
        print(
            columns(
                ["grid", "exchange", "partition", "name", "mean", "most", "messages", "ratio", "imbalance"],
                [
                    [r["grid"], r["exchange"], r["method"], r["name"], f"{r['words_mean']:,.0f}",
                     f"{r['words_max']:,}", r["messages_max"], f"{r['ratio']:.4f}",
                     f"{r['imbalance']:.2f}"]
                    for r in rows[: first or None]
                ],
                left=4,
            )
        )  # fmt: skip
    return 0

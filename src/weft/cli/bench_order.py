"""weft bench order: does the order of vertices within a part make SpMM faster?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..tables import columns
from .options import Parser, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench order", "GRAPH [OPTIONS]",
                    "SpMM of every part's own block, its vertices in the graph's order and in others.",
                    "  weft bench order com-dblp\n  weft bench order cnr-2000 --parts 4")  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a generator, data set, file or store")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--parts", default="1", metavar="N", help="(1)")
    parser.add_argument("--method", default="metis", metavar="TEXT", help="of the partition (metis)")
    parser.add_argument("--widths", default="16,64,128", metavar="N,N", help="columns of H (16,64,128)")
    parser.add_argument("--threads", default="1", metavar="N", help="(1)")
    parser.add_argument("--rounds", default="7", metavar="N", help="measurements; the median counts (7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    widths = [whole_number(w, f"each of --widths {parsed.widths}") for w in parsed.widths.split(",")]
    parts, threads, rounds = (
        whole_number(getattr(parsed, n), f"--{n}") for n in ("parts", "threads", "rounds")
    )
    import torch

    from ..bench.order import bench_order
    from ..graph import load
    from ..parallel.assign import bare
    from ..partition import PartitionOptions

    torch.set_num_threads(threads)
    options = PartitionOptions(say=lambda line: print(line, file=sys.stderr, flush=True))
    graph = bare(load(parsed.graph, parsed.data))
    rows = bench_order(graph, parts, parsed.method, widths, rounds, options)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "parts": parts, "threads": threads, "rows": rows}))
        return 0
    print(
        f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, {parts} part(s), "
        f"{threads} thread(s)"
    )
    print(
        columns(
            ["order", "width", "SpMM ms", "speedup", "to make it, s"],
            [
                [r["order"], r["width"], f"{r['seconds'] * 1e3:.1f}", f"{r['speedup']:.2f}x",
                 f"{r['order_seconds']:.1f}"]
                for r in rows
            ],
        )
    )  # fmt: skip
    return 0

"""weft bench partition: how much less do good parts move than random ones?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from ..errors import UserError
from ..tables import columns
from .options import Parser, number, whole_number

_PARTS = "16,32,64,128,256,512"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench partition", "[GRAPH ...] [OPTIONS]",
                    "Volume and messages of partitions relative to random ones: the columns of Table 2 of "
                    "Demirci et al., for every SNAP graph at hand. Self-loops are added.",
                    "  weft bench partition --plot partition.png\n"
                    "  weft bench partition soc-slashdot0902 --parts 512 --preset large-k")  # fmt: skip
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help="by default all of SNAP, and cnr-2000")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--parts", default=_PARTS, metavar="N,N", help=f"({_PARTS})")
    parser.add_argument("--method", default="metis,hypergraph", metavar="NAMES", help="(metis,hypergraph)")
    parser.add_argument("--epsilon", default="0.01", metavar="X", help="the paper's (0.01)")
    parser.add_argument("--preset", default="", metavar="TEXT",
                        help="of Mt-KaHyPar; by default large-k from 128 parts on, else default")  # fmt: skip
    parser.add_argument("--threads", default="0", metavar="N", help="for Mt-KaHyPar; 0: all cores (0)")
    parser.add_argument("--seed", default="0", metavar="N", help="(0)")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    parts = [whole_number(p, f"each of --parts {parsed.parts}", least=2) for p in parsed.parts.split(",")]
    from ..bench.partition import FIGURES, bench_partition, draw_partition, snap_graphs
    from ..bench.pictures import check_drawable
    from ..partition import PartitionOptions
    from ..partition.hypergraph import LARGE_K
    from ..partition.methods import check_read

    if parsed.plot:
        check_drawable(parsed.plot)
    folder = parsed.data or os.environ.get("WEFT_DATA")
    if not parsed.graphs and not folder:
        raise UserError("no graphs. Name some, or set WEFT_DATA to a folder with SNAP's.")
    names = parsed.graphs or snap_graphs(str(folder))
    methods = parsed.method.split(",")
    check_read(methods, {"epsilon", "preset", "threads", "seed"} & parser.given(arguments))
    options = PartitionOptions(
        seed=whole_number(parsed.seed, "--seed", least=0), epsilon=number(parsed.epsilon, "--epsilon"),
        threads=whole_number(parsed.threads, "--threads", least=0),
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip

    def preset(count: int) -> str:
        return parsed.preset or ("large-k" if count >= LARGE_K else "default")

    rows = bench_partition(names, parts, methods, options, preset, parsed.data)
    if parsed.plot:
        draw_partition(rows, parsed.plot)
    if parsed.json:
        print(json.dumps({"epsilon": options.epsilon, "rows": rows}))
        return 0
    print("volume and messages that a part sends in one propagation; random's own, then ratios to it")
    print(
        columns(
            ["graph", "method", "parts", "avg volume", "max volume", "avg messages", "max messages",
             "imbalance", "seconds"],
            [
                [r["graph"], r["method"], r["parts"],
                 *(f"{r[k]:,.0f}" if r["method"] == "random" else f"{r[f'{k}_ratio']:.2f}" for k in FIGURES),
                 f"{r['imbalance']:.2f}", f"{r['seconds']:.1f}"]
                for r in rows
            ],
            left=2,
        )
    )  # fmt: skip
    return 0

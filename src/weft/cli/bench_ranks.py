"""weft bench ranks: is it faster, and leaner, on more ranks?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError
from ..tables import columns
from .options import Parser, whole_number

_GRAPH = "kronecker:scale=17,degree=30,features=128,classes=40"
_LAYOUTS = "1x1:1d,1x2:1d,2x1:1d,2x1:halo,2x1:1.5d,2x1:feature,4x1:1d,8x1:1d"


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench ranks", "[GRAPH] [OPTIONS]",
        "Epochs and peak memory of one training run on 1 rank and on several, in turn.",
        "  weft bench ranks\n  weft bench ranks g.weft --layouts 1x4:1d,4x1:2d --epochs 10\n"
        "  weft bench ranks com-dblp --layouts 4x1:1d,4x1:halo,4x1:halo:hypergraph\n"
        "  weft bench ranks com-dblp --layouts 4x1:cagnet-1d,4x1:1d,4x1:pgcn:metis,4x1:halo:metis",
    )  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument(
        "--layouts",
        default=_LAYOUTS,
        metavar="RxT:STRATEGY[:PARTITION]",
        help=f"({_LAYOUTS}); a strategy, or a "
        "paper's own algorithm: cagnet-1d, cagnet-1.5d, cagnet-2d, cagnet-3d, pgcn",
    )
    parser.add_argument(
        "--blocking", default="0", metavar="N", help="rows a stage of cagnet-2d and -3d; 0: a rank's (0)"
    )
    parser.add_argument("--layers", default="3", metavar="N", help="(3)")
    parser.add_argument("--hidden", default="128", metavar="N", help="(128)")
    parser.add_argument("--epochs", default="6", metavar="N", help="epochs a run, the median counts (6)")
    parser.add_argument("--rounds", default="2", metavar="N", help="turns of each layout (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..bench.ranks import bench_ranks, check_layout

    layouts = [_layout(text) for text in parsed.layouts.split(",")]
    blocking = whole_number(parsed.blocking, "--blocking", least=0)
    if blocking and not {layout[2] for layout in layouts} & {"cagnet-2d", "cagnet-3d"}:
        raise UserError("--blocking is for cagnet-2d and cagnet-3d. Name one in --layouts, or leave it out.")
    for layout in layouts:
        check_layout(layout, blocking)
    names = ("layers", "hidden", "epochs", "rounds")
    layers, hidden, epochs, rounds = (whole_number(getattr(parsed, name), f"--{name}") for name in names)
    rows = bench_ranks(parsed.graph, layouts, layers, hidden, epochs, rounds, blocking)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "rows": rows}))
        return 0
    print(f"{parsed.graph}: {layers}-layer gcn, hidden {hidden}")
    print(
        columns(
            ["ranks x threads", "strategy", "partition", "s/epoch", "speedup", "words", "above idle MB",
             "memory ratio"],
            [
                [f"{r['ranks']} x {r['threads']}", r["strategy"], r["partition"], f"{r['seconds']:.3f}",
                 f"{r['speedup']:.2f}x", f"{r['words']:,}",
                 "" if r["above_idle_bytes"] is None else f"{r['above_idle_bytes'] / 1e6:.0f}",
                 "" if r["memory_ratio"] is None else f"{r['memory_ratio']:.2f}"]
                for r in rows
            ],
            left=3,
        )
    )  # fmt: skip
    return 0


def _layout(text: str) -> tuple[int, int, str, str]:
    """`2x1:halo:metis` as (2, 1, "halo", "metis"); the partition is random where none is named.

    >>> _layout("2x1:halo"), _layout("2x1:halo:metis")
    ((2, 1, 'halo', 'random'), (2, 1, 'halo', 'metis'))
    """
    sizes, colon, rest = text.partition(":")
    strategy, _, partition = rest.partition(":")
    ranks, cross, threads = sizes.partition("x")
    if not colon or not cross:
        raise UserError(f"layout {text!r} is not RANKSxTHREADS:STRATEGY. Write 2x1:1d.")
    return (
        whole_number(ranks, "--layouts"),
        whole_number(threads, "--layouts"),
        strategy,
        partition or "random",
    )

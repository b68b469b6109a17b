"""weft bench ranks: is it faster, and leaner, on more ranks?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError
from .options import Parser, whole_number

_GRAPH = "kronecker:scale=17,degree=30,features=128,classes=40"
_LAYOUTS = "1x1:1d,1x2:1d,2x1:1d,2x1:halo,2x1:1.5d,2x1:feature,4x1:1d,8x1:1d"


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench ranks", "[GRAPH] [OPTIONS]",
        "Epochs and peak memory of one training run on 1 rank and on several, in turn.",
        "  weft bench ranks\n  weft bench ranks g.weft --layouts 1x4:1d,4x1:2d --epochs 10",
    )  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument("--layouts", default=_LAYOUTS, metavar="RxT:STRATEGY", help=f"({_LAYOUTS})")
    parser.add_argument("--layers", default="3", metavar="N", help="(3)")
    parser.add_argument("--hidden", default="128", metavar="N", help="(128)")
    parser.add_argument("--epochs", default="6", metavar="N", help="epochs a run, the median counts (6)")
    parser.add_argument("--rounds", default="2", metavar="N", help="turns of each layout (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..bench.ranks import bench_ranks
    from ..parallel import choose

    layouts = [_layout(text) for text in parsed.layouts.split(",")]
    for ranks, _, strategy in layouts:
        choose(strategy, ranks)
    numbers = [whole_number(getattr(parsed, n), f"--{n}") for n in ("layers", "hidden", "epochs", "rounds")]
    rows = bench_ranks(parsed.graph, layouts, *numbers)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "rows": rows}))
        return 0
    print(f"{parsed.graph}: {numbers[0]}-layer gcn, hidden {numbers[1]}")
    print("ranks x threads  strategy       s/epoch  speedup  above idle MB  memory ratio")
    for r in rows:
        print(
            f"{r['ranks']:>5} x {r['threads']:<7}  {r['strategy']:<13}  {r['seconds']:>7.3f}  "
            f"{r['speedup']:>6.2f}x  {r['above_idle_bytes'] / 2**20:>13.0f}  {r['memory_ratio']:>12.2f}"
        )
    return 0


def _layout(text: str) -> tuple[int, int, str]:
    """`2x1:halo` as (2, 1, "halo").

    >>> _layout("2x1:halo")
    (2, 1, 'halo')
    """
    sizes, colon, strategy = text.partition(":")
    ranks, cross, threads = sizes.partition("x")
    if not colon or not cross:
        raise UserError(f"layout {text!r} is not RANKSxTHREADS:STRATEGY. Write 2x1:1d.")
    return whole_number(ranks, "--layouts"), whole_number(threads, "--layouts"), strategy

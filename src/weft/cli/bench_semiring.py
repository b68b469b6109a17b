"""weft bench semiring: sums over semirings beside A @ h, and a user's own beside torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..tables import columns
from .options import Parser, whole_number

_DEFAULT = "kronecker:scale=17,degree=30"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench semiring", "[GRAPH] [OPTIONS]",
                    "Semirings that C++ knows against A @ h, and a user's own against gather, multiply and "
                    "scatter in torch, forward and with backward, in turns of one run.",
                    "  weft bench semiring\n"
                    "  weft bench semiring --widths 16 --own-widths 16,64 --threads 1")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_DEFAULT, help=f"({_DEFAULT})")
    parser.add_argument("--widths", default="16,64,128", metavar="N,N", help="of C++'s (16,64,128)")
    parser.add_argument("--own-widths", default="16", metavar="N,N", help="of one's own (16)")
    numbers = {
        "threads": "(2)",
        "rounds": "measurements; the median counts (7)",
        "own-rounds": "the same (3)",
    }
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[1].rstrip(")"), metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    widths, own_widths = (
        [whole_number(w, f"each of {option} {text}") for w in text.split(",")]
        for option, text in (("--widths", parsed.widths), ("--own-widths", parsed.own_widths))
    )
    threads, rounds, own_rounds = (
        whole_number(getattr(parsed, name.replace("-", "_")), f"--{name}") for name in numbers
    )
    from ..bench.semiring import bench_semiring
    from ..graph import load

    graph = load(parsed.graph)
    result = bench_semiring(graph, widths, threads, rounds, own_rounds, own_widths)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "arcs": graph.num_arcs, **result}))
        return 0
    sizes = f"{graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs"
    print(f"{parsed.graph}: {sizes}, {threads} thread(s), float32")
    heads = ["semiring", "width", "forward ms", "speed", "with backward ms", "speed"]
    print("\nspeed: that of (+, ×) is 1")
    print(columns(heads, [_times(r) for r in result["known"]]))
    print("\nspeed: that of gather, multiply, scatter in torch is 1; peak beside arcs × width")
    memory = [[f"{r[key] / 1e6:,.0f}" for key in ("peak_grown_bytes", "arcs_times_width_bytes")]
              for r in result["own"]]  # fmt: skip
    rows = [[*_times(r), *held] for r, held in zip(result["own"], memory, strict=True)]
    print(columns([*heads, "peak MB", "arcs × width MB"], rows))
    return 0


def _times(r: dict[str, Any]) -> list[Any]:
    return [
        r["semiring"], r["width"], f"{r['forward_seconds'] * 1e3:,.1f}", f"{r['forward_ratio']:.2f}",
        f"{r['seconds'] * 1e3:,.1f}", f"{r['ratio']:.2f}",
    ]  # fmt: skip

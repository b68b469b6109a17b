"""weft bench accelerate: PyG's layers through weft's kernels beside weft's own layers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError
from ..tables import columns
from .options import Parser, whole_number

_ALL = "gcn,sage,gin,sgc,appnp,tag,gat,gatv2,transformer"
_DEFAULT = "kronecker:scale=17,degree=30"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench accelerate", "[GRAPH] [OPTIONS]",
                    "One layer, forward and back: weft's own, and PyG's after weft.accelerate, in turns.",
                    "  weft bench accelerate\n  weft bench accelerate --layers gcn,gat --pyg")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_DEFAULT, help=f"({_DEFAULT})")
    parser.add_argument("--layers", default=_ALL, metavar="NAMES", help="(all)")
    parser.add_argument("--width", default="128", metavar="N", help="columns in and out (128)")
    parser.add_argument("--threads", default="2", metavar="N", help="(2)")
    parser.add_argument("--rounds", default="5", metavar="N", help="measurements; the median counts (5)")
    parser.add_argument("--pyg", action="store_true", help="PyG's own layer beside them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    width, threads, rounds = (
        whole_number(getattr(parsed, n), f"--{n}") for n in ("width", "threads", "rounds")
    )
    import importlib.util

    import torch

    from ..graph import load

    if importlib.util.find_spec("torch_geometric") is None:
        raise UserError("PyG is not installed. Use: pip install 'weft[pyg]'.")
    from ..bench.accelerate import bench_accelerate

    torch.set_num_threads(threads)
    graph = load(parsed.graph)
    rows = bench_accelerate(graph, parsed.layers.split(","), width, rounds, parsed.pyg)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "threads": threads, "rows": rows}))
        return 0
    print(f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, {threads} thread(s)")
    names = ["weft", "accelerate", *(["pyg"] if parsed.pyg else [])]
    print(
        columns(
            ["layer", "width", *(f"{n} ms" for n in names), "accelerate/weft"],
            [
                [r["layer"], r["width"], *(f"{r[f'{n}_seconds'] * 1e3:.1f}" for n in names),
                 f"{r['ratio']:.2f}x"]
                for r in rows
            ],
        )
    )  # fmt: skip
    return 0

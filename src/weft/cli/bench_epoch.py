"""weft bench epoch: whole training epochs of weft, of PyG and of DGL."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..tables import columns
from .options import Parser, whole_number

_GRAPH = "kronecker:scale=17,degree=30,features=128,classes=40"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench epoch", "[GRAPH] [OPTIONS]",
                    "Whole training epochs of weft and PyG, or DGL where it is installed, in turn, each in "
                    "its own process.",
                    "  weft bench epoch --against pyg\n"
                    "  weft bench epoch --model sage --against pyg-csr --threads 1\n"
                    "  weft bench epoch --model gat --against accelerate,pyg-edges\n"
                    f"  weft bench epoch {_GRAPH},arc_features=16 \\\n"
                    "      --model gat,gat+arcs,gatv2 --against none")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"with labels ({_GRAPH})")
    parser.add_argument(
        "--model",
        default="gcn",
        metavar="NAMES",
        help="one or several: gcn, sage, gat; gatv2, transformer, gine, resgated, pna, rgcn; "
        "gat+arcs is gat that reads the arcs' features (gcn)",
    )
    parser.add_argument("--dropout", default="0", metavar="X", help="(0)")
    numbers = {
        "layers": "(3)", "hidden": "(128)", "heads": "of gat's hidden layers (1)", "threads": "(2)",
        "epochs": "timed epochs a round, after two to warm up (3)", "rounds": "turns of each contender (3)",
    }  # fmt: skip
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[1].rstrip(")"), metavar="N", help=text)
    parser.add_argument(
        "--against",
        default="pyg",
        metavar="NAMES",
        help="pyg (both ways), pyg-csr, pyg-edges, accelerate, dgl or none (pyg)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    layers, hidden, heads, threads, epochs, rounds = (
        whole_number(getattr(parsed, name), f"--{name}") for name in numbers
    )
    from ..bench.epoch import bench_epoch, check_contenders, model_of
    from ..nn.registry import check_read
    from .bench import _share

    models, against = parsed.model.split(","), contenders(parsed.against)
    check_contenders(models, against)
    check_read([model_of(model) for model in models], {"heads"} & parser.given(arguments))
    result = bench_epoch(
        parsed.graph, models, layers, hidden, heads, _share(parsed.dropout), threads, epochs, rounds, against
    )
    if parsed.json:
        print(json.dumps(result))
        return 0
    print(f"{parsed.graph}: {layers} layers, hidden {hidden}, heads {heads}, {threads} threads")
    print(
        columns(
            ["model", "contender", "s/epoch", "fastest", "slowest", "ratio to weft", f"to weft's {models[0]}",
             "peak MB", "above idle MB"],
            [
                [r["model"], r["contender"], f"{r['seconds']:.3f}", f"{r['fastest']:.3f}",
                 f"{r['slowest']:.3f}", f"{r['ratio']:.2f}x",
                 "" if r["to_first"] is None else f"{r['to_first']:.2f}x",
                 f"{r['peak_rss_bytes'] / 1e6:.0f}", f"{r['above_idle_bytes'] / 1e6:.0f}"]
                for r in result["rows"]
            ],
            left=2,
        )
    )  # fmt: skip
    return 0


def contenders(text: str) -> list[str]:
    """Names of contenders beside weft.

    >>> contenders("pyg"), contenders("none")
    (['pyg-csr', 'pyg-edges'], [])
    """
    if text == "none":
        return []
    both = ["pyg-csr", "pyg-edges"]
    return [c for name in text.split(",") for c in (both if name == "pyg" else [name])]

"""weft bench words: what ranks receive, beside the papers' formulas."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .options import Parser, whole_number

_GRAPH = "er:nodes=2003,degree=8"
_RANKS = "4,8,9,16,27,36,64"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench words", "[GRAPH] [OPTIONS]",
                    "Words that a rank receives, counted on virtual ranks, beside the papers' formulas.",
                    "  weft bench words\n  weft bench words --ranks 4,16,64 --plot words.png\n"
                    "  weft bench words er:nodes=2003,degree=8,arc_features=16,arc_types=3")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument("--ranks", default=_RANKS, metavar="N,N", help=f"({_RANKS})")
    parser.add_argument("--width", default="16", metavar="N", help="columns of H in every layer (16)")
    parser.add_argument("--layers", default="3", metavar="N", help="layers of the GCN (3)")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    ranks = sorted(
        {whole_number(part, f"each of --ranks {parsed.ranks}") for part in parsed.ranks.split(",")}
    )
    width, layers = (whole_number(getattr(parsed, name), f"--{name}") for name in ("width", "layers"))
    from ..bench.pictures import check_drawable
    from ..bench.words import bench_words, draw_words
    from ..graph import load

    if parsed.plot:
        check_drawable(parsed.plot)
    result = {"graph": parsed.graph, **bench_words(load(parsed.graph), ranks, width, layers)}
    if parsed.plot:
        draw_words(result, parsed.plot)
    if parsed.json:
        print(json.dumps(result))
        return 0
    from .bench import _table

    print(f"{parsed.graph}: {result['vertices']:,} vertices, nnz {result['nnz']:,}, width {width}")
    print("words received by the rank that receives most; ratio to the paper's dense terms")
    titles = {"": "one propagation A·H", "epoch_": f"one epoch of a {layers}-layer GCN"}
    for prefix, title in titles.items():
        _table(
            title,
            ["algorithm", "P", "grid", "weft", "paper", "its dense terms", "ratio"],
            [
                [r["algorithm"], r["ranks"], r["grid"], f"{r[prefix + 'words']:,}",
                 f"{r[prefix + 'paper']:,.0f}", f"{r[prefix + 'paper_dense']:,.0f}",
                 f"{r[prefix + 'ratio']:.2f}"]
                for r in result["rows"]
            ],
        )  # fmt: skip
    if result["attention"]:
        _table(
            f"one epoch of {layers} layers over arcs on a-stationary; the paper: O(nk/√P + k²) a layer",
            ["model", "P", "grid", "weft", "2L (nk/√P + k²)", "ratio"],
            [
                [r["model"], r["ranks"], r["grid"], f"{r['words']:,}", f"{r['bound']:,.0f}",
                 f"{r['ratio']:.2f}"]
                for r in result["attention"]
            ],
        )  # fmt: skip
    return 0

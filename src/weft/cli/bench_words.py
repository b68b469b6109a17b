"""weft bench words: what ranks receive, beside the papers' formulas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from .options import Parser, whole_number

_GRAPH = "er:nodes=2003,degree=8"
_RANKS = "4,8,9,16,27,36,64"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench words", "[GRAPH] [OPTIONS]",
                    "Words that a rank receives, counted on virtual ranks, beside the papers' formulas.",
                    "  weft bench words\n  weft bench words --ranks 4,16,64 --plot words.png\n"
                    "  weft bench words er:nodes=2003,degree=8,arc_features=16,arc_types=3\n"
                    "  weft bench words com-dblp --baselines --ranks 4,8,16 --partition metis")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument("--ranks", default=_RANKS, metavar="N,N", help=f"({_RANKS})")
    parser.add_argument("--width", default="16", metavar="N", help="columns of H in every layer (16)")
    parser.add_argument("--layers", default="3", metavar="N", help="layers of the GCN (3)")
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="beside the papers' own algorithms, run and metered, in place of formulas",
    )
    parser.add_argument("--partition", default="random", metavar="NAME",
                        help="who owns which vertex, with --baselines (random)")  # fmt: skip
    parser.add_argument("--epochs", default="0", metavar="N",
                        help="with --baselines: so many on real ranks, in turns, timed (0)")  # fmt: skip
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

    if parsed.baselines:
        if parsed.plot:
            raise UserError("--plot draws the formulas, not --baselines. Leave one of the two out.")
        return _baselines(parsed, ranks, width, layers)
    for option in sorted({"partition", "epochs"} & parser.given(arguments)):
        raise UserError(f"--{option} is read with --baselines alone. Add that, or leave it out.")
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


def _baselines(parsed: Any, ranks: Sequence[int], width: int, layers: int) -> int:
    from ..bench.baselines.words import baseline_seconds, baseline_words
    from ..bench.words import with_features
    from ..graph import load
    from ..partition import check_method
    from ..tables import columns

    graph = load(parsed.graph)
    for p in ranks:
        check_method(parsed.partition, p, graph.num_nodes)
    epochs = whole_number(parsed.epochs, "--epochs", least=0)
    featured = with_features(graph, width)
    rows = (
        [row for p in ranks for row in baseline_seconds(featured, p, layers, epochs, parsed.partition)]
        if epochs
        else baseline_words(featured, ranks, layers, parsed.partition)
    )
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "width": width, "layers": layers, "rows": rows}))
        return 0
    print(
        f"{parsed.graph}: {graph.num_nodes:,} vertices, {layers}-layer GCN, width {width}, "
        f"{parsed.partition} parts"
    )
    if epochs:
        print("one epoch: words into the rank that receives most, seconds of the slowest (median, in turns)")
        print(
            columns(
                ["the paper's", "weft's", "ranks", "words", "weft", "ratio", "ms", "weft", "times faster"],
                [
                    [r["algorithm"], r["strategy"], r["ranks"], f"{r['epoch']:,}", f"{r['weft_epoch']:,}",
                     f"{r['ratio']:.2f}", f"{1e3 * r['seconds']:.1f}", f"{1e3 * r['weft_seconds']:.1f}",
                     f"{r['speedup']:.2f}"]
                    for r in rows
                ],
                left=2,
            )
        )  # fmt: skip
        return 0
    print("words received by the rank that receives most: one A·H, one epoch; ratio of epochs")
    print(
        columns(
            ["the paper's", "weft's", "ranks", "A·H", "weft", "epoch", "of A", "weft", "ratio"],
            [
                [r["algorithm"], r["strategy"], r["ranks"], f"{r['product']:,}", f"{r['weft_product']:,}",
                 f"{r['epoch']:,}", f"{r['epoch_of_a']:,}", f"{r['weft_epoch']:,}", f"{r['ratio']:.2f}"]
                for r in rows
            ],
            left=2,
        )
    )  # fmt: skip
    return 0

"""weft bench width: does peak memory grow with arcs × width?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError
from ..tables import columns
from .bench_epoch import contenders
from .options import Parser, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench width", "[OPTIONS]",
                    "Peak memory of training over the hidden layers' width, at one number of vertices\n"
                    "and several of arcs, and what of it grows with arcs × width.",
                    "  weft bench width --plot width.svg\n"
                    "  weft bench width --model gatv2 --scale 12 --against pyg-edges")  # fmt: skip
    parser.add_argument(
        "--model", default="gat+arcs,gatv2,transformer,gine,resgated,pna", metavar="NAMES",
        help="as of bench epoch (gat+arcs,gatv2,transformer,gine,resgated,pna)",
    )  # fmt: skip
    lists = {"widths": "(32,64,128,256)", "degrees": "arcs a vertex (16,32,64)"}
    numbers = {"scale": "2^N vertices (15)", "layers": "(3)", "arc_features": "(16)", "threads": "(2)"}
    for name, text in (lists | numbers).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", default=text.split("(")[1].rstrip(")"), metavar="N", help=text
        )
    parser.add_argument("--against", default="none", metavar="NAMES", help="pyg-edges or none (none)")
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    widths, degrees = (
        [whole_number(n, f"each of --{name}") for n in getattr(parsed, name).split(",")] for name in lists
    )
    scale, layers, arc_features, threads = (
        whole_number(getattr(parsed, name), f"--{name.replace('_', '-')}") for name in numbers
    )
    if layers < 2:
        raise UserError(f"--layers must be at least 2, not {layers}: a single one has no hidden width.")
    from ..bench.pictures import check_drawable
    from ..bench.width import bench_width, draw

    if parsed.plot:
        check_drawable(parsed.plot)
    graphs = [
        f"kronecker:scale={scale},degree={d},features=32,classes=40,arc_features={arc_features}"
        for d in degrees
    ]
    result = bench_width(graphs, parsed.model.split(","), layers, widths, threads, contenders(parsed.against))
    if parsed.plot:
        draw(result, parsed.plot)
    if parsed.json:
        print(json.dumps(result))
        return 0
    print(f"2^{scale} vertices, {layers} layers, {arc_features} features an arc, {threads} threads")
    print(
        columns(
            ["model", "contender", "arcs", "width", "s/epoch", "peak MB", "above idle MB"],
            [
                [r["model"], r["contender"], f"{r['arcs']:,}", r["width"], f"{r['seconds']:.3f}",
                 f"{r['peak_rss_bytes'] / 1e6:.0f}", f"{r['above_idle_bytes'] / 1e6:.0f}"]
                for r in result["rows"]
            ],
            left=2,
        )
    )  # fmt: skip
    if result["growth"]:
        print("\nbytes that an arc and a column more cost together; an [arcs, width] array of float32 has 4")
        print(
            columns(
                ["model", "contender", "bytes"],
                [
                    [r["model"], r["contender"], f"{r['bytes_per_arc_and_column']:.2f}"]
                    for r in result["growth"]
                ],
                left=2,
            )
        )
    return 0

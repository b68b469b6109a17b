"""weft bench sample: sampling and training in seeds a second."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .options import Parser, whole_number

_GRAPH = "kronecker:scale=17,degree=30,features=100,classes=16"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench sample", "[GRAPH] [OPTIONS]",
                    "Neighbour sampling against a vectorised numpy sampler, and GraphSAGE training steps.",
                    "  weft bench sample\n  weft bench sample --fanouts 15,10,5 --threads 2")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_GRAPH, help=f"({_GRAPH})")
    parser.add_argument(
        "--fanouts", default="25,10", metavar="N,N", help="the first next to the seeds (25,10)"
    )
    numbers = {
        "batch-size": "(1000)",
        "hidden": "(32)",
        "rounds": "turns of ten batches each; the median counts (15)",
    }
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[1].rstrip(")"), metavar="N", help=text)
    parser.add_argument("--threads", default="1,2", metavar="N,N", help="(1,2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    batch, hidden, rounds = (
        whole_number(getattr(parsed, name.replace("-", "_")), f"--{name}") for name in numbers
    )
    threads = [
        whole_number(part, f"each of --threads {parsed.threads}") for part in parsed.threads.split(",")
    ]
    from ..bench.sample import bench_sample, bench_steps
    from ..graph import load
    from ..minibatch import parse_fanouts

    fanouts = parse_fanouts(parsed.fanouts)
    if min(fanouts) < 0:
        from ..errors import UserError

        raise UserError(f"--fanouts {parsed.fanouts} takes whole rows: nothing to sample. Use numbers.")
    graph = load(parsed.graph)
    batch = min(batch, graph.num_nodes)
    sampling = bench_sample(graph, fanouts, batch, threads, rounds)
    steps = []
    if graph.num_features and graph.train_mask is not None:
        steps = bench_steps(graph, parsed.fanouts, batch, hidden, threads, rounds)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "sampling": sampling, "training": steps}))
        return 0
    from ..tables import columns

    print(f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs")
    print(f"{batch:,} seeds a batch, fan-outs {parsed.fanouts}: sampled seeds/s")
    lines = [
        [r["threads"], f"{r['weft_seeds']:,.0f}", f"{r['numpy_seeds']:,.0f}", f"{r['ratio']:.1f}x"]
        for r in sampling
    ]
    print(columns(["threads", "weft", "numpy", "ratio"], lines, left=0))
    if steps:
        widths = f"{graph.num_features}-{hidden}-{graph.num_classes}"
        print(f"\ntraining GraphSAGE {widths}, sampling in it: seeds/s")
        print(columns(["threads", "weft"], [[r["threads"], f"{r['seeds']:,.0f}"] for r in steps], left=0))
    return 0

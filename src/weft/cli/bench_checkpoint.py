"""weft bench checkpoint: what a checkpoint costs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import UserError, unknown
from ..tables import columns
from .options import Parser, whole_number

_DEFAULT = "kronecker:scale=16,degree=16,features=64,classes=16"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench checkpoint", "[GRAPH] [OPTIONS]",
                    "What a checkpoint costs: stall and slowdown of an epoch, size, time to go on from it.",
                    "  weft bench checkpoint\n  weft bench checkpoint --works links --every 4")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_DEFAULT, help=f"({_DEFAULT})")
    parser.add_argument("--works", default="whole,batches,links", metavar="NAME,NAME", help="(all three)")
    parser.add_argument("--epochs", default="20", metavar="N", help="(20)")
    parser.add_argument("--every", default="2", metavar="N", help="epochs between checkpoints (2)")
    parser.add_argument("--threads", default="2", metavar="N", help="(2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    epochs, every, threads = (
        whole_number(getattr(parsed, name), f"--{name}") for name in ("epochs", "every", "threads")
    )
    if every < 2 or epochs < 4 * every:
        raise UserError(
            f"--epochs {epochs} is too few, or --every {every} below 2. Use 4 times --every at least."
        )
    import torch

    from ..bench.checkpoint import WORKS, bench_checkpoint
    from ..graph import load

    works = parsed.works.split(",")
    for work in works:
        if work not in WORKS:
            raise unknown("work", work, WORKS)
    torch.set_num_threads(threads)
    graph = load(parsed.graph)
    rows = bench_checkpoint(graph, works, epochs, every)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "threads": threads, "rows": rows}))
        return 0
    print(
        f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, "
        f"a checkpoint every {every} epochs"
    )
    print(
        columns(
            ["work", "epoch ms", "stall ms", "of an epoch", "epoch beside it", "size MB", "model MB",
             "embeddings MB", "resume ms"],
            [
                [r["work"], f"{r['epoch_seconds'] * 1e3:,.1f}", f"{r['stall_seconds'] * 1e3:.2f}",
                 f"{r['stall']:.2%}", f"{r['slower']:.2f}x",
                 *(f"{r[key] / 1e6:,.2f}" for key in ("bytes", "model_bytes", "embedding_bytes")),
                 f"{r['resume_seconds'] * 1e3:,.0f}"]
                for r in rows
            ],
        )
    )  # fmt: skip
    return 0

"""weft bench: measurements as ratios of one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import UserError, unknown
from ..tables import columns
from . import (
    bench_accelerate,
    bench_attention,
    bench_cache,
    bench_checkpoint,
    bench_comm,
    bench_epoch,
    bench_feed,
    bench_grids,
    bench_link,
    bench_memory,
    bench_order,
    bench_partition,
    bench_pipeline,
    bench_plan,
    bench_ranks,
    bench_sample,
    bench_semiring,
    bench_stochastic,
    bench_width,
    bench_words,
)
from .options import Parser, whole_number

_DEFAULT = "kronecker:scale=17,degree=30"


def run(arguments: Sequence[str]) -> int:
    benches = {
        "kernels": _kernels, "epoch": bench_epoch.run, "ranks": bench_ranks.run, "comm": bench_comm.run,
        "words": bench_words.run, "partition": bench_partition.run, "grids": bench_grids.run,
        "order": bench_order.run, "stochastic": bench_stochastic.run, "link": bench_link.run,
        "sample": bench_sample.run, "feed": bench_feed.run, "attention": bench_attention.run,
        "semiring": bench_semiring.run, "cache": bench_cache.run, "pipeline": bench_pipeline.run,
        "accelerate": bench_accelerate.run, "checkpoint": bench_checkpoint.run, "width": bench_width.run,
        "memory": bench_memory.run, "plan": bench_plan.run,
    }  # fmt: skip
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: weft bench WHAT [--help]\n\n"
              "  kernels     SpMM, SDDMM and dropout against torch, with GB/s beside the memory's own\n"
              "  epoch       whole training epochs against PyG: seconds and peak memory\n"
              "  ranks       epochs and peak memory on 1 rank and on several\n"
              "  comm        latency and bandwidth of every operation on every engine\n"
              "  words       what every algorithm moves, beside the papers' formulas\n"
              "  partition   volume and messages of partitions, relative to random ones\n"
              "  grids       words on every grid, dense and sparse, by partition\n"
              "  order       SpMM with the vertices of a part in several orders\n"
              "  stochastic  volume of random mini-batches under several partitions\n"
              "  link        Hits@K, MRR and AUC over several seeds, beside OGB's leaderboard\n"
              "  sample      neighbour sampling against numpy, and training, in seeds/s\n"
              "  feed        pull against push-pull: bytes, messages, seconds, crossing\n"
              "  cache       rows kept between batches, over the room for them: words against the fewest\n"
              "  pipeline    batches in flight, and samples drawn ahead: with and without\n"
              "  plan        what plans foretell, held against what ranks take\n"
              "  attention   VA, AGNN and GAT over ranks: strong and weak scaling\n"
              "  semiring    (max, +), log-sum-exp, … beside A @ h; your own beside torch\n"
              "  accelerate  PyG's layers after weft.accelerate beside weft's own layers\n"
              "  checkpoint  what a checkpoint costs: stall, slowdown, size, seconds to go on\n"
              "  memory      peak memory of a rank over ranks: what does not shrink\n"
              "  width       peak memory over width and arcs: what grows with arcs × width")  # fmt: skip
        return 0
    if arguments[0] not in benches:
        raise unknown("benchmark", arguments[0], benches)
    return benches[arguments[0]](arguments[1:])


def _kernels(arguments: Sequence[str]) -> int:
    parser = Parser("bench kernels", "[GRAPH] [OPTIONS]", "Our kernels against torch's, in one run.",
                    "  weft bench kernels\n  weft bench kernels --widths 16,64 --threads 1")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=_DEFAULT, help=f"({_DEFAULT})")
    parser.add_argument("--widths", default="16,64,128", metavar="N,N", help="columns of x (16,64,128)")
    parser.add_argument("--threads", default="1,2", metavar="N,N", help="(1,2)")
    parser.add_argument("--rounds", default="7", metavar="N", help="measurements; the median counts (7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    widths, threads = _numbers(parsed.widths, "--widths"), _numbers(parsed.threads, "--threads")
    rounds = whole_number(parsed.rounds, "--rounds")
    from ..bench.kernels import bench_kernels
    from ..graph import load

    graph = load(parsed.graph)
    rows = bench_kernels(graph, widths, threads, rounds)
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "arcs": graph.num_arcs, "rows": rows}))
        return 0
    _table(
        f"{parsed.graph}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, float32, {rows[0]['isa']}",
        ["operator", "threads", "width", "weft ms", "torch ms", "ratio", "GB/s", "STREAM GB/s"],
        [
            [r["operator"], r["threads"], r["width"],
             f"{r['weft_seconds'] * 1e3:.2f}", f"{r['torch_seconds'] * 1e3:.2f}", f"{r['ratio']:.2f}x",
             f"{r['gigabytes_per_second']:.1f}", f"{r['stream_gigabytes_per_second']:.1f}"]
            for r in rows
        ],
    )  # fmt: skip
    return 0


def _numbers(text: str, option: str) -> list[int]:
    return [whole_number(part, f"each of {option} {text}") for part in text.split(",")]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = float("nan")
    if not 0 <= share < 1:
        raise UserError(f"--dropout must be a number in [0, 1), not {text!r}.")
    return share


def _table(title: str, heads: list[str], rows: list[list[Any]]) -> None:
    print(f"{title}\n\n{columns(heads, rows)}")

"""weft bench: measurements as ratios of one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import UserError, unknown
from . import (
    bench_attention,
    bench_comm,
    bench_feed,
    bench_grids,
    bench_link,
    bench_order,
    bench_partition,
    bench_ranks,
    bench_sample,
    bench_semiring,
    bench_stochastic,
    bench_words,
)
from .options import Parser, whole_number

_DEFAULT = "kronecker:scale=17,degree=30"


def run(arguments: Sequence[str]) -> int:
    benches = {
        "kernels": _kernels, "epoch": _epoch, "ranks": bench_ranks.run, "comm": bench_comm.run,
        "words": bench_words.run, "partition": bench_partition.run, "grids": bench_grids.run,
        "order": bench_order.run, "stochastic": bench_stochastic.run, "link": bench_link.run,
        "sample": bench_sample.run, "feed": bench_feed.run, "attention": bench_attention.run,
        "semiring": bench_semiring.run,
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
              "  attention   VA, AGNN and GAT over ranks: strong and weak scaling\n"
              "  semiring    (max, +), log-sum-exp, … beside A @ h; your own beside torch")  # fmt: skip
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


def _epoch(arguments: Sequence[str]) -> int:
    graph = f"{_DEFAULT},features=128,classes=40"
    parser = Parser("bench epoch", "[GRAPH] [OPTIONS]",
                    "Whole training epochs of weft and PyG, in turn, each in its own process.",
                    "  weft bench epoch --against pyg\n"
                    "  weft bench epoch --model sage --against pyg-csr --threads 1")  # fmt: skip
    parser.add_argument("graph", nargs="?", metavar="GRAPH", default=graph, help=f"with labels ({graph})")
    parser.add_argument(
        "--model",
        default="gcn",
        metavar="TEXT",
        help="gcn, sage, gat; gatv2, transformer, gine, resgated, pna, rgcn (gcn)",
    )
    parser.add_argument("--dropout", default="0", metavar="X", help="(0)")
    numbers = {
        "layers": "(3)", "hidden": "(128)", "heads": "of gat's hidden layers (1)", "threads": "(2)",
        "epochs": "timed epochs a round, after two to warm up (3)", "rounds": "turns of each contender (3)",
    }  # fmt: skip
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", default=text.split("(")[1].rstrip(")"), metavar="N", help=text)
    parser.add_argument(
        "--against", default="pyg", metavar="NAMES", help="pyg (both ways), pyg-csr or pyg-edges (pyg)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    layers, hidden, heads, threads, epochs, rounds = (
        whole_number(getattr(parsed, name), f"--{name}") for name in numbers
    )
    both = ["pyg-csr", "pyg-edges"]
    against = [c for name in parsed.against.split(",") for c in (both if name == "pyg" else [name])]
    from ..bench.epoch import bench_epoch, check_contenders
    from ..nn.registry import check_read

    check_contenders(parsed.model, against)
    check_read([parsed.model], {"heads"} & parser.given(arguments))
    result = bench_epoch(
        parsed.graph,
        parsed.model,
        layers,
        hidden,
        heads,
        _share(parsed.dropout),
        threads,
        epochs,
        rounds,
        against,
    )
    if parsed.json:
        print(json.dumps(result))
        return 0
    _table(
        f"{parsed.graph}: {layers}-layer {parsed.model}, hidden {hidden}, heads {heads}, {threads} threads",
        ["contender", "s/epoch", "fastest", "slowest", "time ratio", "peak MB", "above idle MB"],
        [
            [r["contender"], f"{r['seconds']:.3f}", f"{r['fastest']:.3f}", f"{r['slowest']:.3f}",
             f"{r['ratio']:.2f}x", f"{r['peak_rss_bytes'] / 2**20:.0f}",
             f"{r['above_idle_bytes'] / 2**20:.0f}"]
            for r in result["rows"]
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in ("operator", "contender", "algorithm") else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)

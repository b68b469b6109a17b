"""weft bench attention: VA, AGNN and GAT over ranks, as the artifact of Besta et al. measures them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import unknown
from ..tables import columns
from .options import Parser, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench attention", "[OPTIONS]",
        "Attention models on 1 rank and on several: median seconds, strong or weak scaling.",
        "  weft bench attention --model gat,agnn,va --ranks 1\n"
        "  weft bench attention -m GAT -v 16384 -e 1000000 --ranks 1,4 --scaling weak --plot weak.png\n"
        "  weft bench attention -d file -f soc.txt.gz --inference --csv results.csv",
    )  # fmt: skip
    texts = {
        ("-m", "--model"): ("gat", "gat, agnn, va, or several"),
        ("-d", "--dataset"): ("kronecker", "uniform, kronecker or file"),
        ("-f", "--file"): ("", "the graph, for --dataset file: any that weft train takes"),
        ("-t", "--type"): ("float32", "float32 or float64"),
        ("--strategy",): ("a-stationary", "how the work lies on several ranks"),
        ("--scaling",): ("strong", "strong: one graph; weak: n grows with the root of the ranks"),
        ("--ranks",): ("1", "numbers of ranks, such as 1,2,4"),
        ("--engine",): ("mpi", "mpi, torch, or threads: virtual ranks"),
        ("--csv",): ("", "append the rows to this file"),
        ("--plot",): ("", "draw seconds over ranks into this picture"),
    }
    numbers = {
        ("-v", "--vertices"): ("131072", "vertices; kronecker rounds down to a power of 2"),
        ("-e", "--edges"): ("3600000", "edges"),
        ("--features",): ("128", "input features, where the file brings none"),
        ("--hidden",): ("128", "width between the layers"),
        ("--classes",): ("40", "outputs, where the file brings no labels"),
        ("--heads",): ("1", "heads of gat"),
        ("-l", "--layers"): ("3", "layers"),
        ("-s", "--seed"): ("0", "seed of the graph and the weights"),
        ("--repeat",): ("10", "measured repetitions"),
        ("--warmup",): ("2", "repetitions before them"),
        ("--threads",): ("1", "threads a rank"),
    }
    for names, (default, text) in {**texts, **numbers}.items():
        parser.add_argument(
            *names, default=default, metavar="X", help=f"{text} ({default})" if default else text
        )
    parser.add_argument("--inference", action="store_true", help="inference alone, no intermediates kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)

    def number(name: str) -> int:
        least = 0 if name in ("seed", "warmup") else 1
        return whole_number(getattr(parsed, name), f"--{name}", least)

    from ..bench.attention import Task, bench_attention, check_csv, check_task, draw, write_csv
    from ..bench.pictures import check_drawable
    from ..nn.registry import check_read
    from ..parallel import choose

    counts: dict[str, Any] = {name: number(name) for name in (n[-1].removeprefix("--") for n in numbers)}
    base = Task(
        dataset=parsed.dataset, file=parsed.file, type=parsed.type, strategy=parsed.strategy,
        scaling=parsed.scaling, inference=parsed.inference, **counts,
    )  # fmt: skip
    ranks = [whole_number(part, f"each of --ranks {parsed.ranks}") for part in parsed.ranks.split(",")]
    for p in ranks:
        choose(parsed.strategy, p)
    if parsed.engine not in ("mpi", "torch", "threads"):
        raise unknown("engine", parsed.engine, ["mpi", "torch", "threads"])
    if parsed.plot:
        check_drawable(parsed.plot)
    tasks = [
        Task(**(vars(base) | {"model": model.lower()})).on(p)
        for model in parsed.model.split(",")
        for p in ranks
    ]
    for task in tasks:
        check_task(task)
    check_read([task.model for task in tasks[:: len(ranks)]], {"heads"} & parser.given(arguments))
    if parsed.csv:
        check_csv(parsed.csv)
    rows = bench_attention(tasks, parsed.engine)
    if parsed.csv:
        write_csv(rows, parsed.csv)
    if parsed.plot:
        draw(rows, parsed.plot)
    if parsed.json:
        print(json.dumps({"rows": rows}))
        return 0
    what = "inference" if parsed.inference else "training step"
    print(f"{parsed.scaling} scaling, {parsed.strategy}: seconds of a {what}, median of {base.repeat}")
    print(
        columns(
            ["model", "ranks", "vertices", "edges", "seconds", "95 % interval", "ratio"],
            [
                [r["model"], r["ranks"], f"{r['vertices']:,}", f"{r['edges']:,}", f"{r['median']:.3f}",
                 f"{r['low']:.3f} – {r['high']:.3f}", f"{r['ratio']:.2f}"]
                for r in rows
            ],
        )
    )  # fmt: skip
    return 0

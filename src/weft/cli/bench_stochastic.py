"""weft bench stochastic: whose parts move least for a random mini-batch?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UserError, unknown
from ..tables import columns
from .options import Parser, number, whole_number


def run(arguments: Sequence[str]) -> int:
    parser = Parser("bench stochastic", "GRAPH [OPTIONS]",
                    "Mean volume of fresh random mini-batches under hypergraph, stochastic hypergraph and "
                    "METIS partitions, and the time of steps on them, in turn: Figure 5 of Demirci et al.",
                    "  weft bench stochastic com-dblp\n"
                    "  weft bench stochastic email-enron --batch-size 2000 --batches 0,20,200")  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a generator, data set, file or store")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--parts", default="8,27", metavar="N,N", help="(8,27)")
    parser.add_argument("--fresh", default="1000", metavar="N", help="fresh batches to measure (1000)")
    parser.add_argument("--batch-size", default="20000", metavar="N", help="vertices of a batch (20000)")
    parser.add_argument(
        "--fanouts", default="all", metavar="N,N", help="neighbours that a batch reads, by hop (all)"
    )
    parser.add_argument("--steps", default="10", metavar="N",
                        help="steps timed under each partition, on a rank a part where the cores are here; "
                             "0: none (10)")  # fmt: skip
    parser.add_argument("--engine", default="auto", metavar="TEXT",
                        help="of the timed steps: auto, mpi, torch or threads (auto)")  # fmt: skip
    parser.add_argument("--theta", default="0.1", metavar="X", help="the paper's (0.1)")
    parser.add_argument("--delta", default="0.5", metavar="X", help="the paper's (0.5)")
    parser.add_argument("--batches", default="0", metavar="N,N",
                        help="sampled batches, one or several; 0: what --partition takes (0)")  # fmt: skip
    parser.add_argument("--epsilon", default="0.01", metavar="X", help="the paper's (0.01)")
    parser.add_argument("--preset", default="default", metavar="TEXT", help="of Mt-KaHyPar (default)")
    parser.add_argument("--seed", default="0", metavar="N", help="(0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    parts = [whole_number(p, f"each of --parts {parsed.parts}", least=2) for p in parsed.parts.split(",")]
    batches = [
        whole_number(b, f"each of --batches {parsed.batches}", least=0) for b in parsed.batches.split(",")
    ]
    fresh, size = whole_number(parsed.fresh, "--fresh"), whole_number(parsed.batch_size, "--batch-size")
    if parsed.engine not in ("auto", "mpi", "torch", "threads"):
        raise unknown("engine", parsed.engine, ["auto", "mpi", "torch", "threads"])
    steps_asked = whole_number(parsed.steps, "--steps", least=0)
    from ..bench.stochastic import Steps, bench_stochastic
    from ..graph import load
    from ..minibatch.sampler import parse_fanouts
    from ..parallel.assign import bare
    from ..partition import PartitionOptions

    fanouts = parse_fanouts(parsed.fanouts)
    graph = bare(load(parsed.graph, parsed.data))
    if size > graph.num_nodes:
        raise UserError(
            f"--batch-size {size} is more than the graph's {graph.num_nodes} vertices. Use fewer."
        )
    options = PartitionOptions(
        seed=whole_number(parsed.seed, "--seed", least=0), epsilon=number(parsed.epsilon, "--epsilon"),
        preset=parsed.preset, theta=number(parsed.theta, "--theta"), delta=number(parsed.delta, "--delta"),
        batch_size=size, fanouts=fanouts, say=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    methods = [
        ("hypergraph", "hypergraph", options),
        *((f"stochastic, {b or 'by default'}", "stochastic", replace(options, batches=b)) for b in batches),
        ("metis", "metis", options),
        ("random", "random", options),
    ]
    steps = Steps(steps_asked, engine=parsed.engine)
    rows = [
        row for count in parts for row in bench_stochastic(graph, count, methods, fresh, size, fanouts, steps)
    ]
    if parsed.json:
        print(json.dumps({"graph": parsed.graph, "batch_size": size, "fanouts": fanouts, "rows": rows}))
        return 0
    print(
        f"{parsed.graph}: {fresh} fresh batches of {size:,} vertices, fan-outs {parsed.fanouts}; "
        "rows of H that cross for a batch, 95 % intervals"
    )
    print(
        columns(
            ["partition", "parts", "mean volume", "±", "ratio", "±", "step time", "s/step", "s to cut"],
            [
                [r["label"], r["parts"], f"{r['mean']:,.0f}", f"{r['interval']:,.0f}", f"{r['ratio']:.4f}",
                 f"{r['ratio_interval']:.4f}",
                 "" if r["step_ratio"] is None else f"{r['step_ratio']:.2f}",
                 "" if r["step_seconds"] is None else f"{r['step_seconds']:.4f}", f"{r['seconds']:.1f}"]
                for r in rows
            ],
        )
    )  # fmt: skip
    crowded = [count for count in parts if steps_asked and not steps.timed(count)]
    if crowded:
        print(f"{' and '.join(map(str, crowded))} ranks are more than two for each core here: not timed")
    return 0

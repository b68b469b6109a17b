"""Demirci, Haldar, Ferhatosmanoglu. Scalable Graph Convolutional Network Training on Distributed-Memory
Systems. PVLDB 16, 2022."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...comm.threads import run_threads
from ...errors import UserError
from ...graph import load
from ...minibatch.sampler import parse_fanouts
from ...parallel.assign import bare
from ...partition import PartitionOptions
from ...partition.hypergraph import LARGE_K
from ...planner import Shape
from ...train import RunConfig, Trainer
from ..partition import bench_partition, draw_partition
from ..stochastic import Steps, bench_stochastic
from .foretold import foretold, gcn
from .item import MEASURED, PAPER, Compared, Item, Outcome, Paper, Parameters, Row
from .measured import OTHERS, against_others, at_hand, epochs_of, ratio, sizes_table, split_time, standing
from .panels import Panel, figure_of

SIZES = {
    "amazon0601": (403_394, 3_387_388),
    "cit-Patents": (3_774_768, 16_518_948),
    "coPapersDBLP": (540_486, 30_491_458),
    "com-Amazon": (334_863, 1_851_744),
    "com-Youtube": (1_134_890, 5_975_248),
    "flickr": (820_878, 9_837_214),
    "roadNet-CA": (1_971_281, 5_533_214),
    "soc-Slashdot0902": (82_168, 948_464),
    "Cora": (2_708, 10_556),
    "ogbn-Papers100M": (111_059_956, 1_615_685_872),
    "Reddit": (232_965, 114_615_892),
}
"""Table 1."""
TABLE2 = {
    "amazon0601": {"HP": (0.12, 0.29, 0.22, 0.51), "GP": (0.18, 0.31, 0.30, 0.62)},
    "cit-Patents": {"HP": (0.17, 0.29, 0.70, 0.89), "GP": (0.19, 0.50, 0.77, 0.94)},
    "coPapersDBLP": {"HP": (0.07, 0.08, 0.42, 0.71), "GP": (0.07, 0.16, 0.57, 0.77)},
    "com-Amazon": {"HP": (0.09, 0.20, 0.14, 0.32), "GP": (0.14, 0.27, 0.19, 0.42)},
    "com-Youtube": {"HP": (0.36, 0.52, 0.72, 0.97), "GP": (0.37, 2.60, 0.90, 0.99)},
    "flickr": {"HP": (0.45, 0.60, 0.79, 1.00), "GP": (0.38, 6.89, 0.96, 1.00)},
    "roadNet-CA": {"HP": (0.01, 0.01, 0.01, 0.03), "GP": (0.01, 0.02, 0.01, 0.03)},
    "soc-Slashdot0902": {"HP": (0.74, 0.69, 0.86, 0.92), "GP": (0.85, 4.38, 0.93, 1.00)},
}
"""Graph → partition → average and maximum volume, average and maximum messages over random's, at 512."""
COLUMNS = ("volume_average", "volume_max", "messages_average", "messages_max")
METHODS = {"hypergraph": "HP", "metis": "GP", "random": "RP"}
_SOCIAL = "bter:nodes=20000,degree=12"
_INSTEAD = ["com-dblp", _SOCIAL]
"""Authors of papers, as coPapersDBLP's, and as many as com-Amazon has products; else what is made."""
_TIMES = {"rounds": 1, "epochs": 3, "hosts": "", "engine": "auto"}
_OWN = {"CN": ("cagnet-1d", "random"), "PGCN": ("pgcn", "hypergraph")}
"""CAGNET's 1D and the paper's own algorithm, as `bench.baselines` has them."""
_SETS = {name.lower(): size for name, size in SIZES.items() if name != "flickr"} | {
    "flickr": SIZES["flickr"], "gleich-flickr": SIZES["flickr"], "reddit-dgl": SIZES["Reddit"],
}  # fmt: skip


def _layouts(ranks: int) -> dict[str, tuple[int, str, str]]:
    """The curves of Figures 3 and 4a: weft's halo under HP, GP and RP, weft's 1d, and what the papers run."""
    if ranks == 1:
        return {"one rank": (1, "1d", "random")}
    ours = {short: (ranks, "halo", method) for method, short in METHODS.items()}
    own = {short: (ranks, *each) for short, each in _OWN.items()}
    return {**ours, "1d": (ranks, "1d", "random"), **own}


_OWN_NOTE = (
    "CN is CAGNET's 1D and PGCN the paper's Algorithms 1 and 2 with its hypergraph, both as bench/baselines "
    "has them; HP, GP, RP and 1d are weft's"
)


def _preset(parts: int) -> str:
    return "large-k" if parts >= LARGE_K else "default"


def _check_parts(*parts: int) -> None:
    if min(parts) < 2:
        raise UserError(f"--set parts={min(parts)}: nothing crosses then. Give 2 or more.")


def table1(p: Parameters) -> Outcome:
    """The data sets."""
    shown = {"ogbn-Papers100M": "ogbn-papers100M", "flickr": "gleich-flickr", "Reddit": "reddit-dgl"}
    return sizes_table(SIZES, shown)


def table2(p: Parameters) -> Outcome:
    """Volumes and messages of HP and GP over RP's; seconds of epochs where ranks are here."""
    _check_parts(p["parts"])
    graphs = [at_hand(name, _SOCIAL) for name in p["graphs"]]
    options = PartitionOptions(epsilon=0.01)
    rows: list[Row] = [
        {"kind": MEASURED, **row}
        for row in bench_partition(graphs, [p["parts"]], ["metis", "hypergraph"], options, _preset)
    ]
    compared = []
    for graph in dict.fromkeys(graphs):
        said = next(
            (t for n, t in TABLE2.items() if n.lower() == graph.lower().removeprefix("gleich-")), None
        )
        for method, short in (("hypergraph", "HP"), ("metis", "GP")):
            row = next(r for r in rows if (r["graph"], r["method"]) == (graph, method))
            ours = ", ".join(f"{row[f'{key}_ratio']:.2f}" for key in COLUMNS)
            paper = "not in it" if said is None else ", ".join(f"{x:.2f}" for x in said[short])
            what = f"{short} over RP on {graph} at {p['parts']}: volume avg, max, messages avg, max"
            compared.append(Compared(what, f"{paper} (at 512)", ours))
    notes = ["R and S (seconds on 512 cores) are Figure 3's"]
    if any(graph == _SOCIAL for graph in graphs):
        absent = [name for name in p["graphs"] if at_hand(name, _SOCIAL) != name]
        notes.append(f"{', '.join(absent)} not under $WEFT_DATA: {_SOCIAL} stands for it")
    return Outcome(rows, compared, partial(draw_partition, rows), notes)


def fig3(p: Parameters) -> Outcome:
    """Strong scaling of HP, GP, RP and CAGNET's 1D: measured here, foretold to 512."""
    graph = at_hand(p["graph"], *p["instead"])
    rows: list[Row] = []
    for ranks in p["ranks"]:
        rows += epochs_of(graph, _layouts(ranks), 2, p["hidden"], p)
    dry: list[Row] = []
    if p["paper_ranks"]:
        whole = load(graph)
        shape = Shape(whole.num_nodes, whole.num_arcs, 128, 40, bare(whole), graph)
        dry = foretold(
            shape,
            gcn(2, p["hidden"]),
            p["paper_ranks"],
            ["halo"],
            48,
            12.5e9,
            ["hypergraph", "metis", "random"],
        )
        dry += foretold(shape, gcn(2, p["hidden"]), p["paper_ranks"], ["1d"], 48, 12.5e9)
    compared = []
    most = max(p["ranks"])
    for other, what, said in (
        ("CN", "CAGNET's 1D", "about 12 at 512 (coPapersDBLP)"),
        ("PGCN", "the paper's own algorithm", "1 (it is the paper's)"),
    ):
        if any(row["algorithm"] == other for row in rows):
            pair = {"ranks": most, "algorithm": other}, {"ranks": most, "algorithm": "HP"}
            compared.append(
                Compared(
                    f"{what} over HP, {graph}",
                    said,
                    f"{ratio(rows, 'seconds', *pair):.2f} in seconds, {ratio(rows, 'words', *pair):.2f} in "
                    f"words, measured at {most}",
                )
            )
    if dry:
        last = max(p["paper_ranks"])
        for other, said in (
            ("halo, random", "1.33 (soc-Slashdot0902, 1/R)"),
            ("1d", "8.3 (messages, coPapersDBLP)"),
        ):
            found = ratio(
                dry,
                "seconds",
                {"ranks": last, "algorithm": other},
                {"ranks": last, "algorithm": "halo, hypergraph"},
            )
            compared.append(
                Compared(f"seconds of {other} over HP at {last}", said, f"{found:.2f} (foretold)")
            )
    panels = [
        Panel(f"{graph}: measured", rows, "ranks", "seconds", "algorithm", "lines", "seconds of an epoch")
    ]
    if dry:
        panels.append(
            Panel(
                f"{graph}: foretold",
                dry,
                "ranks",
                "seconds",
                "algorithm",
                "lines",
                "seconds of an epoch",
                log=True,
            )
        )
    return Outcome(
        rows + dry,
        compared,
        figure_of(panels, "Demirci et al., Figure 3"),
        [
            *standing(p["graph"], graph),
            _OWN_NOTE,
            "the bottom row (GPUs) needs GPUs and NCCL; the foretold ranks are cores, 48 to a host",
            "one of the paper's eight graphs: --set graph=NAME gives another, one run each",
        ],
    )


def fig4a(p: Parameters) -> Outcome:
    """Where time goes: HP, GP, RP and CAGNET's 1D."""
    graph = at_hand(p["graph"], *p["instead"])
    rows: list[Row] = []
    for ranks in p["ranks"]:
        rows += epochs_of(graph, _layouts(ranks), 2, p["hidden"], p)
    for row in rows:
        row["split"] = split_time(row["time"])
    most = max(p["ranks"])
    at = {row["algorithm"]: row for row in rows if row["ranks"] == most}
    compared = [
        Compared(
            f"{what}, {other} over HP",
            said,
            f"{at[other][key] / max(at['HP'][key], 1e-9):.2f} measured at {most}, {graph}",
        )
        for what, key, other, said in (
            ("words of the busiest rank", "words", "GP", "1.7 (its time, at 512)"),
            ("words of the busiest rank", "words", "CN", "8.3 (its time, at 512)"),
            ("seconds", "seconds", "CN", "about 12 at 512"),
            ("seconds", "seconds", "PGCN", "1 (it is the paper's)"),
        )
        if other in at
    ]
    panel = Panel(
        graph,
        rows,
        "ranks",
        "split",
        "algorithm",
        "stacked",
        "seconds of an epoch",
        ("computation", "communication"),
    )
    return Outcome(rows, compared, figure_of([panel], "Demirci et al., Figure 4a"), [
        *standing(p["graph"], graph), _OWN_NOTE
    ])  # fmt: skip


def fig4b(p: Parameters) -> Outcome:
    """Speedup over the number of layers and the width."""
    graph = at_hand(p["graph"], *p["instead"])
    rows: list[Row] = []
    for width in p["widths"]:
        for layers in p["layers"]:
            layouts = {
                "one rank": (1, "1d", "random"),
                "HP": (p["ranks"], "halo", "hypergraph"),
                "RP": (p["ranks"], "halo", "random"),
            }
            mine = epochs_of(graph, layouts, layers, width, p)
            rows += [
                row | {"layers": layers, "width": width, "curve": f"{row['algorithm']}, d={width}"}
                for row in mine
                if row["algorithm"] != "one rank"
            ]
    gain = [r["speedup"] for r in rows if r["algorithm"] == "HP" and r["width"] == min(p["widths"])]
    compared = [
        Compared(
            f"speedup of HP from {min(p['layers'])} to {max(p['layers'])} layers, d={min(p['widths'])}",
            "rises, 28x to 40x over DGL at 512",
            f"{gain[0]:.2f}x to {gain[-1]:.2f}x over one rank of weft at {p['ranks']}",
        )
    ]
    panel = Panel(graph, rows, "layers", "speedup", "curve", "lines", "speedup over one rank")
    return Outcome(
        rows, compared, figure_of([panel], "Demirci et al., Figure 4b"), standing(p["graph"], graph)
    )


def fig4c(p: Parameters) -> Outcome:
    """Accuracy over ranks: the answer is the serial one."""
    name = at_hand(p["graph"], *p["instead"])
    graph = load(name)
    rows: list[Row] = []
    for ranks in p["ranks"]:
        got = run_threads(_accuracy, ranks, graph, p["epochs"])[0]
        size = {"graph": graph.name, "vertices": graph.num_nodes, "arcs": graph.num_arcs}
        rows.append({"kind": MEASURED, **size, "ranks": ranks, **got})
    spread = max(r["test_accuracy"] for r in rows) - min(r["test_accuracy"] for r in rows)
    last = rows[-1]
    compared = [
        Compared(
            f"test accuracy on {graph.name} after {p['epochs']} epochs",
            "about 75 % (Cora, 1 to 27 GPUs)",
            f"{rows[0]['test_accuracy']:.1%} on 1, {last['test_accuracy']:.1%} on {last['ranks']}",
        ),
        Compared("largest difference between numbers of ranks", "none to see", f"{spread:.2%}"),
    ]
    panel = Panel(graph.name, rows, "ranks", "test_accuracy", "graph", "lines", "test accuracy")
    return Outcome(
        rows,
        compared,
        figure_of([panel], "Demirci et al., Figure 4c"),
        [*standing(p["graph"], name), "virtual ranks: threads"],
    )


def _accuracy(comm: Any, graph: Any, epochs: int) -> dict[str, float]:
    config = RunConfig()
    config.parallel.strategy, config.parallel.partition = (
        ("halo", "hypergraph") if comm.size > 1 else ("1d", "random")
    )
    config.train.epochs = epochs
    result = Trainer(graph, config, comm).fit()
    return {"test_accuracy": result.accuracy["test"], "loss": result.loss[-1]}


def fig5(p: Parameters) -> Outcome:
    """Volume of random mini-batches under HP and SHP."""
    _check_parts(*p["parts"])
    name = at_hand(p["graph"], *p["instead"])
    graph = bare(load(name))
    size = min(p["batch_size"], graph.num_nodes)
    fanouts = parse_fanouts(p["fanouts"])
    options = PartitionOptions(epsilon=0.01, theta=0.1, delta=0.5, batch_size=size, fanouts=fanouts)
    methods = [
        ("HP", "hypergraph", options),
        ("SHP", "stochastic", replace(options, batches=p["sampled"])),
        ("RP", "random", options),
    ]
    steps = Steps(p["steps"], engine=p["engine"])
    rows: list[Row] = [
        {"kind": MEASURED, "graph": name, "vertices": graph.num_nodes, "arcs": graph.num_arcs, **row}
        for parts in p["parts"]
        for row in bench_stochastic(graph, parts, methods, p["fresh"], size, fanouts, steps)
    ]
    ours = [row for row in rows if row["label"] == "SHP"]
    compared = [
        Compared(
            "volume of HP over SHP, mean over the parts",
            "1.10 (com-Amazon, batches of 20k)",
            f"{_mean([1 / r['ratio'] for r in ours]):.3f} ({name}, batches of {size:,})",
        )
    ]
    timed = [row for row in rows if row["step_ratio"] is not None]
    if timed:
        compared.append(
            Compared(
                "time of a step, HP over SHP, mean over the parts",
                "above 1, more with more processors",
                f"{_mean([1 / r['step_ratio'] for r in timed if r['label'] == 'SHP']):.2f}, on "
                f"{', '.join(str(n) for n in dict.fromkeys(r['parts'] for r in timed))} ranks",
            )
        )
    panels = [
        Panel("rows that cross for a batch", rows, "parts", "mean", "label", "lines"),
        Panel("relative to HP", ours, "parts", "ratio", "label", "lines", line=1.0),
    ]
    notes = standing(p["graph"], name)
    if timed:
        panels.append(
            Panel("time of a step", timed, "parts", "step_seconds", "label", label="seconds, median")
        )
    if len(timed) < len(rows):
        notes.append("steps are timed where a rank has half a core or more (--set steps, --set parts)")
    return Outcome(rows, compared, figure_of(panels, "Demirci et al., Figure 5"), notes)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def table3(p: Parameters) -> Outcome:
    """A large citation graph at 27 parts: seconds over the width, and the volume."""
    _check_parts(p["parts"])
    graph = at_hand(p["graph"], *p["instead"])
    options = PartitionOptions(epsilon=0.01)
    cuts = bench_partition([graph], [p["parts"]], ["hypergraph"], options, _preset)
    volume = {row["method"]: row["volume_average"] * p["parts"] for row in cuts}
    rows: list[Row] = []
    for width in p["widths"]:
        layouts = {short: (p["ranks"], "halo", method) for method, short in METHODS.items() if short != "GP"}
        mine = epochs_of(graph, layouts, 2, width, p)
        rows += [row | {"width": width, "volume": volume[row["partition"]]} for row in mine]
    seconds = {(r["algorithm"], r["width"]): r["seconds"] for r in rows}
    said = {1: 34.70 / 24.46, 2: 42.88 / 25.0, 5: 65.14 / 29.73}
    compared = [
        Compared(
            f"rows that cross in one propagation at {p['parts']} parts, RP over HP",
            "10.8 (13 billion, 1.2)",
            f"{volume['random'] / volume['hypergraph']:.2f} on {graph}",
        )
    ]
    compared += [
        Compared(
            f"seconds of RP over HP at d={w}",
            f"{said[w]:.2f}" if w in said else "-",
            f"{seconds['RP', w] / seconds['HP', w]:.2f} measured at {p['ranks']} ranks",
        )
        for w in p["widths"]
    ]
    panel = Panel(graph, rows, "width", "seconds", "algorithm", "bars", "seconds of an epoch")
    return Outcome(rows, compared, figure_of([panel], "Demirci et al., Table 3"), standing(p["graph"], graph))


TABLE4 = {
    "HP": (0.67, "3 A100"),
    "CAGNET": (0.11, "4 V100"),
    "ROC": (0.20, "4 P100"),
    "Sancus": (0.09, "4 V100"),
    "PaGraph": (1.00, "1 1080Ti"),
    "Dorylus": (1.36, "2 V100"),
    "DGCL": (0.15, "4 V100"),
}


def table4(p: Parameters) -> Outcome:
    """An epoch on Reddit, beside what others print; PyG where it is installed."""
    graph = at_hand(p["graph"], *p["instead"])
    rows: list[Row] = [
        {"kind": PAPER, "graph": "Reddit", "algorithm": f"{name} ({setup})", "seconds": seconds}
        for name, (seconds, setup) in TABLE4.items()
    ]
    layouts = {
        f"weft, {p['ranks']} ranks": (p["ranks"], "halo", "random"),
        "weft, 1 rank": (1, "1d", "random"),
    }
    mine = epochs_of(graph, layouts, 2, p["hidden"], p)
    rows += mine
    rows += [
        row | {"algorithm": OTHERS[row["contender"]]}
        for row in (against_others(graph, 2, p["hidden"], p["epochs"], 1, mine[0]) if p["pyg"] else [])
        if row["contender"] in OTHERS
    ]
    ours = next(r for r in rows if r["algorithm"].startswith("weft,"))
    compared = [
        Compared(
            "seconds of an epoch",
            "0.67 (HP, Reddit, 3 A100)",
            f"{ours['seconds']:.3f} ({graph}, {ours['ranks']} ranks on cores)",
        )
    ]
    panel = Panel("the paper’s are Reddit on GPUs", rows, "algorithm", "seconds", "kind", "bars", log=True)
    return Outcome(
        rows,
        compared,
        figure_of([panel], "Demirci et al., Table 4", 1),
        [*standing(p["graph"], graph), "others' numbers are the paper's; their code is not run"],
    )


DEMIRCI = Paper(
    "demirci",
    "Scalable Graph Convolutional Network Training on Distributed-Memory Systems, PVLDB 2022",
    (
        Item(
            "fig1", "the algorithm's messages, a drawing", why="a drawing; weft's is docs/algorithms/halo.md"
        ),
        Item(
            "fig2",
            "the hypergraph of a small matrix, a drawing",
            why="a drawing; docs/algorithms/partitioning.md",
        ),
        Item("table1", "data sets", 20, table1, needs="SNAP's and OGB's sets under $WEFT_DATA"),
        Item(
            "table2",
            "volume and messages of HP and GP over RP",
            90,
            table2,
            {"graphs": ["soc-slashdot0902"], "parts": 512},
            {
                "graphs": [name.lower().replace("flickr", "gleich-flickr") for name in TABLE2],
                "parts": 512,
            },
            "the eight graphs under $WEFT_DATA",
            data=("graphs",),
        ),
        Item(
            "fig3",
            "strong scaling of HP, GP, RP and CAGNET",
            150,
            fig3,
            {
                "graph": "soc-slashdot0902",
                "instead": [_SOCIAL],
                "ranks": [1, 2, 4],
                "hidden": 16,
                "paper_ranks": [16, 64],
                **_TIMES,
            },
            {"graph": "amazon0601", "ranks": [16, 32, 64, 128, 256, 512], "paper_ranks": [16, 64, 256, 512]},
            "512 cores",
            data=("graph",),
        ),
        Item(
            "fig4a",
            "time of computing and of messages",
            150,
            fig4a,
            {"graph": "copapersdblp", "instead": _INSTEAD, "ranks": [2, 4], "hidden": 16, **_TIMES},
            {"ranks": [16, 32, 64, 128, 256, 512]},
            "coPapersDBLP and 512 cores",
            data=("graph",),
        ),
        Item(
            "fig4b",
            "speedup over layers and widths",
            120,
            fig4b,
            {
                "graph": "roadnet-ca",
                "instead": ["email-enron", _SOCIAL],
                "layers": [2, 4],
                "widths": [50, 100],
                "ranks": 2,
                **_TIMES,
            },
            {"layers": [3, 4, 5, 6, 7, 8], "ranks": 512},
            "roadNet-CA and 512 cores",
            data=("graph",),
        ),
        Item(
            "fig4c",
            "accuracy over ranks",
            20,
            fig4c,
            {"graph": "cora", "instead": ["sbm:nodes=1000,classes=5"], "ranks": [1, 3, 9, 27], "epochs": 30},
            needs="cora under $WEFT_DATA; ranks are threads",
            virtual=True,
            data=("graph",),
        ),
        Item(
            "fig5",
            "volume and time of mini-batches under HP and SHP",
            180,
            fig5,
            {
                "graph": "com-amazon",
                "instead": ["com-dblp", "bter:nodes=100000,degree=6"],
                "parts": [3, 9],
                "batch_size": 20_000,
                "fresh": 20,
                "sampled": 16,
                "fanouts": "all",
                "steps": 5,
                "engine": "auto",
            },
            {"parts": [3, 9, 15, 27], "batch_size": 20_000, "fresh": 10_000, "sampled": 0},
            "com-Amazon under $WEFT_DATA",
            data=("graph",),
        ),
        Item(
            "table3",
            "a billion arcs on 27 ranks",
            100,
            table3,
            {
                "graph": "ogbn-papers100m",
                "instead": _INSTEAD,
                "parts": 27,
                "ranks": 2,
                "widths": [1, 2, 5],
                **_TIMES,
            },
            {"ranks": 27},
            "ogbn-papers100M, 27 cores and about 300 GB of memory",
            data=("graph",),
        ),
        Item(
            "table4",
            "an epoch on Reddit",
            60,
            table4,
            {
                "graph": "reddit-dgl",
                "instead": ["kronecker:scale=13,degree=200,features=300,classes=41"],
                "hidden": 16,
                "ranks": 2,
                "pyg": 1,
                **_TIMES,
            },
            {"ranks": 4},
            "reddit-dgl under $WEFT_DATA",
            data=("graph",),
        ),
    ),
    _SETS,
)

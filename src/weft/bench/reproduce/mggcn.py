"""MG-GCN: Balın, Sancak, Çatalyürek. MG-GCN: Scalable Multi-GPU GCN Training Framework. 2021."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...errors import unknown
from ...graph import load, write_store
from ...planner import Shape
from ..ranks import trainable, trained
from .foretold import foretold, gcn
from .item import MEASURED, PAPER, Compared, Item, Outcome, Paper, Parameters, Row
from .measured import (
    OTHERS,
    STACK,
    against_others,
    at_hand,
    epochs_of,
    named,
    only_here,
    others_here,
    sizes_table,
)
from .panels import Panel, figure_of, timeline

SIZES = {
    "Cora": (3_300, 9_200),
    "Arxiv": (169_000, 1_160_000),
    "Papers": (111_000_000, 1_610_000_000),
    "Products": (2_500_000, 126_000_000),
    "Proteins": (8_740_000, 1_300_000_000),
    "Reddit": (233_000, 115_000_000),
}
"""Table 1."""
LIKE = {
    "bter:nodes=40000,degree=7,features=128,classes=40": "like Arxiv",
    "kronecker:scale=13,degree=120,features=300,classes=41": "like Reddit",
    "kronecker:scale=14,degree=50,features=100,classes=47": "like Products",
}
_NAMES = {"cora": "Cora", **LIKE}
FULL = ["ogbn-arxiv", "reddit-dgl", "ogbn-products"]
_SHOWN = {
    "Arxiv": "ogbn-arxiv", "Papers": "ogbn-papers100m", "Products": "ogbn-products", "Reddit": "reddit-dgl",
}  # fmt: skip
"""The paper's name → weft's. Its Proteins are not OGB's, which have 132,534 vertices."""
_SETS = {_SHOWN.get(name, name).lower(): size for name, size in SIZES.items()} | {"reddit": SIZES["Reddit"]}
SHAPES = {
    "Reddit": Shape(232_965, 114_848_857, 602, 41, name="Reddit"),
    "Products": Shape(2_449_029, 123_718_280, 104, 47, name="Products"),
    "Proteins": Shape(8_745_542, 1_309_240_124, 128, 256, name="Proteins"),
}
TABLE3 = {
    "Reddit": {1: 0.033, 2: 0.017, 4: 0.012, 8: 0.012},
    "Products": {1: 0.355, 2: 0.202, 4: 0.110, 8: 0.067},
    "Proteins": {1: 4.221, 2: 2.272, 4: 1.191, 8: 0.641},
    "Papers": {8: 2.89},
}
TABLE2 = {
    "Reddit": {1: 0.60, 16: 0.61},
    "Papers": {1: 1000, 128: 36.45},
    "Products": {1: 11, 64: 1.74},
    "Proteins": {1: 100, 64: 2.63},
}
_TIMES = {"rounds": 1, "epochs": 4, "hosts": "", "engine": "auto"}
CAGNET = {"like Reddit": 2.66, "like Products": 8.6, "like Arxiv": 2.35}
"""MG-GCN over CAGNET on 8 V100s."""
_NEEDS = "the data sets under $WEFT_DATA and 8 cores (the paper: 8 GPUs)"


def table1(p: Parameters) -> Outcome:
    """The data sets."""
    return sizes_table(SIZES, _SHOWN)


def fig5(p: Parameters) -> Outcome:
    """Where the time of an epoch on one rank goes."""
    graphs, left_out = only_here(p["graphs"])
    rows = [
        row
        for graph, name in named(graphs, _NAMES).items()
        for row in epochs_of(
            graph,
            {"1d": (1, "1d", "random")},
            2,
            p["hidden"],
            p,
            name=name,
            more=["--input-dropout", "0.01"],
        )
    ]
    for row in rows:
        total = sum(row["time"].values())
        row["share"] = {kind: seconds / total for kind, seconds in row["time"].items()}
    small = dict.fromkeys(("Cora", "like Arxiv"), "small: GeMM first")
    said = small | {"like Reddit": "60 to 94 %", "like Products": "60 to 94 %"}
    compared = [
        Compared(
            f"share of SpMM, {row['graph']}",
            said.get(row["graph"], "60 to 94 % of large graphs"),
            f"{row['share'].get('spmm', 0):.0%} (dense products {row['share'].get('dense', 0):.0%})",
        )
        for row in rows
    ]
    panel = Panel("", rows, "graph", "share", "", "stacked", "share of an epoch", STACK)
    return Outcome(
        rows,
        compared,
        figure_of([panel], "MG-GCN, Figure 5"),
        [
            "activation, loss and Adam are in `other`; input dropout of 1 % keeps weft from keeping A·X",
            *left_out,
        ],
    )


def _traced(
    graph: str, p: Parameters, ways: Sequence[tuple[str, list[str]]]
) -> list[tuple[str, list[Row], float]]:
    """(name, events of one epoch, its seconds) of each way."""
    found = []
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        loaded = trainable(load(graph))
        store = write_store(loaded, Path(folder) / "g.weft")
        size = {"graph": graph, "vertices": loaded.num_nodes, "arcs": loaded.num_arcs, "ranks": p["ranks"]}
        for number, (name, options) in enumerate(ways):
            path = Path(folder) / f"{number}.json"
            trained(
                store,
                Path(folder) / f"run{number}",
                [
                    "--ranks",
                    str(p["ranks"]),
                    "--strategy",
                    "1d",
                    "--layers",
                    "2",
                    "--hidden",
                    str(p["hidden"]),
                    "--threads",
                    "1",
                    "--epochs",
                    str(p["epochs"]),
                    "--evaluate-every",
                    str(p["epochs"]),
                    "--dropout",
                    "0",
                    "--trace",
                    str(path),
                    *options,
                    *(["--hosts", p["hosts"]] if p["hosts"] else []),
                ],
                p["engine"],
            )
            events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
            begin = min(e["ts"] for e in events)
            shown = {"spmm": "compute", "gather": "messages", "reduce": "messages"}
            rows = [
                {
                    "kind": MEASURED,
                    **size,
                    "way": name,
                    "rank": e["pid"],
                    "what": shown[e["cat"]],
                    "call": e["name"],
                    "start": (e["ts"] - begin) * 1e-6,
                    "seconds": e["dur"] * 1e-6,
                }
                for e in events
                if e["cat"] in shown
            ]
            whole = max(e["dur"] for e in events if e["cat"] == "step") * 1e-6
            found.append((name, rows, whole))
    return found


def fig6(p: Parameters) -> Outcome:
    """The SpMM's stages in the graph's own order and in a random one."""
    graph = at_hand(p["graph"], *p["instead"])
    parts = _traced(
        graph, p, [("original order", ["--partition", "block"]), ("permuted", ["--partition", "random"])]
    )
    rows = [row for _, events, _ in parts for row in events]
    compared = []
    for name, events, whole in parts:
        by_rank = [
            sum(e["seconds"] for e in events if (e["rank"], e["what"]) == (r, "compute"))
            for r in range(p["ranks"])
        ]
        uneven = max(by_rank) / (sum(by_rank) / len(by_rank))
        compared.append(
            Compared(
                f"{name}: busiest rank's SpMM over the mean; epoch",
                "50 ms" if name != "permuted" else "38 ms",
                f"{uneven:.2f}; {whole * 1e3:.1f} ms",
            )
        )
    return Outcome(
        rows,
        compared,
        timeline([(name, events) for name, events, _ in parts], "MG-GCN, Figure 6"),
        [
            *([] if graph == "ogbn-products" else [f"{graph}, not Products"]),
            "the paper's are one SpMM, ours the epoch's",
        ],
    )


def fig7(p: Parameters) -> Outcome:
    """What permuting saves."""
    graphs, left_out = only_here(p["graphs"])
    rows = []
    for graph, name in named(graphs, _NAMES).items():
        for ranks in p["ranks"]:
            layouts = {"original": (ranks, "1d", "block"), "permuted": (ranks, "1d", "random")}
            mine = epochs_of(graph, layouts, 2, p["hidden"], p, name=name)
            rows += [row | {"gain": mine[0]["seconds"] / row["seconds"]} for row in mine]
    most = [row for row in rows if row["algorithm"] == "permuted" and row["ranks"] == max(p["ranks"])]
    compared = [
        Compared(
            f"original over permuted on {row['ranks']} ranks, {row['graph']}",
            "1.5 (Products, Reddit, 8 GPUs)",
            f"{row['gain']:.2f}",
        )
        for row in most
    ]
    panel = Panel(
        "",
        [r for r in rows if r["algorithm"] == "permuted"],
        "graph",
        "gain",
        "ranks",
        "bars",
        "original over permuted",
        line=1.0,
    )
    return Outcome(
        rows,
        compared,
        figure_of([panel], "MG-GCN, Figure 7"),
        ["generated graphs have permuted labels already: both are alike, real ones differ", *left_out],
    )


def fig8(p: Parameters) -> Outcome:
    """Messages beside computing, and hidden behind it."""
    parts = _traced(p["graph"], p, [("without overlap", ["--no-overlap"]), ("with overlap", ["--overlap"])])
    rows = [row for _, events, _ in parts for row in events]
    plain, hidden = (whole for _, _, whole in parts)
    compared = [
        Compared(
            "epoch without over with overlap", "1.27 (38 ms to 30 ms, one SpMM)", f"{plain / hidden:.2f}"
        )
    ]
    return Outcome(
        rows,
        compared,
        timeline([(name, events) for name, events, _ in parts], "MG-GCN, Figure 8"),
        [f"{p['graph']}, {p['ranks']} ranks: computing and sending share this machine's cores"],
    )


def fig9(p: Parameters) -> Outcome:
    """Speedup over the average degree: BTER graphs with times the arcs of Arxiv's profile."""
    rows = []
    for times in p["times"]:
        graph = f"{p['base']},times={times}" if "like=" in p["base"] else f"{p['base']},degree={7 * times}"
        layouts = {f"{r}": (r, "1d", "random") for r in [1, *p["ranks"]]}
        mine = epochs_of(graph, layouts, 2, p["hidden"], p, name=f"{times}x")
        rows += [row | {"times": times, "curve": f"{row['ranks']} ranks"} for row in mine if row["ranks"] > 1]
    most = max(p["ranks"])
    mine = [row["speedup"] for row in rows if row["ranks"] == most]
    compared = [
        Compared(
            f"speedup on {most} ranks from {p['times'][0]}x to {p['times'][-1]}x the arcs",
            "rises; above the number of GPUs from 32x or 64x on",
            f"{mine[0]:.2f} to {mine[-1]:.2f}",
        )
    ]
    panel = Panel("", rows, "times", "speedup", "curve", "lines", "speedup over one rank")
    return Outcome(
        rows,
        compared,
        figure_of([panel], "MG-GCN, Figure 9"),
        [] if "like=" in p["base"] else ["a power law of mean degree 7 stands for Arxiv's profile"],
    )


def _systems(p: Parameters, title: str, said: str) -> Outcome:
    """weft over ranks beside DGL and PyG on one, where they are installed."""
    graphs, left_out = only_here(p["graphs"])
    here = others_here() if p["pyg"] else []
    rows: list[Row] = []
    compared = []
    for graph, name in named(graphs, _NAMES).items():
        layouts = {f"weft, {r}": (r, "1d", "random") for r in p["ranks"]}
        layouts |= {f"CAGNET, {r}": (r, "cagnet-1d", "random") for r in p["ranks"] if r > 1}
        mine = epochs_of(graph, layouts, 2, p["hidden"], p, name=name)
        compared += _over_cagnet(mine)
        others = against_others(graph, 2, p["hidden"], p["epochs"], 1, mine[0]) if p["pyg"] else []
        alone = next((row["seconds"] for row in others if row["contender"] == "weft"), mine[0]["seconds"])
        others = [row | {"algorithm": f"{OTHERS[row['contender']]}, 1"} for row in others
                  if row["contender"] in OTHERS]  # fmt: skip
        mine += others
        compared += [
            Compared(
                f"one rank: baseline over ours, {name}",
                said,
                f"{row['seconds'] / alone:.2f} ({OTHERS[row['contender']]}, in turn)",
            )
            for row in others
        ]
        times = {row["contender"]: row["seconds"] for row in others}
        base = next((times[contender] for contender in here if contender in times), alone)
        for row in mine:
            row["over_baseline"] = base / row["seconds"]
        rows += mine
    panels = [
        Panel("seconds of an epoch", rows, "graph", "seconds", "algorithm", log=True),
        Panel(
            f"speedup over {OTHERS[here[0]]}" if here else "speedup over one rank",
            rows,
            "graph",
            "over_baseline",
            "algorithm",
            line=1.0,
        ),
    ]
    notes = ["CAGNET is its 1D algorithm as bench/baselines has it", *left_out]
    notes += [f"{name} is not run" for name in ("DGL", "PyG") if name not in map(OTHERS.get, here)]
    return Outcome(rows, compared, figure_of(panels, title, 2), notes)


def _over_cagnet(rows: Sequence[Row]) -> list[Compared]:
    """CAGNET's 1D over weft's 1d on the most ranks that both ran on."""
    own = [row for row in rows if row["strategy"] == "cagnet-1d"]
    if not own:
        return []
    last = max(own, key=lambda row: row["ranks"])
    ours = next(row for row in rows if row["algorithm"] == f"weft, {last['ranks']}")
    return [
        Compared(
            f"CAGNET's 1D over weft's on {last['ranks']} ranks, {last['graph']}",
            f"{CAGNET[last['graph']]} in seconds (8 V100)" if last["graph"] in CAGNET else "-",
            f"{last['seconds'] / ours['seconds']:.2f} in seconds, "
            f"{last['words'] / max(ours['words'], 1):.2f} in words",
        )
    ]


def fig10(p: Parameters) -> Outcome:
    """Epochs and speedups on the first machine (with fig11)."""
    return _systems(p, "MG-GCN, Figures 10 and 11", "2.72 Reddit, 1.42 Products, 1.76 Arxiv (DGL, V100)")


def fig12(p: Parameters) -> Outcome:
    """Epochs and speedups on the second machine (with fig13)."""
    return _systems(p, "MG-GCN, Figures 12 and 13", "1.5 Reddit, 1.5 Products, 1.8 Arxiv (DGL, A100)")


def table3(p: Parameters) -> Outcome:
    """Epochs over ranks: measured on small graphs, foretold at the paper's sizes."""
    graphs, left_out = only_here(p["graphs"])
    rows: list[Row] = [
        {"kind": PAPER, "graph": name, "ranks": g, "algorithm": "MG-GCN (A100)", "seconds": s}
        for name, each in TABLE3.items()
        for g, s in each.items()
    ]
    rows += [
        {"kind": PAPER, "graph": name, "ranks": s, "algorithm": "DistGNN (sockets)", "seconds": t}
        for name, each in TABLE2.items()
        for s, t in each.items()
    ]
    for graph, name in named(graphs, _NAMES).items():
        layouts = {f"{r}": (r, "1d", "random") for r in p["ranks"]}
        rows += epochs_of(graph, layouts, p["layers"], p["hidden"], p, name=name)
    dry: list[Row] = []
    for name in p["foretell"]:
        if name not in SHAPES:
            raise unknown("data set of this table", name, SHAPES)
        config = gcn(2, 16) if name == "Reddit" else gcn(3, 256)
        dry += foretold(SHAPES[name], config, p["paper_ranks"], ["1d"], 8, 25e9)
    compared = []
    for name in p["foretell"]:
        mine = [row for row in dry if row["graph"] == name]
        if mine and 8 in TABLE3.get(name, {}):
            first, last = mine[0], mine[-1]
            paper = TABLE3[name].get(first["ranks"], 0) / TABLE3[name].get(last["ranks"], 1)
            compared.append(
                Compared(
                    f"speedup from {first['ranks']} to {last['ranks']}, {name}",
                    f"{paper:.2f}",
                    f"{first['seconds'] / last['seconds']:.2f} (foretold, CPU cores)",
                )
            )
    measured = [row for row in rows if row["kind"] == MEASURED]
    panels = [
        Panel(
            "measured here", measured, "ranks", "seconds", "graph", "lines", "seconds of an epoch", log=True
        )
    ]
    if dry:
        panels.append(
            Panel(
                "foretold at the paper's sizes",
                dry,
                "ranks",
                "seconds",
                "graph",
                "lines",
                "seconds of an epoch",
                log=True,
            )
        )
    return Outcome(
        rows + dry,
        compared,
        figure_of(panels, "MG-GCN, Tables 2 and 3", 2),
        ["DistGNN's numbers are the paper's; its code is not public", *left_out],
    )


_COMMON = {"graphs": list(_NAMES), "hidden": 128, **_TIMES}
_ORDERED = ["cnr-2000", "com-dblp", "kronecker:scale=14,degree=50,features=100,classes=47"]
"""Two graphs with an order of their own, and one without."""

MGGCN = Paper(
    "mggcn",
    "MG-GCN: Scalable Multi-GPU GCN Training Framework, 2021",
    (
        Item("fig1", "shared buffers, a drawing", why="a drawing; weft bench memory counts weft's"),
        Item("fig2", "how matrices are cut, a drawing", why="a drawing; docs/algorithms/1d.md has weft's"),
        Item("fig3", "two stages of the SpMM, a drawing", why="a drawing"),
        Item("fig4", "layers forward and back, a drawing", why="a drawing"),
        Item("table1", "data sets", 5, table1, needs="OGB's sets and reddit-dgl under $WEFT_DATA"),
        Item(
            "fig5",
            "where the time of an epoch goes",
            60,
            fig5,
            _COMMON,
            {"graphs": FULL, "hidden": 512},
            _NEEDS,
            data=("graphs",),
        ),
        Item(
            "fig6",
            "stages in the original and a permuted order",
            20,
            fig6,
            {
                "graph": "cnr-2000",
                "instead": ["sbm:nodes=20000,degree=24,features=64"],
                "ranks": 2,
                "hidden": 64,
                **_TIMES,
            },
            {"graph": "ogbn-products", "ranks": 4, "hidden": 512},
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "fig7",
            "what permuting saves",
            120,
            fig7,
            _COMMON | {"graphs": _ORDERED, "hidden": 64, "ranks": [2, 4]},
            {"graphs": FULL, "hidden": 512, "ranks": [1, 2, 4, 8]},
            _NEEDS,
            data=("graphs",),
        ),
        Item(
            "fig8",
            "messages beside computing, with and without overlap",
            20,
            fig8,
            {
                "graph": "kronecker:scale=14,degree=50,features=100,classes=47",
                "ranks": 2,
                "hidden": 256,
                **_TIMES,
            },
            {"graph": "ogbn-products", "ranks": 4, "hidden": 512},
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "fig9",
            "speedup over the average degree",
            90,
            fig9,
            {
                "base": "bter:nodes=20000,features=64,classes=40",
                "times": [1, 4, 16],
                "ranks": [2],
                "hidden": 128,
                **_TIMES,
            },
            {
                "base": "bter:like=ogbn-arxiv,features=512,classes=40",
                "times": [1, 2, 4, 8, 16, 32, 64, 128],
                "ranks": [2, 4, 8],
                "hidden": 512,
            },
            "8 cores and 60 GB",
            data=("base",),
        ),
        Item(
            "fig10",
            "epochs beside the baselines, DGX-V100",
            120,
            fig10,
            _COMMON | {"ranks": [1, 2], "pyg": 1},
            {"graphs": FULL, "hidden": 512, "ranks": [1, 2, 4, 8]},
            _NEEDS,
            data=("graphs",),
        ),
        Item("fig11", "speedups of Figure 10", why="the second panel of fig10"),
        Item(
            "fig12",
            "epochs beside the baselines, DGX-A100",
            120,
            fig12,
            _COMMON | {"ranks": [1, 2], "pyg": 1},
            {"graphs": FULL, "hidden": 512, "ranks": [1, 2, 4, 8]},
            _NEEDS,
            data=("graphs",),
        ),
        Item("fig13", "speedups of Figure 12", why="the second panel of fig12"),
        Item(
            "table2",
            "DistGNN's epochs",
            why="numbers of another paper, whose code is not public; table3 shows them beside ours",
        ),
        Item(
            "table3",
            "epochs over ranks",
            90,
            table3,
            _COMMON
            | {
                "layers": 3,
                "ranks": [1, 2],
                "paper_ranks": [1, 2, 4, 8],
                "foretell": ["Reddit", "Products", "Proteins"],
            },
            {"graphs": FULL, "hidden": 256, "ranks": [1, 2, 4, 8]},
            _NEEDS,
            data=("graphs",),
        ),
    ),
    _SETS,
)

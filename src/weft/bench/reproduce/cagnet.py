"""CAGNET: Tripathy, Yelick, Buluç. Reducing Communication in Graph Neural Network Training. SC 2020."""

from __future__ import annotations

from typing import Any

from ...graph import load
from ...planner import Shape
from ..words import bench_words, draw_words
from .foretold import foretold, gcn
from .item import FORETOLD, MEASURED, Compared, Item, Outcome, Paper, Parameters, Row
from .measured import STACK, epochs_of, named, sizes_table
from .panels import Panel, figure_of

SIZES = {
    "Reddit": Shape(232_965, 114_848_857, 602, 41, name="Reddit"),
    "Amazon": Shape(14_249_639, 230_788_269, 300, 24, name="Amazon"),
    "Protein": Shape(8_745_542, 2_116_240_124, 128, 256, name="Protein"),
}
"""Table III."""
LIKE = {
    "kronecker:scale=12,degree=120,features=150,classes=41": "like Reddit",
    "kronecker:scale=15,degree=16,features=75,classes=24": "like Amazon",
    "kronecker:scale=13,degree=60,features=32,classes=64": "like Protein",
}
FULL = ["reddit-dgl", "amazon", "protein"]
_SETS = {name: (SIZES[shown].vertices, SIZES[shown].arcs) for name, shown in (
    ("reddit", "Reddit"), ("reddit-dgl", "Reddit"), ("amazon", "Amazon"), ("protein", "Protein"),
)}  # fmt: skip
_NEEDS = "reddit-dgl, amazon and protein under $WEFT_DATA, and as many cores as ranks"
_BANDWIDTH = 25e9  # Summit's node injection
_TIMES = {"rounds": 1, "epochs": 4, "hosts": "", "engine": "auto"}


STRATEGY = {
    "1d": "1d", "1.5d c=2": "1.5d", "2d": "2d", "3d": "3d", "CAGNET 1D": "cagnet-1d",
    "CAGNET 1.5D": "cagnet-1.5d", "CAGNET 2D": "cagnet-2d", "CAGNET 3D": "cagnet-3d",
}  # fmt: skip
"""A curve's name → what runs: weft's strategy, or the paper's own algorithm of `bench.baselines`."""
OWN = {"1d": "CAGNET 1D", "1.5d c=2": "CAGNET 1.5D", "2d": "CAGNET 2D", "3d": "CAGNET 3D"}
"""weft's → the paper's own algorithm of the same shape."""


def _scaling(p: Parameters, names: list[str], per_host: int) -> tuple[list[Row], list[Panel]]:
    """Measured on ranks that are here, the paper's own algorithms among them, and weft's foretold at the
    paper's size."""
    shown_names = [*names, *(OWN[name] for name in names if name in OWN)]
    rows: list[Row] = []
    panels = []
    for graph, shown in named(p["graphs"], LIKE).items():
        mine: list[Row] = []
        for ranks in p["ranks"]:
            layouts = {
                name: (ranks, STRATEGY[name], "random")
                for name in shown_names
                if _possible(STRATEGY.get(name, ""), ranks)
            }
            if layouts:
                mine += epochs_of(graph, layouts, 3, p["hidden"], p, name=shown)
        rows += mine
        if mine:
            panels.append(
                Panel(
                    f"{shown}: measured",
                    mine,
                    "ranks",
                    "time",
                    "algorithm",
                    "stacked",
                    "seconds of an epoch",
                    STACK,
                )
            )
    for shape in SIZES.values():
        mine = foretold(shape, gcn(3, p["hidden"]), p["paper_ranks"], names, per_host, _BANDWIDTH)
        rows += mine
        if mine:
            panels.append(
                Panel(
                    f"{shape.name}: foretold at the paper's size",
                    mine,
                    "ranks",
                    "time",
                    "algorithm",
                    "stacked",
                    "seconds of an epoch",
                    ("local", "messages"),
                )
            )
    return rows, panels


def _possible(strategy: str, ranks: int) -> bool:
    """Whether so many ranks make the grid that the paper draws."""
    square, cube = round(ranks**0.5), round(ranks ** (1 / 3))
    return {
        "1d": True,
        "1.5d": ranks % 4 == 0,
        "2d": square**2 == ranks > 1,
        "3d": cube**3 == ranks > 1,
    }.get(strategy.removeprefix("cagnet-"), False)


def _of(rows: list[Row], **wanted: Any) -> Row | None:
    return next((row for row in rows if all(row.get(k) == v for k, v in wanted.items())), None)


def _compare_own(rows: list[Row]) -> list[Compared]:
    """weft's strategies beside the paper's own algorithms, in the same run."""
    found = []
    for row in rows:
        own = _of(rows, kind=MEASURED, graph=row["graph"], ranks=row["ranks"],
                  algorithm=OWN.get(row["algorithm"], ""))  # fmt: skip
        if row["kind"] == MEASURED and own and row["ranks"] > 1:
            found.append(
                Compared(
                    f"{row['algorithm']} over {own['algorithm']}, {row['graph']}, {row['ranks']} ranks",
                    "1 (it is the paper's)",
                    f"{row['words'] / max(own['words'], 1):.2f} in words of the busiest rank, "
                    f"{row['seconds'] / own['seconds']:.2f} in seconds",
                )
            )
    return found


def _notes() -> list[str]:
    return [
        "CAGNET 1D, 1.5D, 2D, 3D: the paper's algorithms as bench/baselines has them, with no bias and plain "
        "gradient descent; 1d, 1.5d, 2d, 3d: weft's strategies of the same shape",
        "measured: ranks on this machine's cores, graphs of the data sets' degree, made smaller",
        "foretold: CPU cores, not V100s, at the paper's sizes; weft keeps A still, so there is no sbcast",
    ]


def fig1(p: Parameters) -> Outcome:
    """1D, 1.5D and 2D, all GPUs of a node."""
    rows, panels = _scaling(p, ["1d", "1.5d c=2", "1.5d c=4", "2d"], 6)
    return Outcome(
        rows,
        _compare_2d(rows) + _compare_c(rows) + _compare_own(rows),
        figure_of(panels, "CAGNET, Figure 1"),
        _notes(),
    )


def _compare_2d(rows: list[Row]) -> list[Compared]:
    found = []
    fast = _of(rows, kind=MEASURED, algorithm="1.5d c=2")
    if fast:
        found.append(
            Compared(
                "epochs a second of 1.5D on one node, Reddit",
                "> 20 on 4 V100",
                f"{1 / fast['seconds']:.1f} on {fast['ranks']} ranks here, {fast['graph']}",
            )
        )
    for name in SIZES:
        two = [r for r in rows if r["kind"] == FORETOLD and (r["graph"], r["algorithm"]) == (name, "2d")]
        for row in two[-1:]:
            other = _of(rows, kind=FORETOLD, graph=name, algorithm="1.5d c=2", ranks=row["ranks"])
            if other:
                ratio = row["seconds"] / other["seconds"]
                found.append(
                    Compared(
                        f"2D over 1.5D c=2, seconds on {name} at {row['ranks']}",
                        "above 1 (never faster)",
                        f"{ratio:.2f} (foretold)",
                    )
                )
    return found


def _compare_c(rows: list[Row]) -> list[Compared]:
    """What replication saves: the paper's formula is n·f/c + n·f·c/P against n·f."""
    found = []
    for c in (2, 4):
        for name in ("Amazon", "Protein"):
            many = [
                r for r in rows if (r["kind"], r["graph"], r["algorithm"]) == (FORETOLD, name, f"1.5d c={c}")
            ]
            for row in many[-1:]:
                base = _of(rows, kind=FORETOLD, graph=name, algorithm="1d", ranks=row["ranks"])
                if base:
                    said = 1 / c + c / row["ranks"]
                    found.append(
                        Compared(
                            f"words of c={c} over 1D on {name} at {row['ranks']}",
                            f"{said:.2f}",
                            f"{row['words'] / base['words']:.2f} (foretold to the word)",
                        )
                    )
    return found


def fig2(p: Parameters) -> Outcome:
    """1D and 1.5D, one GPU a node: broadcasts scale with c."""
    rows, panels = _scaling(p, ["1d", "1.5d c=2", "1.5d c=4"], 1)
    compared = _compare_c(rows) + _compare_own(rows)
    for name in ("Amazon", "Protein"):
        row = _of(
            rows, kind=FORETOLD, graph=name, algorithm="1.5d c=4", ranks=max(p["paper_ranks"], default=0)
        )
        base = _of(rows, kind=FORETOLD, graph=name, algorithm="1d", ranks=max(p["paper_ranks"], default=0))
        if row and base:
            gain = base["time"]["messages"] / row["time"]["messages"]
            compared.append(
                Compared(f"messages' time of 1D over c=4 on {name}", "close to 4", f"{gain:.1f} (foretold)")
            )
    return Outcome(rows, compared, figure_of(panels, "CAGNET, Figure 2: one rank a host"), _notes())


def fig3(p: Parameters) -> Outcome:
    """2D against 3D with 64 hidden columns."""
    rows, panels = _scaling(p, ["2d", "3d"], 6)
    compared = _compare_own(rows)
    for name in ("Amazon", "Protein"):
        ours = {
            a: [r for r in rows if (r["kind"], r["graph"], r["algorithm"]) == (FORETOLD, name, a)]
            for a in ("2d", "3d")
        }
        if all(ours.values()):
            first, last = ours["3d"][-1], ours["2d"][-1]
            share = first["seconds"] / last["seconds"]
            said = "about 1 (they match)" if name == "Amazon" else "below 1 (3D generally faster)"
            compared.append(
                Compared(
                    f"3D at {first['ranks']} over 2D at {last['ranks']}, seconds, {name}",
                    said,
                    f"{share:.2f} (foretold)",
                )
            )
            fell = {a: each[0]["words"] / each[-1]["words"] for a, each in ours.items()}
            compared.append(
                Compared(
                    f"words fall from the least to the most ranks, 3D beside 2D, {name}",
                    "5 to 10 % more",
                    f"{fell['3d'] / fell['2d'] - 1:+.0%}",
                )
            )
    return Outcome(rows, compared, figure_of(panels, "CAGNET, Figure 3: 2D and 3D"), _notes())


def table3(p: Parameters) -> Outcome:
    """The data sets."""
    sizes = {name: (shape.vertices, shape.arcs) for name, shape in SIZES.items()}
    return sizes_table(sizes, {"Reddit": "reddit-dgl"})


def sec4(p: Parameters) -> Outcome:
    """Section IV's formulas beside the ledger."""
    result = bench_words(load(p["graph"]), p["ranks"], p["width"], p["layers"])
    facts = {"graph": p["graph"], "vertices": result["vertices"], "arcs": result["nnz"]}
    rows = [{"kind": MEASURED, **facts, **row} for row in result["rows"]]
    compared = [
        Compared(
            f"words of one epoch, {row['algorithm']} on {row['ranks']} ranks",
            f"{row['epoch_paper']:,.0f} ({row['epoch_paper_dense']:,.0f} without A)",
            f"{row['epoch_words']:,}",
        )
        for row in rows
        if row["ranks"] == max(p["ranks"])
    ]
    return Outcome(
        rows,
        compared,
        lambda path: draw_words(result, path),
        ["weft keeps A still and the first A·X: the fair comparison is with the dense terms"],
    )


CAGNET = Paper(
    "cagnet",
    "Reducing Communication in Graph Neural Network Training, SC 2020",
    (
        Item("table1", "symbols", why="a list of symbols, no experiment"),
        Item(
            "table2",
            "which matrix lies how, by algorithm",
            why="definitions, no experiment; docs/grid.md says what weft holds where",
        ),
        Item("table3", "data sets", 5, table3, needs="reddit-dgl, amazon and protein under $WEFT_DATA"),
        Item(
            "sec4",
            "words of the 1D, 1.5D, 2D and 3D algorithms (Section IV's formulas)",
            15,
            sec4,
            {"graph": "kronecker:scale=12,degree=16", "ranks": [4, 16, 64], "width": 16, "layers": 3},
            {"graph": "kronecker:scale=20,degree=16"},
            virtual=True,
            data=("graph",),
        ),
        Item(
            "fig1",
            "epochs of 1D, 1.5D, 2D, six ranks a node",
            180,
            fig1,
            {"graphs": list(LIKE), "ranks": [4], "hidden": 16, "paper_ranks": [4, 16, 36, 64, 100], **_TIMES},
            {"graphs": FULL, "ranks": [4, 16, 36, 64, 100], "epochs": 100},
            _NEEDS,
            data=("graphs",),
        ),
        Item(
            "fig2",
            "epochs of 1D, 1.5D, one rank a node",
            150,
            fig2,
            {"graphs": list(LIKE)[1:], "ranks": [4], "hidden": 16, "paper_ranks": [4, 16, 36, 64], **_TIMES},
            {"graphs": FULL, "ranks": [4, 16, 36, 64], "epochs": 100},
            _NEEDS,
            data=("graphs",),
        ),
        Item(
            "fig3",
            "epochs of 2D and 3D",
            130,
            fig3,
            {
                "graphs": list(LIKE)[1:],
                "ranks": [4],
                "hidden": 64,
                "paper_ranks": [25, 27, 64, 121, 125],
                **_TIMES,
            },
            {"graphs": FULL[1:], "ranks": [25, 27, 64, 121, 125], "epochs": 20},
            _NEEDS,
            data=("graphs",),
        ),
    ),
    _SETS,
)

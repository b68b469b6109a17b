"""Besta et al. High-Performance and Programmable Attentional Graph Neural Networks with Global Tensor
Formulations. SC 2023."""

from __future__ import annotations

from typing import Any

from ..attention import Task, bench_attention
from ..words import attention_words
from .item import FORETOLD, MEASURED, Compared, Item, Outcome, Paper, Parameters, Row
from .measured import at_hand
from .panels import Panel, figure_of

_MODELS = ["va", "agnn", "gat"]
_ONE = "one of the paper's {} panels: --set vertices=, edges= and features= give the others, one run each"


def _tasks(p: Parameters, **more: Any) -> list[Task]:
    made = Task(
        vertices=p["vertices"],
        edges=p["edges"],
        features=p["features"],
        hidden=p["features"],
        classes=p["features"],
        layers=p["layers"],
        repeat=p["repeat"],
        warmup=1,
        **more,
    )
    return [Task(**{**vars(made.on(ranks)), "model": model}) for model in p["models"] for ranks in p["ranks"]]


def _rows(tasks: list[Task], engine: str, **more: Any) -> list[Row]:
    return [
        {"kind": MEASURED, "graph": row["file"] or row["dataset"], "arcs": row["edges"], **row, **more}
        for row in bench_attention(tasks, engine)
    ]


def _words(p: Parameters, weak: bool = False) -> list[Row]:
    """Words of an epoch at the paper's size, foretold; O(nk/√p + k²) a layer is the paper's bound."""
    rows: list[Row] = []
    for ranks in p["paper_ranks"]:
        n = round(p["paper_vertices"] * (ranks**0.5 if weak else 1))
        rows += [
            {"kind": FORETOLD, "graph": "any", "vertices": n, **row}
            for row in attention_words(n, [ranks], p["features"], p["layers"])
        ]
    return rows


def _compare_words(rows: list[Row]) -> list[Compared]:
    """The bound holds if words over it do not grow."""
    return [
        Compared(
            f"words of {model} over 2L(nk/√p + k²), {mine[0]['ranks']} to {mine[-1]['ranks']} ranks",
            "bounded by a constant",
            f"{mine[0]['ratio']:.2f} to {mine[-1]['ratio']:.2f}",
        )
        for model in dict.fromkeys(row["model"] for row in rows)
        for mine in [[row for row in rows if row["model"] == model]]
    ]


def _efficiency(rows: list[Row], said: str) -> list[Compared]:
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        if len(mine) > 1:
            first, last = mine[0], mine[-1]
            share = first["median"] / last["median"]
            if last["scaling"] == "strong":
                share *= first["ranks"] / last["ranks"]
            found.append(
                Compared(f"parallel efficiency of {model} on {last['ranks']} ranks", said, f"{share:.0%}")
            )
    return found


def _panels(measured: list[Row], words: list[Row], title: str) -> list[Panel]:
    found = [Panel(f"{title}: measured", measured, "ranks", "median", "model", "lines", "seconds, median")]
    if words:
        found.append(
            Panel(
                "words of an epoch, foretold at the paper's size",
                words,
                "ranks",
                "words",
                "model",
                "lines",
                "words of the busiest rank",
                log=True,
            )
        )
    return found


def fig6(p: Parameters) -> Outcome:
    """Strong scaling of training on Kronecker graphs."""
    rows = _rows(_tasks(p, dataset="kronecker"), p["engine"])
    words = _words(p)
    compared = _efficiency(rows, "not printed") + _compare_words(words)
    panels = _panels(
        rows, words, f"{rows[0]['vertices']:,} vertices, {rows[0]['edges']:,} arcs, k={p['features']}"
    )
    return Outcome(
        rows + words,
        compared,
        figure_of(panels, "Besta et al., Figure 6: strong scaling"),
        ["DistDGL is not run: its wheels need DGL, which is no longer maintained", _ONE.format("eight")],
    )


def fig7a(p: Parameters) -> Outcome:
    """Strong scaling on a large real graph, inference and training."""
    file = at_hand(p["file"], *p["instead"], "")
    rows: list[Row] = []
    for inference in (True, False):
        name = "inference" if inference else "training"
        rows += _rows(
            _tasks(p, dataset="file" if file else "kronecker", file=file, inference=inference),
            p["engine"],
            what=name,
        )
    words = _words(p)
    panels = [
        Panel(
            f"{name}: measured",
            [r for r in rows if r["what"] == name],
            "ranks",
            "median",
            "model",
            "lines",
            "seconds, median",
        )
        for name in ("inference", "training")
    ]
    panels += _panels(rows, words, "")[1:]
    return Outcome(
        rows + words,
        _efficiency([r for r in rows if r["what"] == "training"], "not printed") + _compare_words(words),
        figure_of(panels, "Besta et al., Figure 7, left: a large graph"),
        [f"the MS Academic Knowledge Graph is not here: {file or 'a Kronecker graph'} stands for it"]
        if file != p["file"]
        else [],
    )


def fig7b(p: Parameters) -> Outcome:
    """Weak scaling on uniform graphs, inference: the global formulation beside the local one."""
    rows: list[Row] = []
    for density in p["densities"]:
        sparse = dict(p) | {"edges": max(p["vertices"], int(p["vertices"] ** 2 * density))}
        for strategy, name in (("a-stationary", "global"), ("halo", "local")):
            rows += _rows(
                _tasks(sparse, dataset="uniform", scaling="weak", inference=True, strategy=strategy),
                p["engine"],
                formulation=name,
                density=density,
            )
    most = max(p["ranks"])
    compared = []
    for density in p["densities"]:
        at = {
            r["formulation"]: r["median"]
            for r in rows
            if (r["ranks"], r["density"]) == (most, density) and r["model"] == p["models"][0]
        }
        compared.append(
            Compared(
                f"seconds of local over global at density {density}, {p['models'][0]}",
                "above 1, falls as the graph gets sparser",
                f"{at['local'] / at['global']:.2f} on {most} ranks",
            )
        )
    panels = [
        Panel(
            f"density {density}",
            [r | {"curve": f"{r['model']}, {r['formulation']}"} for r in rows if r["density"] == density],
            "ranks",
            "median",
            "curve",
            "lines",
            "seconds, median",
        )
        for density in p["densities"]
    ]
    return Outcome(
        rows,
        compared,
        figure_of(panels, "Besta et al., Figure 7, right: weak scaling, inference"),
        ["local: each rank's rows with the rows that they read (halo), as DistDGL's; DistDGL is not run"],
    )


def fig8(p: Parameters) -> Outcome:
    """Weak scaling of training on Kronecker graphs."""
    tasks = _tasks(p, dataset="kronecker", scaling="weak")
    rows = _rows(tasks, p["engine"])
    words = _words(p, weak=True)
    compared = _efficiency(rows, "57 % (VA, 512 nodes)") + _compare_words(words)
    panels = _panels(rows, words, f"n ~ √P from {p['vertices']:,}, k={p['features']}")
    return Outcome(rows + words, compared, figure_of(panels, "Besta et al., Figure 8: weak scaling"), [
        _ONE.format("several")
    ])  # fmt: skip


_SMALL = {
    "vertices": 16_384,
    "edges": 1_300_000,
    "features": 16,
    "layers": 3,
    "models": _MODELS,
    "repeat": 3,
    "ranks": [1, 4],
    "paper_ranks": [4, 16, 64, 256],
    "paper_vertices": 131_072,
    "engine": "mpi",
}

BESTA = Paper(
    "besta",
    "High-Performance and Programmable Attentional GNNs with Global Tensor Formulations, SC 2023",
    (
        Item("table1", "symbols", why="a list of symbols, no experiment"),
        Item(
            "table2",
            "tensor expressions and kernels",
            why="a list of operators, no experiment; weft bench kernels times weft's",
        ),
        Item(
            "fig1",
            "formulations of the models, a drawing",
            why="equations; docs/algorithms/attention.md has weft's",
        ),
        Item(
            "fig2",
            "how GAT's global form is derived, a drawing",
            why="a derivation; tests hold weft's GAT to dense algebra",
        ),
        Item("fig3", "softmax in global form, a drawing", why="a derivation"),
        Item("fig4", "the toolchain, a drawing", why="a drawing"),
        Item(
            "fig5",
            "execution graphs and fusion, a drawing",
            why="a drawing; weft bench width shows that nothing of size arcs × width is held",
        ),
        Item(
            "fig6",
            "strong scaling of training, Kronecker graphs",
            90,
            fig6,
            _SMALL,
            {"vertices": 131_072, "edges": 171_798_692, "ranks": [1, 4, 16, 64, 256], "repeat": 10},
            "256 cores, 64 GB each",
        ),
        Item(
            "fig7a",
            "strong scaling on a large graph, inference and training",
            90,
            fig7a,
            dict(_SMALL)
            | {
                "models": ["gat"],
                "file": "makg.weft",
                "instead": ["com-dblp"],
                "paper_vertices": 111_000_000,
                "paper_ranks": [16, 64, 256, 1024],
            },
            {"ranks": [16, 64, 256, 1024]},
            "MAKG as makg.weft and 1,024 nodes",
            data=("file",),
        ),
        Item(
            "fig7b",
            "weak scaling on uniform graphs: global against local",
            90,
            fig7b,
            {
                "vertices": 4096,
                "edges": 0,
                "features": 16,
                "layers": 3,
                "models": ["gat"],
                "repeat": 3,
                "ranks": [1, 4],
                "densities": [0.01, 0.1],
                "engine": "mpi",
            },
            {
                "vertices": 131_072,
                "ranks": [1, 4, 16, 64, 256],
                "densities": [0.01, 0.001, 0.0001],
                "repeat": 10,
            },
            "512 nodes",
        ),
        Item(
            "fig8",
            "weak scaling of training, Kronecker graphs",
            120,
            fig8,
            _SMALL | {"vertices": 8192, "edges": 650_000},
            {"vertices": 131_072, "edges": 17_179_869, "ranks": [1, 4, 16], "repeat": 10},
            "512 nodes",
        ),
        Item("artifact-table1", "parameters of Figure 6", why="parameters: --full and --set take them"),
        Item(
            "artifact-table2",
            "parameters of the weak scaling, 0.1 %",
            why="parameters: --full and --set take them",
        ),
        Item(
            "artifact-table3",
            "parameters of the weak scaling, 0.01 %",
            why="parameters: --full and --set take them",
        ),
    ),
    {"makg.weft": (111_000_000, 3_200_000_000)},
)

"""P3: Gandhi, Iyer. P3: Distributed Deep Graph Learning at Scale. OSDI 2021.

DGL's part is played by weft's `pull`: rows of features come from their owners, vertices dealt by hash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from ...graph import Graph, load, split, write_store
from ...partition import PartitionOptions
from .. import cache, feed
from ..partition import bench_partition
from ..ranks import furnished, trained
from .item import MEASURED, PAPER, Compared, Item, Outcome, Paper, Parameters, Row, only
from .measured import at_hand, sizes_table, split_time, standing
from .panels import Panel, figure_of

SIZES = {
    "OGB-Product": (2_400_000, 123_700_000),
    "OGB-Paper": (111_000_000, 1_600_000_000),
    "UK-2006-05": (77_700_000, 2_900_000_000),
    "UK-Union": (133_600_000, 5_500_000_000),
    "Facebook": (30_700_000, 10_000_000_000),
}
"""Table 3."""
_SHOWN = {
    "OGB-Product": "ogbn-products", "OGB-Paper": "ogbn-papers100m", "UK-Union": "uk-union-2006-06-2007-05",
}  # fmt: skip
"""The paper's name → weft's."""
_SETS = {_SHOWN.get(name, name).lower(): size for name, size in SIZES.items()}
TABLE4 = {
    "sgc": (4.45, 4.06, 4.34, 4.82, 5.43),
    "gcn": (4.12, 3.67, 4.65, 4.37, 4.33),
    "sage": (3.83, 3.16, 3.77, 3.68, 3.80),
    "gat": (2.65, 2.08, 2.39, 2.36, 2.95),
}
"""Model → speedups over DGL on the five graphs."""
_SMALL = {
    "graph": "soc-slashdot0902",
    "instead": ["kronecker:scale=14,degree=16"],
    "features": [100],
    "hidden": [32],
    "ranks": [2],
    "batch_size": 1000,
    "batches": 4,
    "rounds": 3,
    "fanouts": "25,10",
    "engine": "mpi",
}
_FULL = {
    "graph": "ogbn-products",
    "ranks": [4],
    "batches": 50,
}
_ONE = "one graph for the paper's: --set graph=NAME gives another, one run each"
_NEEDS = "ogbn-products under $WEFT_DATA and 4 cores (the paper: 16 GPUs on 4 nodes)"


def _placed(run: Callable[[Parameters], Outcome]) -> Callable[[Parameters], Outcome]:
    """The same on the graph that is at hand, with a note where another stands for it."""

    @wraps(run)
    def placed(p: Parameters) -> Outcome:
        graph = at_hand(p["graph"], *p["instead"])
        outcome = run(p | {"graph": graph})
        return replace(outcome, notes=[*standing(p["graph"], graph), *outcome.notes, _ONE])

    return placed


def _feed(
    p: Parameters, model: str = "sage", fanouts: str = "", pipeline: bool = False, **more: Any
) -> list[Row]:
    """Rows of both feeds, with the paper's names beside ours."""
    p = p | more
    task = feed.Task(
        sorted(p["hidden"]),
        p["batch_size"],
        fanouts or p["fanouts"],
        model,
        0.5,
        p["batches"],
        p["rounds"],
        pipeline,
        "hash",
    )
    result = feed.bench_feed(p["graph"], sorted(p["features"]), p["ranks"], task, p["engine"])
    size = {"graph": p["graph"], "vertices": result["vertices"], "arcs": result["arcs"]}
    shown = {"pull": "pull (as DGL)", "push-pull": "push-pull (P3)"}
    return [
        {
            "kind": MEASURED,
            **size,
            "model": model,
            "fanouts": task.fanouts,
            "pipeline": pipeline,
            **row,
            "feed": shown[row["feed"]],
            "megabytes": row["bytes"] / 1e6,
        }
        for row in result["rows"]
    ]


def _gains(rows: Sequence[Row], by: str) -> dict[Any, tuple[float, float]]:
    """Value of `by` → pull over push-pull: (bytes, seconds)."""
    found = {}
    for value in dict.fromkeys(row[by] for row in rows):
        here = {row["feed"][:4]: row for row in rows if row[by] == value}
        pull, push = here["pull"], here["push"]
        found[value] = pull["bytes"] / max(push["bytes"], 1), pull["seconds"] / push["seconds"]
    return found


def _told(gain: tuple[float, float]) -> str:
    return f"{gain[0]:.2f} in bytes, {gain[1]:.2f} in seconds"


def _panels(rows: list[Row], by: str) -> list[Panel]:
    return [
        Panel("what moves", rows, by, "megabytes", "feed", label="MB a batch, all ranks"),
        Panel("time", rows, by, "seconds", "feed", label="seconds a batch"),
    ]


def _outcome(rows: list[Row], by: str, compared: list[Compared], title: str, *notes: str) -> Outcome:
    told = ["DGL is not run: pull stands for it", *notes]
    return Outcome(rows, compared, figure_of(_panels(rows, by), f"P3, {title}", 2), told)


@_placed
def table1(p: Parameters) -> Outcome:
    """Partitions: time to make them, what they move, an epoch."""
    return _partitions(
        p, "Table 1", {"hash": "9.833 s an epoch, 2.87 s to cut", "metis": "5.295 s, 4264 s to cut"}
    )


@_placed
def fig8(p: Parameters) -> Outcome:
    """Partitions under pull, beside push-pull with none."""
    return _partitions(
        p, "Figure 8", {"hash": "3.85 times P3's epoch", "metis": "1.7 times P3's epoch"}, True
    )


def _partitions(p: Parameters, title: str, said: dict[str, str], push: bool = False) -> Outcome:
    ranks, width, hidden = only(p, "ranks", "features", "hidden")
    cuts = bench_partition(
        [p["graph"]],
        [ranks],
        [m for m in p["methods"] if m != "random"],
        PartitionOptions(),
        lambda parts: "default",
    )
    spent = {row["method"]: row["seconds"] for row in cuts}
    rows: list[Row] = []
    for method in p["methods"]:
        task = cache.Task(p["batch_size"], p["fanouts"], "sage", hidden, method)
        [row] = cache.bench_cache(p["graph"], width, ranks, [], task, p["engine"])
        rows.append(
            {
                "kind": MEASURED,
                "graph": p["graph"],
                **{key: row[key] for key in ("vertices", "arcs", "ranks")},
                "scheme": method,
                "cut_seconds": spent.get(method, 0.0),
                "megawords": row["words"] / 1e6,
                "words": row["words"],
                "epoch_seconds": row["seconds"] * row["batches"],
            }
        )
    if push:
        fed = next(row for row in _feed(p) if row["feed"].startswith("push"))
        batches = -(-round(0.6 * fed["vertices"]) // p["batch_size"])
        rows.append(
            {
                "kind": MEASURED,
                **{key: fed[key] for key in ("graph", "vertices", "arcs", "ranks")},
                "scheme": "push-pull, hash",
                "cut_seconds": 0.0,
                "megawords": fed["bytes"] / 4e6 * batches,
                "words": int(fed["bytes"] / 4 * batches),
                "epoch_seconds": fed["seconds"] * batches,
            }
        )
    compared = [
        Compared(
            f"{row['scheme']}: epoch, time to cut",
            said.get(row["scheme"], "not in it" if row["scheme"] != "push-pull, hash" else "1"),
            f"{row['epoch_seconds']:.3f} s, {row['cut_seconds']:.2f} s to cut, {row['megawords']:.2f} Mwords",
        )
        for row in rows
    ]
    panels = [
        Panel("an epoch", rows, "scheme", "epoch_seconds"),
        Panel("time to cut", rows, "scheme", "cut_seconds"),
        Panel("words of an epoch", rows, "scheme", "megawords"),
    ]
    return Outcome(
        rows,
        compared,
        figure_of(panels, f"P3, {title}"),
        ["weft has no vertex cuts: RandomVertexCut, GRID and 3D are not run"],
    )


def table3(p: Parameters) -> Outcome:
    """The data sets."""
    return sizes_table(SIZES, _SHOWN)


@_placed
def table4(p: Parameters) -> Outcome:
    """Four models: pull against push-pull."""
    rows = [row for model in p["models"] for row in _feed(p, model)]
    compared = [
        Compared(
            f"P3 over DGL, {model}",
            f"{min(TABLE4[model])} to {max(TABLE4[model])}" if model in TABLE4 else "-",
            _told(gain),
        )
        for model, gain in _gains(rows, "model").items()
    ]
    rows += [
        {"kind": PAPER, "graph": graph, "model": model, "speedup": gain}
        for model, gains in TABLE4.items()
        for graph, gain in zip(SIZES, gains, strict=True)
    ]
    shown = [row for row in rows if row["kind"] == MEASURED]
    return Outcome(
        rows,
        compared,
        figure_of(_panels(shown, "model"), "P3, Table 4", 2),
        ["DGL is not run: pull stands for it"],
    )


@_placed
def fig7(p: Parameters) -> Outcome:
    """Without sampling."""
    rows = [row for model in p["models"] for row in _feed(p, model, "all,all")]
    compared = [
        Compared(f"P3 over DGL without sampling, {model}", "6.45 to 7.69", _told(gain))
        for model, gain in _gains(rows, "model").items()
    ]
    return _outcome(rows, "model", compared, "Figure 7: without sampling")


@_placed
def fig9(p: Parameters) -> Outcome:
    """Deeper models."""
    rows = []
    for depth in p["layers"]:
        first, *others = p["fanouts"].split(",")
        fanouts = ",".join([first, *[others[0] if others else first] * (depth - 1)])
        rows += [row | {"layers": depth} for row in _feed(p, fanouts=fanouts)]
    compared = [
        Compared(
            f"P3 over DGL, {depth} layers", "up to 6.07 at 4" if depth == 4 else "less than at 4", _told(gain)
        )
        for depth, gain in _gains(rows, "layers").items()
    ]
    return _outcome(rows, "layers", compared, "Figure 9: layers")


@_placed
def fig10(p: Parameters) -> Outcome:
    """Wider features."""
    rows = _feed(p)
    said = {512: "4.77"}
    compared = [
        Compared(f"P3 over DGL, {width} features", said.get(width, "grows with the width"), _told(gain))
        for width, gain in _gains(rows, "features").items()
    ]
    return _outcome(rows, "features", compared, "Figure 10: features")


@_placed
def fig15(p: Parameters) -> Outcome:
    """Wider hidden layers: where push-pull stops to pay."""
    rows = _feed(p)
    found = feed.crossings([row | {"feed": row["feed"].split(" ")[0]} for row in rows])
    compared = [
        Compared(
            f"hidden width at which pull moves less, {row['features']} features, {row['ranks']} ranks",
            "close to the features' width",
            feed.finite(row["hidden"], max(p["hidden"])),
        )
        for row in found
    ]
    return _outcome(rows, "hidden", compared, "Figure 15: hidden width")


@_placed
def fig11(p: Parameters) -> Outcome:
    """With and without the pipeline."""
    rows = [row for on in (False, True) for row in _feed(p, pipeline=on) if row["feed"].startswith("push")]
    for row in rows:
        row["feed"] = "pipeline" if row["pipeline"] else "no pipeline"
    plain, piped = (next(r["seconds"] for r in rows if r["pipeline"] is on) for on in (False, True))
    compared = [Compared("gain by pipelining, seconds", "30 to 50 %", f"{plain / piped - 1:+.0%}")]
    return Outcome(
        rows,
        compared,
        figure_of([Panel("push-pull", rows, "ranks", "seconds", "feed")], "P3, Figure 11"),
        [
            "ranks of one machine share its cores: little to hide; weft bench pipeline joins the ranks of a "
            "job, and lab/hosts.py gives them links of a given bandwidth"
        ],
    )


def _fed(p: Parameters, store: Path, out: Path, feed: str, epochs: int) -> dict[str, Any]:
    """A run of GraphSAGE with this feed, evaluated at its end; the answer of `weft train --json`. Vertices
    are dealt by hash, as in the paper: `weft train` would else plan the strategy and the partition."""
    options = {
        "strategy": "1d", "partition": "hash", "model": "sage", "hidden": p["hidden"][0],
        "layers": p["fanouts"].count(",") + 1, "ranks": p["ranks"][0], "batch-size": p["batch_size"],
        "fanouts": p["fanouts"], "feed": feed, "epochs": epochs, "evaluate-every": epochs, "threads": 1,
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return trained(store, out, words, "threads" if p["engine"] == "threads" else "auto")


def _sized(p: Parameters, name: str, graph: Graph) -> Row:
    """What a row says of its size."""
    size = {"graph": name, "vertices": graph.num_nodes, "arcs": graph.num_arcs}
    return {"kind": MEASURED, **size, "ranks": p["ranks"][0]}


@_placed
def fig12(p: Parameters) -> Outcome:
    """How much of the time ranks compute (the paper: a GPU is busy)."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        loaded = furnished(p["graph"], p["features"][0])
        store = write_store(loaded, Path(folder) / "g.weft")
        for number, name in enumerate(("pull", "push-pull")):
            answer = _fed(p, store, Path(folder) / f"run{number}", name, 2)
            time = {kind: sum(each) / len(each) for kind, each in answer["time"].items()}
            busy = split_time(time)["computation"] / sum(time.values())
            rows.append({**_sized(p, p["graph"], loaded), "feed": name, "busy": busy, "time": time})
    said = {"pull": "20 % (DGL)", "push-pull": "85 %"}
    compared = [
        Compared(f"share of the time that a rank computes, {r['feed']}", said[r["feed"]], f"{r['busy']:.0%}")
        for r in rows
    ]
    return Outcome(
        rows,
        compared,
        figure_of([Panel("", rows, "feed", "busy", label="share of time computing")], "P3, Figure 12"),
        ["of CPU cores; a GPU's utilisation needs a GPU"],
    )


@_placed
def fig13(p: Parameters) -> Outcome:
    """Seeds a second over ranks."""
    rows = _feed(p)
    gains = {}
    for name in dict.fromkeys(row["feed"] for row in rows):
        mine = [row["seeds_per_second"] for row in rows if row["feed"] == name]
        gains[name] = mine[-1] / mine[0]
    compared = [
        Compared(
            f"seeds a second, {p['ranks'][-1]} ranks over {p['ranks'][0]}, {name}",
            "near linear" if name.startswith("push") else "about 1 (DGL)",
            f"{gain:.2f}",
        )
        for name, gain in gains.items()
    ]
    panel = Panel("", rows, "ranks", "seeds_per_second", "feed", "lines", "seeds a second")
    return Outcome(
        rows, compared, figure_of([panel], "P3, Figure 13"), ["DGL is not run: pull stands for it"]
    )


def fig14(p: Parameters) -> Outcome:
    """The same losses and accuracy by both feeds."""
    rows: list[Row] = []
    final = {}
    learn = at_hand(p["learn"], *p["instead"])
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        loaded = load(learn)
        loaded = loaded if loaded.train_mask is not None else split(loaded)
        store = write_store(loaded, Path(folder) / "g.weft")
        for number, name in enumerate(("pull", "push-pull")):
            answer = _fed(p, store, Path(folder) / f"run{number}", name, p["epochs"])
            rows += [
                {**_sized(p, learn, loaded), "feed": name, "epoch": e + 1, "loss": loss}
                for e, loss in enumerate(answer["loss"])
            ]
            final[name] = answer["test_accuracy"]
    both = [[r["loss"] for r in rows if r["feed"] == name] for name in final]
    apart = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(*both, strict=True))
    compared = [
        Compared(
            "test accuracy of pull and push-pull",
            "76.2 % both (OGB-Product, 51 epochs)",
            f"{final['pull']:.1%} and {final['push-pull']:.1%}",
        ),
        Compared("largest relative difference of losses", "the same iteration by iteration", f"{apart:.1e}"),
    ]
    panel = Panel("", rows, "epoch", "loss", "feed", "lines", "training loss")
    return Outcome(rows, compared, figure_of([panel], "P3, Figure 14"),
                   [] if learn == "ogbn-products" else [f"{learn}, not OGB-Product"])  # fmt: skip


@_placed
def fig16(p: Parameters) -> Outcome:
    """No sampling, a GCN, all vertices a step."""
    rows = _feed(p, "gcn", "all,all", batch_size=load(p["graph"]).num_nodes, batches=1)
    gain = _gains(rows, "model")["gcn"]
    return _outcome(
        rows,
        "model",
        [Compared("P3 over ROC, full batch", "up to 2.2", f"{_told(gain)} over pull, not ROC")],
        "Figure 16",
        "ROC is not run: its code needs Legion and GPUs",
    )


@_placed
def table5(p: Parameters) -> Outcome:
    """Copies of others' rows, over the room for them."""
    ranks, width, hidden = only(p, "ranks", "features", "hidden")
    task = cache.Task(p["batch_size"], p["fanouts"], "sage", hidden, "random")
    rows: list[Row] = [
        {"kind": MEASURED, "graph": p["graph"], **row}
        for row in cache.bench_cache(p["graph"], width, ranks, p["budgets"], task, p["engine"])
    ]
    plain = rows[0]
    compared = [
        Compared(
            f"room of {row['budget']} of the features: gain",
            "1.70 in seconds (4 of 4 partitions)",
            f"{plain['words'] / max(1, row['words']):.2f} in words, "
            f"{plain['seconds'] / row['seconds']:.2f} in seconds",
        )
        for row in rows[1:]
    ]
    panels = [
        Panel("words of an epoch", rows, "budget", "words"),
        Panel("time", rows, "budget", "seconds", label="seconds a batch"),
    ]
    return Outcome(
        rows,
        compared,
        figure_of(panels, "P3, Table 5: copies"),
        ["of rows of features under pull; weft keeps those that coming batches read"],
    )


P3 = Paper(
    "p3",
    "P3: Distributed Deep Graph Learning at Scale, OSDI 2021",
    (
        Item("fig1", "a two-layer GNN, a drawing", why="a drawing"),
        Item("fig2", "how frameworks train, a drawing", why="a drawing"),
        Item(
            "fig3",
            "a sampled computation graph, a drawing",
            why="a drawing; docs/algorithms/sampling.md has weft's",
        ),
        Item(
            "table1",
            "partitioning schemes: time to cut, epoch",
            40,
            table1,
            _SMALL | {"methods": ["hash", "metis", "hypergraph"]},
            _FULL,
            _NEEDS,
            data=("graph",),
        ),
        Item("fig4", "structure and features apart, a drawing", why="a drawing"),
        Item("fig5", "push-pull, a drawing", why="a drawing; docs/algorithms/push-pull.md has weft's"),
        Item("fig6", "the pipeline, a drawing", why="a drawing"),
        Item("table2", "the P-TAGS API", why="an API; docs/algorithms/ptags.md has weft's"),
        Item("table3", "data sets", 5, table3, needs="OGB's sets and LAW's UK graphs under $WEFT_DATA"),
        Item(
            "table4",
            "epochs of four models, pull and push-pull",
            90,
            table4,
            _SMALL | {"models": ["sgc", "gcn", "sage", "gat"]},
            _FULL,
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "fig7",
            "without sampling",
            60,
            fig7,
            _SMALL | {"models": ["gcn", "sage"]},
            _FULL,
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "fig8",
            "partitioning schemes beside push-pull",
            60,
            fig8,
            _SMALL | {"methods": ["hash", "metis", "hypergraph"]},
            _FULL,
            _NEEDS,
            data=("graph",),
        ),
        Item("fig9", "over layers", 60, fig9, _SMALL | {"layers": [2, 3, 4]}, _FULL, _NEEDS, data=("graph",)),
        Item(
            "fig10",
            "over features",
            60,
            fig10,
            _SMALL | {"features": [16, 128, 512]},
            _FULL | {"features": [16, 64, 128, 256, 512]},
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "table5",
            "copies of features",
            30,
            table5,
            _SMALL | {"budgets": ["5%", "20%", "50%"]},
            _FULL,
            _NEEDS,
            data=("graph",),
        ),
        Item("fig11", "with and without the pipeline", 30, fig11, _SMALL, _FULL, _NEEDS, data=("graph",)),
        Item("fig12", "how busy ranks are", 30, fig12, _SMALL, _FULL, _NEEDS, data=("graph",)),
        Item(
            "fig13",
            "seeds a second over ranks",
            45,
            fig13,
            _SMALL | {"ranks": [2, 4]},
            _FULL | {"ranks": [2, 4]},
            _NEEDS,
            data=("graph",),
        ),
        Item(
            "fig14",
            "accuracy",
            40,
            fig14,
            _SMALL | {"learn": "amazon_photo", "instead": ["sbm:nodes=3000,classes=8"], "epochs": 10},
            {"learn": "ogbn-products", "epochs": 51, "ranks": [4]},
            "ogbn-products under $WEFT_DATA",
            data=("learn",),
        ),
        Item(
            "fig15",
            "over hidden widths",
            60,
            fig15,
            _SMALL | {"hidden": [8, 32, 128]},
            _FULL | {"hidden": [16, 32, 64, 128, 256]},
            _NEEDS,
            data=("graph",),
        ),
        Item("fig16", "full batch, beside ROC", 40, fig16, _SMALL, _FULL, _NEEDS, data=("graph",)),
    ),
    _SETS,
)

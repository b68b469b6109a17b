"""What the papers' figures share: epochs over layouts, data sets at hand, PyG and DGL where they are."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import UserError
from ...graph import load
from ...graph.loading import GENERATORS, data_sets
from ..baselines import BASELINES
from ..epoch import bench_epoch
from ..ranks import bench_ranks
from .item import MEASURED, PAPER, Compared, Outcome, Parameters, Row
from .panels import Panel, figure_of

STACK = ("spmm", "dense", "other", "gather", "reduce", "grad", "waiting")
"""Kinds of time, computing first: `weft.train.watch` says what they are."""
COMPUTING = ("spmm", "dense", "sampling", "other")
"""All other kinds are phases of messages, and waiting for them."""
_PHASES = {
    "broadcast H": "gather", "broadcast A": "gather", "broadcast T": "gather", "pattern": "gather",
    "halo": "gather", "transpose": "gather", "complete": "gather", "sum T": "reduce", "weights": "grad",
    "outer": "grad",
}  # fmt: skip
"""A phase of the papers' own algorithms → the one of weft's that does the same, for one legend."""


def epochs_of(
    graph: str,
    layouts: Mapping[str, tuple[int, str, str]],
    layers: int,
    hidden: int,
    p: Parameters,
    more: Sequence[str] = (),
    name: str = "",
) -> list[Row]:
    """A row for each label → (ranks, strategy or a paper's own algorithm, partition): seconds of an epoch,
    where they went, words. `p` has epochs, rounds, hosts and engine.

    The papers' own algorithms run on this machine alone: with hosts they are left out.
    """
    layouts = {k: each for k, each in layouts.items() if not (p["hosts"] and each[1] in BASELINES)}
    asked = [(ranks, 1, strategy, partition) for ranks, strategy, partition in layouts.values()]
    extra = [*more, *(["--hosts", p["hosts"]] if p["hosts"] else [])]
    found = bench_ranks(
        graph, asked, layers, hidden, p["epochs"], p["rounds"], more=extra, engine=p["engine"]
    )
    rows = [
        {"kind": MEASURED, "graph": name or graph, "algorithm": label, **row}
        for label, row in zip(layouts, found, strict=True)
    ]
    for row in rows:
        time: dict[str, float] = {}
        for kind, seconds in row["time"].items():
            kind = _PHASES.get(kind, kind) if row["strategy"] in BASELINES else kind
            time[kind] = time.get(kind, 0.0) + seconds
        row["time"] = time
    return rows


def split_time(time: Mapping[str, float]) -> dict[str, float]:
    """The two parts that the papers draw, of seconds by kind.

    >>> split_time({"spmm": 2.0, "halo": 1.0, "waiting": 0.5})
    {'computation': 2.0, 'communication': 1.5}
    """
    computing = sum(seconds for kind, seconds in time.items() if kind in COMPUTING)
    return {"computation": computing, "communication": sum(time.values()) - computing}


OTHERS = {"pyg-csr": "PyG", "pyg-edges": "PyG", "dgl": "DGL"}
"""A contender of `weft bench epoch` → what pictures call it."""


def others_here(model: str = "gcn") -> list[str]:
    """Contenders that can be imported: DGL, which the papers measure, before PyG.

    >>> set(others_here()) <= set(OTHERS)
    True
    """
    pyg = "pyg-csr" if model in ("gcn", "sage") else "pyg-edges"
    found = {"dgl": "dgl", pyg: "torch_geometric"}
    return [name for name, package in found.items() if importlib.util.find_spec(package) is not None]


def against_others(
    graph: str, layers: int, hidden: int, epochs: int, rounds: int, size: Row, model: str = "gcn"
) -> list[Row]:
    """Rows of weft, DGL and PyG in one process each, in turn; of those that are installed. `size` is a row of
    the same graph."""
    found = bench_epoch(graph, [model], layers, hidden, 1, 0.0, 1, epochs, rounds, others_here(model))
    same = {key: size[key] for key in ("graph", "vertices", "arcs")}
    return [{"kind": MEASURED, **same, "ranks": 1, **row} for row in found["rows"]]


def sizes_table(sizes: Mapping[str, tuple[int, int]], shown: Mapping[str, str]) -> Outcome:
    """The paper's table of data sets beside those under $WEFT_DATA, which are read and counted.

    sizes   name → (vertices, arcs) as the paper prints them
    shown   name → the name under $WEFT_DATA
    """
    folder = os.environ.get("WEFT_DATA", "")
    here = data_sets(folder) if folder else {}
    rows: list[Row] = []
    compared, missing = [], []
    for name, (vertices, arcs) in sizes.items():
        rows.append({"kind": PAPER, "graph": name, "vertices": vertices, "arcs": arcs})
        key = shown.get(name, name).lower()
        if key not in here:
            missing.append(name)
            continue
        graph = load(key)
        rows.append({"kind": MEASURED, "graph": name, "vertices": graph.num_nodes, "arcs": graph.num_arcs})
        ours = f"{graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs"
        compared.append(Compared(name, f"{vertices:,} vertices, {arcs:,} edges", ours))
    notes = [f"not under $WEFT_DATA: {', '.join(missing)}. Try weft fetch NAME."] if missing else []
    panels = [Panel(key, rows, "graph", key, "kind", log=True) for key in ("vertices", "arcs")]
    return Outcome(rows, compared, figure_of(panels, "Data sets", 2), notes)


def at_hand(name: str, *instead: str) -> str:
    """A generator's graph, a file, or a data set where it lies under $WEFT_DATA; else the first of the others
    that is one of these, and the last where none is.

    >>> at_hand("karate", "er:nodes=9"), at_hand("none", "none too", "er:nodes=9")
    ('karate', 'er:nodes=9')
    """
    folder = os.environ.get("WEFT_DATA", "")
    sets = data_sets(folder) if folder else {}
    for each in (name, *instead):
        if each.partition(":")[0].lower() in GENERATORS or Path(each).is_file() or each.lower() in sets:
            return each
    return instead[-1]


def standing(name: str, graph: str) -> list[str]:
    """The note for a graph that `at_hand` gave in place of the one of this name."""
    return [] if graph == name else [f"{name} is not under $WEFT_DATA: {graph} stands for it"]


def only_here(graphs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of several graphs that are at hand, and the note for the others.

    >>> only_here(["karate", "er:nodes=9"])
    (['karate', 'er:nodes=9'], [])
    """
    here = [graph for graph in graphs if at_hand(graph, "") == graph]
    absent = ", ".join(graph for graph in graphs if graph not in here)
    return here, [f"{absent}: not under $WEFT_DATA, left out"] if absent else []


def ratio(rows: Sequence[Row], key: str, over: Mapping[str, object], under: Mapping[str, object]) -> float:
    """The value of the one row over that of the other.

    >>> ratio([{"a": 1, "t": 6}, {"a": 2, "t": 3}], "t", {"a": 1}, {"a": 2})
    2.0
    """

    def value(wanted: Mapping[str, object]) -> float:
        for row in rows:
            if all(row.get(k) == v for k, v in wanted.items()):
                return float(row[key])
        raise UserError(f"no row has {dict(wanted)}. Leave out --set, or keep what is compared.")

    return value(over) / value(under)


def named(specs: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Graph → what it is called in pictures."""
    return {spec: names.get(spec, spec) for spec in specs}

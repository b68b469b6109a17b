"""What the papers' figures share: epochs over layouts, data sets at hand, PyG where it is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence

from ...errors import UserError
from ...graph import load
from ...graph.loading import data_sets
from ..epoch import bench_epoch
from ..ranks import bench_ranks
from .item import MEASURED, PAPER, Compared, Outcome, Row
from .panels import Panel, figure_of

STACK = ("spmm", "dense", "other", "gather", "reduce", "grad", "waiting")
"""Kinds of time, computing first: `weft.train.watch` says what they are."""
MOVING = (
    "gather",
    "reduce",
    "split",
    "join",
    "grad",
    "loss",
    "waiting",
    "halo",
    "pull",
    "push",
    "ask",
    "errors",
)


def epochs_of(
    graph: str,
    layouts: Mapping[str, tuple[int, str, str]],
    layers: int,
    hidden: int,
    epochs: int,
    rounds: int,
    hosts: str = "",
    more: Sequence[str] = (),
    name: str = "",
) -> list[Row]:
    """A row for each label → (ranks, strategy, partition): seconds of an epoch, where they went, words."""
    asked = [(ranks, 1, strategy, partition) for ranks, strategy, partition in layouts.values()]
    extra = [*more, *(["--hosts", hosts] if hosts else [])]
    found = bench_ranks(graph, asked, layers, hidden, epochs, rounds, more=extra)
    return [
        {"kind": MEASURED, "graph": name or graph, "algorithm": label, **row}
        for label, row in zip(layouts, found, strict=True)
    ]


def moving(row: Row) -> float:
    """Seconds of an epoch in which a rank sends, receives or waits."""
    return float(sum(seconds for kind, seconds in row["time"].items() if kind in MOVING))


def split_time(row: Row) -> dict[str, float]:
    """The two parts that the papers draw."""
    total = sum(row["time"].values())
    return {"computation": total - moving(row), "communication": moving(row)}


def pyg_here() -> bool:
    """PyG joins where it can be imported."""
    return importlib.util.find_spec("torch_geometric") is not None


def against_pyg(
    graph: str, layers: int, hidden: int, epochs: int, rounds: int, model: str = "gcn"
) -> list[Row]:
    """Rows of weft and of PyG in one process each, in turn; of weft alone where PyG is not installed."""
    against = ["pyg-csr" if model in ("gcn", "sage") else "pyg-edges"] if pyg_here() else []
    found = bench_epoch(graph, [model], layers, hidden, 1, 0.0, 1, epochs, rounds, against)
    return [{"kind": MEASURED, "graph": graph, "ranks": 1, **row} for row in found["rows"]]


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


def at_hand(name: str, instead: str) -> str:
    """The data set where it lies under $WEFT_DATA, else a generated graph."""
    folder = os.environ.get("WEFT_DATA", "")
    return name if folder and name.lower() in data_sets(folder) else instead


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

"""weft info: what a graph is, or what state a run is in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .options import Parser, add_arc_columns, arc_columns

_EXAMPLES = """  weft info g.weft
  weft info soc.txt.gz --json
  weft info ratings.csv --arc-columns weight,time
  weft info kronecker:scale=12,degree=16
  weft info runs/mine                    ended, or died in epoch 191 and resumable"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "info", "GRAPH | RUN [OPTIONS]",
        "Describe a graph: size, degrees, features, labels, splits. Or a run: its state and its best result.",
        _EXAMPLES,
    )  # fmt: skip
    parser.add_argument(
        "graph", metavar="GRAPH", help="a generator, data set, file or store; or a run folder"
    )
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    add_arc_columns(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..graph import load
    from ..train.run import is_run

    run = Path(parsed.graph)
    if is_run(run):
        facts = describe_run(run)
    else:
        facts = describe(load(parsed.graph, parsed.data, arc_columns(parsed.arc_columns)))
    if parsed.json:
        print(json.dumps(facts))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name:<{width}}  {_readable(value)}")
    return 0


def describe_run(path: Path) -> dict[str, Any]:
    """The state of a run and what it came to, as plain values."""
    from ..train.run import read_summary, state_of

    state = state_of(path)
    facts: dict[str, Any] = {
        "run": state.line(), "epochs": state.epochs, "resumable": state.resumable,
        "checkpoint": state.checkpoint or None,
    }  # fmt: skip
    summary = read_summary(path) or {}
    scores = {
        name: value
        for name, value in summary.items()
        if name.startswith(("train_", "val_", "test_")) and isinstance(value, float)
    }
    best = summary.get("best_epoch") if summary else _best_so_far(path)
    return facts | {"best_epoch": best} | scores


def _best_so_far(run: Path) -> int | None:
    """Of a run that did not end, from its newest checkpoint."""
    from ..train.checkpoint import Checkpoint, Torn, checkpoints

    for path in checkpoints(run):
        with contextlib.suppress(Torn):
            return int(Checkpoint(path).facts["best_epoch"]) or None
    return None


def describe(graph: Any) -> dict[str, Any]:
    """The facts of a graph as plain values.

    >>> from weft.graph import load
    >>> describe(load("karate"))["arcs"]
    156
    """
    degrees = graph.indptr.diff()
    n = graph.num_nodes
    facts: dict[str, Any] = {
        "name": graph.name,
        "vertices": n,
        "arcs": graph.num_arcs,
        "symmetric": graph.is_symmetric,
        "self_loops": int((graph.indices == graph.rows).sum()),
        "weighted": graph.weights is not None,
        "in_degree_mean": float(degrees.double().mean()) if n else 0.0,
        "in_degree_max": int(degrees.max()) if n else 0,
        "without_in_arcs": int((degrees == 0).sum()),
        "index_type": str(graph.indices.dtype).removeprefix("torch."),
        "features": graph.num_features,
        "classes": graph.num_classes,
        "multilabel": graph.multilabel,
    }
    for split in ("train", "val", "test"):
        mask = getattr(graph, f"{split}_mask")
        facts[split] = None if mask is None else int(mask.sum())
    for key in ("val_pairs", "val_negatives", "test_pairs", "test_negatives"):
        if getattr(graph, key) is not None:
            facts[key] = len(getattr(graph, key))
    facts["original_ids"] = graph.ids is not None
    return facts | _named(graph)


def _named(graph: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Type and shape of each named array, by kind; without kinds that the graph has none of."""

    def kind(x: Any) -> dict[str, Any]:
        return {"dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}

    both = {"arc_data": graph.arc_data, "vertex_data": graph.vertex_data}
    return {key: {name: kind(x) for name, x in arrays.items()} for key, arrays in both.items() if arrays}


def carried(graph: Any) -> str:
    """The named arrays of a graph, for the line that a command ends with; empty where it has none.

    >>> import torch
    >>> from weft.graph import load
    >>> carried(load("karate").replace(arc_data={"time": torch.zeros(156, 2)}))
    ', arc data time float32 156x2'
    """
    return "".join(f", {key.replace('_', ' ')} {_readable(kinds)}" for key, kinds in _named(graph).items())


def _readable(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        arrays = ((name, kind["dtype"], "x".join(map(str, kind["shape"]))) for name, kind in value.items())
        return ", ".join(" ".join(words) for words in arrays)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

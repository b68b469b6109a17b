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

_LARGE = 1 << 28
"""Bytes of a store from which on `info` holds nothing of its size; whoever trains looks at the values."""


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
    from ..graph import load, open_store
    from ..graph.loading import locate
    from ..train.run import is_run

    run = Path(parsed.graph)
    columns = arc_columns(parsed.arc_columns)
    if is_run(run):
        facts = describe_run(run)
    elif not columns and (found := locate(run, parsed.data)) and _is_large_store(found[0]):
        facts = describe_store(open_store(found[0], verify=False))
    else:
        facts = describe(load(parsed.graph, parsed.data, columns))
    if parsed.json:
        print(json.dumps(facts))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name:<{width}}  {_readable(value, 4 if is_run(run) else 2)}")
    return 0


def _is_large_store(path: Path) -> bool:
    """Whether it is described some rows at a time. A smaller one is loaded, and its values are checked."""
    return path.suffix == ".weft" and path.is_file() and path.stat().st_size > _LARGE


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
    splits = ("train", "val", "test")
    masks = {split: mask for split in splits if (mask := getattr(graph, f"{split}_mask")) is not None}
    pairs = {key: len(x) for key in _PAIRS if (x := getattr(graph, key)) is not None}
    counted = {
        "symmetric": graph.is_symmetric,
        "self_loops": int((graph.indices == graph.rows).sum()),
        "in_degree_max": int(degrees.max()) if n else 0,
        "without_in_arcs": int((degrees == 0).sum()),
    } | {split: int(mask.sum()) for split, mask in masks.items()}
    index = str(graph.indices.dtype).removeprefix("torch.")
    has = [key for key in ("weights", "ids") if getattr(graph, key) is not None]
    return _facts(graph, counted, index, has, graph.multilabel, pairs) | _named(graph)


def describe_store(store: Any) -> dict[str, Any]:
    """The same of a store, some rows at a time: nothing of its size is held.

    Whether A = Aᵀ is told by sums over arcs of 64 random bits, of (row, column, weight) and of the arc
    reversed: they are equal where it is, and elsewhere but once in 2^64.

    >>> import tempfile
    >>> from weft.graph import load, open_store, write_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(write_store(load("karate"), Path(folder) / "club.weft"))
    ...     describe_store(store) == describe(load("karate"))
    True
    """
    import numpy as np

    if not store.checks_itself:
        store.verify()
    n, schema = store.num_nodes, store.schema
    counted: dict[str, Any] = dict.fromkeys(("self_loops", "in_degree_max", "without_in_arcs"), 0)
    splits = [split for split in ("train", "val", "test") if store.has(f"{split}_mask")]
    counted |= dict.fromkeys(splits, 0)
    forward = backward = 0
    step = max(1, min(1 << 20, n * (1 << 22) // max(1, store.num_arcs)))
    for lo in range(0, n, step):
        part = store.rows(lo, min(n, lo + step), only=("indices", "weights", *(f"{s}_mask" for s in splits)))
        degrees = part.indptr.diff().numpy()
        row = np.repeat(part.rows.numpy(), degrees).astype(np.uint64)
        column = part.indices.numpy().astype(np.uint64)
        weight = np.uint64(0) if part.weights is None else _bits(part.weights, np)
        counted["self_loops"] += int((row == column).sum())
        counted["in_degree_max"] = max(counted["in_degree_max"], int(degrees.max(initial=0)))
        counted["without_in_arcs"] += int((degrees == 0).sum())
        for split in splits:
            counted[split] += int(getattr(part, f"{split}_mask").sum())
        forward += int(_mixed(row, column, weight, np).sum(dtype=np.uint64))
        backward += int(_mixed(column, row, weight, np).sum(dtype=np.uint64))
    counted["symmetric"] = forward % 2**64 == backward % 2**64
    pairs = {key: store.num_pairs(key) for key in _PAIRS if store.has(key)}
    has = [key for key in ("weights", "ids") if store.has(key)]
    several = store.has("labels") and len(schema["labels"][1]) == 2
    index = str(schema["indices"][0]).removeprefix("torch.")
    named: dict[str, dict[str, Any]] = {"arc_data": {}, "vertex_data": {}}
    for key, (kind, shape) in schema.items():
        of, _, name = key.partition("_")
        if of in ("arc", "vertex"):
            named[f"{of}_data"][name] = {"dtype": str(kind).removeprefix("torch."), "shape": list(shape)}
    return _facts(store, counted, index, has, several, pairs) | {k: v for k, v in named.items() if v}


def _bits(weights: Any, np: Any) -> Any:
    """Weights as whole numbers, 0 and -0 alike."""
    return (weights.double() + 0.0).numpy().view(np.uint64)


def _mixed(a: Any, b: Any, c: Any, np: Any) -> Any:
    """64 bits that depend on all bits of all three (SplitMix64's rounds)."""
    x = a * np.uint64(0x9E3779B97F4A7C15)
    for other in (b, c):
        x = x + other * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x8CB92BA72F3D8DD7)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x


_PAIRS = ("val_pairs", "val_negatives", "test_pairs", "test_negatives")


def _facts(
    graph: Any, counted: dict[str, Any], index: str, has: list[str], several: bool, pairs: dict[str, int]
) -> dict[str, Any]:
    """In the order in which they are told; `graph` has sizes and a name."""
    n = graph.num_nodes
    facts = {
        "name": graph.name,
        "vertices": n,
        "arcs": graph.num_arcs,
        "symmetric": counted["symmetric"],
        "self_loops": counted["self_loops"],
        "weighted": "weights" in has,
        "in_degree_mean": graph.num_arcs / n if n else 0.0,
        "in_degree_max": counted["in_degree_max"],
        "without_in_arcs": counted["without_in_arcs"],
        "index_type": index,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "multilabel": several,
    }
    facts |= {split: counted.get(split) for split in ("train", "val", "test")}
    return facts | pairs | {"original_ids": "ids" in has}


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


def _readable(value: Any, places: int = 2) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        arrays = ((name, kind["dtype"], "x".join(map(str, kind["shape"]))) for name, kind in value.items())
        return ", ".join(" ".join(words) for words in arrays)
    if isinstance(value, float):
        return f"{value:,.{places}f}"  # scores have four places, as weft train prints them
    return f"{value:,}" if isinstance(value, int) else str(value)

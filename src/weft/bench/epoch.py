"""Whole training epochs of weft and of PyG, each in a process of its own, taken in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown
from ..graph import load, write_store
from .dgl import MODELS as DGL

CONTENDERS = ("weft", "pyg-csr", "pyg-edges", "accelerate", "dgl")
"""weft; PyG's layers on a torch CSR adjacency; on `edge_index`; so after `weft.accelerate(model)`; DGL's."""
MODELS = ("gcn", "sage", "gat", "gat+arcs", "gatv2", "transformer", "gine", "resgated", "pna", "rgcn")
"""Models that both have, with the arc features and kinds of the graph; GAT reads them as gat+arcs."""
_CSR = ("gcn", "sage")
"""Those whose layer in PyG takes a CSR matrix; the others want `edge_index`."""


def model_of(name: str) -> str:
    """The model's name in the registry.

    >>> model_of("gat+arcs")
    'gat'
    """
    return name.removesuffix("+arcs")


def check_contenders(models: list[str], against: list[str]) -> None:
    """Refuse what cannot be compared."""
    for name in against:
        if name not in CONTENDERS[1:]:
            raise unknown("contender", name, ["none", "pyg", *CONTENDERS[1:]])
    for model in models:
        if model not in MODELS:
            raise unknown("model for this benchmark", model, list(MODELS))
        if model not in _CSR and "pyg-csr" in against:
            raise UserError(f"PyG's layer of {model} takes no CSR matrix. Use --against pyg-edges.")
        if model not in DGL and "dgl" in against:
            raise UserError(f"weft's adapter of DGL has no {model}. Use --model {' or '.join(DGL)}.")


def stored(graph: str, folder: str, models: list[str]) -> Path:
    """The graph as a store in this folder, for the contenders' processes."""
    loaded = load(graph)
    if not loaded.num_features or loaded.labels is None or loaded.train_mask is None:
        raise UserError(f"{graph} lacks features, labels or a train mask. Add features=128,classes=40.")
    if "gat+arcs" in models and "features" not in loaded.arc_data:
        raise UserError(f"{graph} has no arc features for gat+arcs. Add arc_features=16.")
    return write_store(loaded, Path(folder) / "graph.weft")


def bench_epoch(
    graph: str, models: list[str], layers: int, hidden: int, heads: int, dropout: float, threads: int,
    epochs: int, rounds: int, against: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Median seconds of an epoch and peak memory per model and contender, all in turn.

    `ratio` is to weft's epoch of the same model, `to_first` of weft's epoch to weft's of the first model.
    """
    check_contenders(models, against)
    names = [(model, contender) for model in models for contender in ("weft", *against)]
    answers: dict[tuple[str, str], list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        store = stored(graph, folder, models)
        for _ in range(rounds):
            # Every model of one contender, then the next contender: an epoch right after a process that
            # gave back most of the machine's memory is slower, whoever runs it.
            for model, contender in sorted(names, key=lambda name: CONTENDERS.index(name[1])):
                task = {"name": contender, "store": str(store), "model": model, "layers": layers,
                        "hidden": hidden, "heads": heads, "dropout": dropout, "threads": threads,
                        "epochs": epochs}  # fmt: skip
                answers[model, contender].append(in_a_process(task))
    times = {name: [s for answer in found for s in answer["seconds"]] for name, found in answers.items()}
    ours = {model: statistics.median(times[model, "weft"]) for model in models}
    return {
        "graph": graph, "models": models, "layers": layers, "hidden": hidden, "threads": threads,
        "rows": [
            {
                "model": model, "contender": contender, "seconds": statistics.median(seconds),
                "ratio": statistics.median(seconds) / ours[model],
                "to_first": ours[model] / ours[models[0]] if contender == "weft" else None,
                "fastest": min(seconds), "slowest": max(seconds), **memory_of(answers[model, contender]),
            }
            for (model, contender), seconds in times.items()
        ],
    }  # fmt: skip


def memory_of(answers: list[dict[str, Any]]) -> dict[str, int]:
    """The peak of all turns, and how far it lies above what the imports alone take."""
    peak = max(answer["peak_rss_bytes"] for answer in answers)
    return {"peak_rss_bytes": peak, "above_idle_bytes": peak - answers[-1]["idle_rss_bytes"]}


def in_a_process(task: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the task's epochs and peak memory, from `weft.bench.contender`."""
    command = [sys.executable, "-m", "weft.bench.contender", json.dumps(task)]
    environment = os.environ | {"OMP_NUM_THREADS": str(task["threads"])}
    if task["name"].startswith(("pyg", "dgl")):
        environment["THP_MEM_ALLOC_ENABLE"] = "0"  # as torch comes: weft alone changes it
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1].rstrip(".")
        if "torch_geometric" in last:
            raise UserError("PyG is not installed. Use: pip install 'weft[pyg]'.")
        if "No module named 'dgl'" in last:
            raise UserError("DGL is not installed, and no part of weft. Leave out --against dgl.")
        raise UserError(f"the contender {task['name']} failed: {last}. Try a smaller graph.")
    return json.loads(done.stdout)

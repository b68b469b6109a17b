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

CONTENDERS = ("weft", "pyg-csr", "pyg-edges", "accelerate")
"""weft; PyG's layers on a torch CSR adjacency; on `edge_index`; the last after `weft.accelerate(model)`."""
MODELS = ("gcn", "sage", "gat", "gatv2", "transformer", "gine", "resgated", "pna", "rgcn")
"""Models that both have; arc features and kinds are those that the graph brings."""
_CSR = ("gcn", "sage")
"""Those whose layer in PyG takes a CSR matrix; the others want `edge_index`."""


def check_contenders(model: str, against: list[str]) -> None:
    """Refuse what cannot be compared."""
    for name in against:
        if name not in CONTENDERS[1:]:
            raise unknown("contender", name, ["pyg", *CONTENDERS[1:]])
    if model not in MODELS:
        raise unknown("model for this benchmark", model, list(MODELS))
    if model not in _CSR and "pyg-csr" in against:
        raise UserError(f"PyG's layer of {model} takes no CSR matrix. Use --against pyg-edges.")


def bench_epoch(
    graph: str, model: str, layers: int, hidden: int, heads: int, dropout: float, threads: int, epochs: int,
    rounds: int, against: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Median seconds of an epoch and peak memory per contender, with the ratios to weft."""
    check_contenders(model, against)
    seconds: dict[str, list[float]] = {name: [] for name in ("weft", *against)}
    peak: dict[str, int] = dict.fromkeys(seconds, 0)
    idle: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "graph.weft"
        loaded = load(graph)
        if not loaded.num_features or loaded.labels is None or loaded.train_mask is None:
            raise UserError(f"{graph} lacks features, labels or a train mask. Add features=128,classes=40.")
        write_store(loaded, store)
        for _ in range(rounds):
            for name in seconds:
                task = {"name": name, "store": str(store), "model": model, "layers": layers, "hidden": hidden,
                        "heads": heads, "dropout": dropout, "threads": threads, "epochs": epochs}  # fmt: skip
                answer = _in_a_process(task)
                seconds[name] += answer["seconds"]
                peak[name] = max(peak[name], answer["peak_rss_bytes"])
                idle[name] = answer["idle_rss_bytes"]
    ours = statistics.median(seconds["weft"])
    return {
        "graph": graph, "model": model, "layers": layers, "hidden": hidden, "threads": threads,
        "rows": [
            {
                "contender": name, "seconds": statistics.median(times),
                "ratio": statistics.median(times) / ours, "fastest": min(times), "slowest": max(times),
                "peak_rss_bytes": peak[name], "above_idle_bytes": peak[name] - idle[name],
            }
            for name, times in seconds.items()
        ],
    }  # fmt: skip


def _in_a_process(task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "weft.bench.contender", json.dumps(task)]
    environment = os.environ | {"OMP_NUM_THREADS": str(task["threads"])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1].rstrip(".")
        if "torch_geometric" in last:
            raise UserError("PyG is not installed. Use: pip install 'weft[pyg]'.")
        raise UserError(f"the contender {task['name']} failed: {last}. Try a smaller graph.")
    return json.loads(done.stdout)

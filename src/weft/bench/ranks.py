"""One training run on 1 rank and on several, taken in turn: epochs, ratios, peak memory per rank."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..graph import load, write_store


def bench_ranks(
    graph: str, layouts: list[tuple[int, int, str]], layers: int, hidden: int, epochs: int, rounds: int
) -> list[dict[str, Any]]:
    """A row per layout (ranks, threads a rank, strategy): seconds of an epoch, how many times faster than
    the first layout, and the peak memory of the largest rank above that of an idle one."""
    seconds: dict[tuple[int, int, str], list[float]] = {layout: [] for layout in layouts}
    memory: dict[tuple[int, int, str], int] = {}
    idle = 0
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(load(graph), Path(folder) / "graph.weft")
        for round_ in range(rounds):
            for number, layout in enumerate(layouts):
                answer = _train(
                    store, layout, layers, hidden, epochs, Path(folder) / f"run-{round_}-{number}"
                )
                seconds[layout].append(answer["epoch_seconds"])
                memory[layout] = max(memory.get(layout, 0), *answer["peak_rss_bytes"])
                # A rank that weft starts has everything imported and nothing loaded when it begins.
                idle = min([*answer["idle_rss_bytes"], idle or answer["idle_rss_bytes"][0]])
    medians = {layout: statistics.median(times) for layout, times in seconds.items()}
    base, most = medians[layouts[0]], memory[layouts[0]] - idle
    return [
        {
            "ranks": layout[0], "threads": layout[1], "strategy": layout[2], "seconds": medians[layout],
            "speedup": base / medians[layout], "above_idle_bytes": memory[layout] - idle,
            "memory_ratio": (memory[layout] - idle) / most,
        }
        for layout in layouts
    ]  # fmt: skip


def _train(
    store: Path, layout: tuple[int, int, str], layers: int, hidden: int, epochs: int, out: Path
) -> dict[str, Any]:
    ranks, threads, strategy = layout
    command = [
        sys.executable, "-m", "weft", "train", str(store), "--json", "--out", str(out),
        "--strategy", strategy,
        "--ranks", str(ranks), "--threads", str(threads), "--layers", str(layers), "--hidden", str(hidden),
        "--dropout", "0", "--epochs", str(epochs), "--evaluate-every", str(epochs),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"{ranks} ranks of {strategy} failed: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer

"""The columns of Demirci et al.'s Table 2: volume and messages of partitions, relative to a random one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..graph import load
from ..graph.loading import data_sets
from ..parallel.assign import bare
from ..partition import PartitionOptions, check_method, measure, partition_graph
from ..partition.best import CUTS
from .pictures import check_drawable, new_figure, save

FIGURES = ("volume_average", "volume_max", "messages_average", "messages_max")
"""The paper's columns, each per part and for one propagation."""


def snap_graphs(folder: str | Path) -> list[str]:
    """The data sets of SNAP under `folder`, and cnr-2000 where it is there."""
    found = data_sets(folder)
    return [name for name, path in sorted(found.items()) if path.parent.name == "snap" or name == "cnr-2000"]


def bench_partition(
    names: Sequence[str],
    parts: Sequence[int],
    methods: Sequence[str],
    options: PartitionOptions,
    preset: Callable[[int], str],
    data: str | None = None,
) -> list[dict[str, Any]]:
    """A row per graph, number of parts and method: the figures, and their ratios to random's.

    Self-loops are added and directions kept, as the paper does. `best` begins with the very cuts that are
    shown beside it, where they are, so that it can be compared with them; their seconds are in its own.
    """
    rows = []
    for name in names:
        graph = bare(load(name, data)).with_self_loops()
        for count in parts:
            if count > graph.num_nodes:
                raise UserError(f"{count} parts are more than {name}'s {graph.num_nodes} vertices.")
            base: dict[str, Any] = {}
            kept: dict[str, Tensor] = {}
            spent: dict[str, tuple[float, float]] = {}
            for method in ("random", *methods):
                options.preset = preset(count)
                check_method(method, count, graph.num_nodes, options)
                started, worked = time.perf_counter(), time.process_time()
                made = partition_graph(graph, count, method, replace(options, cuts=dict(kept)))
                seconds, cpu = time.perf_counter() - started, time.process_time() - worked
                kept[method], spent[method] = made, (seconds, cpu)
                if method == "best":
                    used = [spent[name] for name in CUTS if name in spent]
                    seconds += sum(each for each, _ in used)
                    cpu += sum(each for _, each in used)
                row: dict[str, Any] = {
                    "graph": name, "vertices": graph.num_nodes, "arcs": graph.num_arcs,
                    "parts": count, "method": method,
                }  # fmt: skip
                row |= {"seconds": seconds, "cpu_seconds": cpu}
                row |= measure(graph, made, count).as_dict()
                base = base or row
                row |= {f"{key}_ratio": row[key] / base[key] if base[key] else 1.0 for key in FIGURES}
                rows.append(row)
    return rows


def draw_partition(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Ratios to random against the number of parts: a line of panels a figure, a panel a graph."""
    check_drawable(path)
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    methods = [m for m in dict.fromkeys(row["method"] for row in rows) if m != "random"]
    shown = {
        "volume_average": "average volume",
        "volume_max": "maximum volume",
        "messages_average": "average messages",
    }
    # A line of panels a figure; of few graphs the other way round, so that it is no tower.
    few = len(graphs) < len(shown)
    across, down = (len(shown), len(graphs)) if few else (len(graphs), len(shown))
    figure = new_figure(3.1 * across + 0.6, 2.5 * down + 0.9)
    grid = figure.subplots(down, across, squeeze=False, sharex=True)
    panels = grid.T if few else grid
    for line, (key, title) in zip(panels, shown.items(), strict=True):
        for panel, graph in zip(line, graphs, strict=True):
            for number, method in enumerate(methods):
                mine = [row for row in rows if (row["graph"], row["method"]) == (graph, method)]
                panel.plot(
                    [row["parts"] for row in mine], [row[f"{key}_ratio"] for row in mine],
                    marker="os^v"[number % 4], color=f"C{number}", label=method,
                )  # fmt: skip
            panel.axhline(1, color="grey", linewidth=1, linestyle="--")
            ticks = sorted({row["parts"] for row in rows})
            panel.set_xscale("log", base=2)
            panel.set_xticks(ticks, map(str, ticks))
            panel.set_ylim(0, 1.05 * max(1.0, panel.get_ylim()[1]))
            panel.grid(alpha=0.3)
            panel.set_title(f"{graph}: {title}" if few else graph if key == "volume_average" else "")
        if not few:
            line[0].set_ylabel(title)
    for panel in grid[-1]:
        panel.set_xlabel("parts")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False,
                  title="relative to a random partition (dashed)")  # fmt: skip
    save(figure, path)

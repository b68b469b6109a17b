"""Peak memory over the width of the hidden layers and over arcs: what grows with arcs × width.

    peak = a + b · arcs + c · width + d · arcs · width          at one number of vertices, by least squares

d is in bytes per arc and column. Whoever holds one [arcs, width] array of float32 has d = 4.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from ..graph import open_store
from .epoch import check_contenders, in_a_process, memory_of, stored
from .pictures import check_drawable, new_figure, save


def bench_width(
    graphs: list[str], models: list[str], layers: int, widths: list[int], threads: int, against: list[str]
) -> dict[str, Any]:
    """A row per graph, model, contender and width; and d of each model and contender."""
    check_contenders(models, against)
    rows = []
    for graph in graphs:
        with tempfile.TemporaryDirectory() as folder:
            store = stored(graph, folder, models)
            opened = open_store(store, verify=False)
            for model in models:
                for contender in ("weft", *against):
                    for width in widths:
                        task = {"name": contender, "store": str(store), "model": model, "layers": layers,
                                "hidden": width, "heads": 1, "dropout": 0.0, "threads": threads,
                                "epochs": 1}  # fmt: skip
                        answer = in_a_process(task)
                        rows.append(
                            {
                                "model": model, "contender": contender, "vertices": opened.num_nodes,
                                "arcs": opened.num_arcs, "width": width, "seconds": answer["seconds"][0],
                                **memory_of([answer]),
                            }
                        )  # fmt: skip
    return {"graphs": graphs, "layers": layers, "rows": rows, "growth": growth(rows)}


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """d of each model and contender, where there are two widths and two numbers of arcs at least.

    >>> rows = [{"model": "m", "contender": "weft", "arcs": a, "width": w,
    ...          "above_idle_bytes": 1000 + 8 * a + 50 * w + 4 * a * w} for a in (10, 30) for w in (2, 3, 5)]
    >>> round(growth(rows)[0]["bytes_per_arc_and_column"], 6)
    4.0
    """
    found = []
    for name in dict.fromkeys((r["model"], r["contender"]) for r in rows):
        mine = [r for r in rows if (r["model"], r["contender"]) == name]
        arcs, width, bytes_ = (
            np.array([float(r[key]) for r in mine]) for key in ("arcs", "width", "above_idle_bytes")
        )
        if len(set(arcs)) < 2 or len(set(width)) < 2:
            continue
        terms = np.stack([np.ones_like(arcs), arcs, width, arcs * width], 1)
        scale = terms.max(0)
        d = float(np.linalg.lstsq(terms / scale, bytes_, rcond=None)[0][3] / scale[3])
        found.append({"model": name[0], "contender": name[1], "bytes_per_arc_and_column": d})
    return found


def draw(result: dict[str, Any], path: str) -> None:
    """Peak above idle over width, a panel a model, a line a graph; dashed: one float32 per arc and column."""
    check_drawable(path)
    rows = result["rows"]
    models = list(dict.fromkeys(r["model"] for r in rows))
    figure = new_figure(3.4 * len(models) + 0.6, 4.0)
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    marks = {"weft": "o", "pyg-edges": "s", "pyg-csr": "^"}
    for panel, model in zip(panels, models, strict=True):
        for colour, arcs in enumerate(sorted({r["arcs"] for r in rows})):
            for contender, mark in marks.items():
                mine = [
                    r for r in rows
                    if (r["model"], r["contender"], r["arcs"]) == (model, contender, arcs)
                ]  # fmt: skip
                if not mine:
                    continue
                x = [r["width"] for r in mine]
                y = [r["above_idle_bytes"] / 2**20 for r in mine]
                label = f"{contender}, {arcs / 1e6:.1f} M arcs"
                panel.plot(x, y, marker=mark, color=f"C{colour}", linewidth=1.2, label=label)
                if contender == "weft":
                    one = [y[0] + (w - x[0]) * arcs * 4 / 2**20 for w in x]
                    panel.plot(x, one, "--", color=f"C{colour}", linewidth=0.9, alpha=0.6)
        panel.set(title=model, xlabel="hidden width")
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("peak above idle, MB (dashed: + one number per arc and column)")
    panels[-1].legend(fontsize=8)
    save(figure, path)

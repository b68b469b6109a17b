"""Peak memory over the width of the hidden layers and over arcs: what grows with arcs × width.

    peak = a + b · arcs + c · width + d · arcs · width          at one number of vertices, by least squares

d is in bytes per arc and column. Whoever holds one [arcs, width] array of float32 has d = 4.
"""

from __future__ import annotations

import math
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import open_store
from .epoch import check_contenders, in_a_process, memory_of, stored
from .pictures import check_drawable, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = {"weft": ("o", "-"), "pyg-edges": ("s", "-."), "pyg-csr": ("^", ":")}
"""Of each contender's line."""


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
    save(picture(result), path)


def picture(result: dict[str, Any]) -> Figure:
    """The same, not yet in a file: three panels a line, one legend below all of them."""
    from matplotlib.lines import Line2D

    rows = result["rows"]
    models = list(dict.fromkeys(r["model"] for r in rows))
    columns = min(3, len(models))
    lines = math.ceil(len(models) / columns)
    figure = new_figure(max(6.4, 3.2 * columns + 0.6), 2.7 * lines + 1.6)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, model in zip(panels, models, strict=False):
        for colour, arcs in enumerate(sorted({r["arcs"] for r in rows})):
            for contender, (mark, style) in _MARKS.items():
                mine = [
                    r for r in rows
                    if (r["model"], r["contender"], r["arcs"]) == (model, contender, arcs)
                ]  # fmt: skip
                if not mine:
                    continue
                x = [r["width"] for r in mine]
                y = [r["above_idle_bytes"] / 1e6 for r in mine]
                label = f"{contender}, {_many(arcs)} arcs"
                panel.plot(x, y, style, marker=mark, markersize=4, color=f"C{colour}", lw=1.4, label=label)
                if contender == "weft":
                    one = [y[0] + 4 * (w - x[0]) * arcs / 1e6 for w in x]
                    panel.plot(x, one, "--", color=f"C{colour}", lw=0.9, alpha=0.6, label="_")
        panel.set_title(model, fontsize=10)
        panel.set_xticks(sorted({r["width"] for r in rows}))
        panel.tick_params(labelsize=8, labelbottom=True)
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0)
    for panel in panels[len(models) :]:
        panel.set_axis_off()
    vertices = ", ".join(f"{n:,}" for n in dict.fromkeys(r["vertices"] for r in rows))
    figure.suptitle(f"Peak memory of training: {vertices} vertices, {result['layers']} layers", fontsize=11)
    for k in range(len(models)):
        if k + columns >= len(models):  # the lowest of its column
            panels[k].set_xlabel("hidden width (columns)", fontsize=9)
        if k % columns == 0:
            panels[k].set_ylabel("peak above idle (MB)", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    dashed = Line2D([], [], linestyle="--", color="0.4", lw=0.9, label="one more float32 an arc and column")
    labels.append(str(dashed.get_label()))
    ncols = 2 if columns < 3 else 4
    figure.legend([*handles, dashed], labels, loc="outside lower center", ncols=ncols, fontsize=8)
    return figure


def _many(count: int) -> str:
    """A count as a label has it.

    >>> _many(900), _many(52_428), _many(1_048_576)
    ('900', '52 k', '1.05 M')
    """
    if count < 1000:
        return str(count)
    return f"{count / 1e3:.0f} k" if count < 999_500 else f"{count / 1e6:.2f} M"

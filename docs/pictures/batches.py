"""Draw the pictures of docs/algorithms/sampling.md and push-pull.md: python docs/pictures/batches.py

The feed.png beside them is made by: weft bench feed --plot docs/pictures/feed.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

HERE = Path(__file__).parent
OWN, READ, PART, LINE = "#f28e2b", "#a9cdea", "#b5dfad", "#555555"
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "weft", "font.size": 9}


def box(axes: Axes, x: float, y: float, w: float, h: float, colour: str, text: str = "") -> None:
    axes.add_patch(Rectangle((x, y), w, h, facecolor=colour, edgecolor=LINE, linewidth=0.8))
    axes.text(x + w / 2, y + h / 2, text, ha="center", va="center")


def arrow(
    axes: Axes, a: tuple[float, float], b: tuple[float, float], colour: str = LINE, **more: object
) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": colour, "linewidth": 0.9, **more}
    axes.add_patch(FancyArrowPatch(a, b, **style))  # type: ignore[arg-type]


def sampling(axes: Axes) -> None:
    """Seeds, two hops, and the blocks between."""
    layers = [
        ([2.0, 3.0], "seeds", OWN),
        ([0.8, 1.6, 2.4, 3.2, 4.0], "sources of hop 1 = targets of hop 2", READ),
        ([0.2 + 0.55 * k for k in range(9)], "sources of hop 2: their features are read", PART),
    ]
    for depth, (places, name, colour) in enumerate(layers):
        y = 2.4 - 1.1 * depth
        for k, x in enumerate(places):
            first = depth and k < len(layers[depth - 1][0])
            axes.plot([x], [y], "o", markersize=11, markerfacecolor=colour, markeredgecolor=LINE)
            if first:  # the targets come first among the sources
                axes.plot([x], [y], "o", markersize=5, color=LINE)
        axes.text(5.1, y, name, va="center")
    arcs = [
        [(0, 1), (0, 2), (1, 2), (1, 4), (1, 3)],
        [(0, 1), (0, 5), (1, 6), (2, 5), (2, 7), (3, 8), (4, 8), (4, 0)],
    ]
    for depth, pairs in enumerate(arcs):
        for target, source in pairs:
            a, b = layers[depth + 1][0][source], layers[depth][0][target]
            arrow(axes, (a, 1.42 - 1.1 * depth), (b, 2.28 - 1.1 * depth), linewidth=0.7)
    axes.text(-0.1, 1.85, "block 2\n(25 a row)", ha="right", va="center")
    axes.text(-0.1, 0.75, "block 1\n(10 a row)", ha="right", va="center")
    axes.text(
        2.4, -0.25, "a dot: the vertex is also a target; targets stand first, each source once", ha="center"
    )
    axes.set(xlim=(-1.2, 8.2), ylim=(-0.45, 2.75))


def push_pull(axes: Axes) -> None:
    """Three ranks: columns of X, rows of W₁, and what travels for the batch of rank 0."""
    for rank in range(3):
        x = 3.3 * rank
        axes.text(x + 1.3, 4.55, f"rank {rank}", ha="center", weight="bold")
        box(axes, x, 2.9, 1.2, 1.4, "white")
        axes.add_patch(
            Rectangle((x + 0.4 * rank, 2.9), 0.4, 1.4, facecolor=PART, edgecolor=LINE, linewidth=0.8)
        )
        axes.text(x + 0.6, 4.36, "X: columns", ha="center", va="bottom", fontsize=8)
        box(axes, x + 1.5, 2.9, 0.8, 1.2, "white")
        axes.add_patch(
            Rectangle((x + 1.5, 3.7 - 0.4 * rank), 0.8, 0.4, facecolor=PART, edgecolor=LINE, linewidth=0.8)
        )
        axes.text(x + 1.9, 4.15, "W₁: rows", ha="center", va="bottom", fontsize=8)
        box(axes, x + 0.2, 1.75, 2.0, 0.6, READ, "B₁ X[:, C] W₁[C]")
        arrow(axes, (x + 0.6, 2.9), (x + 0.9, 2.37))
        arrow(axes, (x + 1.9, 2.9), (x + 1.5, 2.37))
        if rank:
            arrow(axes, (x + 1.2, 1.75), (1.9 + 0.2 * rank, 0.87), connectionstyle="arc3,rad=-0.12")
    box(axes, 0.2, 0.3, 2.0, 0.55, OWN, "Σ, bias, ReLU, …, loss")
    arrow(axes, (1.2, 1.75), (1.2, 0.87))
    axes.text(3.4, 0.45, "pull: partial sums, added up", ha="left", va="center")
    axes.text(3.4, 0.12, "push before: the targets of block 1", ha="left", va="center")
    axes.text(3.4, -0.21, "push after: the error, to all ranks (zeros stay)", ha="left", va="center")
    axes.text(1.2, 0.08, "the batch's owner", ha="center", va="center", fontsize=8)
    axes.set(xlim=(-0.2, 9.6), ylim=(-0.45, 4.9))


def pipeline(axes: Axes) -> None:
    """Slots of the schedule: four phases of four batches."""
    names = ["begin", "forward", "backward", "finish"]
    colours = [READ, PART, "#f7c99b", OWN]
    for slot in range(7):
        axes.text(slot + 0.5, 4.15, f"slot {slot}", ha="center", va="bottom")
        for phase in range(4):
            batch = slot - phase
            if batch >= 0:
                box(axes, slot + 0.04, 3.1 - phase, 0.92, 0.85, colours[phase], str(batch))
                if phase == 3:
                    axes.text(slot + 0.96, -0.14, f"w{batch + 1}", ha="center", va="top", fontsize=8)
    for phase, name in enumerate(names):
        axes.text(-0.15, 3.5 - phase, name, ha="right", va="center")
    axes.text(-0.15, -0.14, "after the update", ha="right", va="top", fontsize=8)
    axes.set(xlim=(-1.6, 7.2), ylim=(-0.6, 4.6))


def main() -> None:
    for name, draw, size in (
        ("sampling", sampling, (8.6, 3.2)),
        ("push-pull", push_pull, (8.8, 4.4)),
        ("pipeline", pipeline, (7.2, 3.6)),
    ):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_axis_off()
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

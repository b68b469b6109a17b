"""Draw semiring.svg and ptags.svg: python docs/pictures/semiring.py

How a sum over any ⊕ is laid out: rows of about one length side by side, halves combined with halves.
Which half of a P-TAGS layer runs where, under push-pull.
"""

from __future__ import annotations

from draw import HERE, LINE, OWN, PART, READ
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

ROWS = [("i", 5, OWN), ("k", 4, PART), ("l", 5, READ)]
"""Rows of one group: name, arcs, colour; padded to 5."""


def cells(axes: Axes, x: float, y: float, heights: list[tuple[int, str]], size: int) -> None:
    """Columns of `size` places, of which the first are filled."""
    for column, (count, colour) in enumerate(heights):
        for place in range(size):
            face = colour if place < count else "white"
            axes.add_patch(
                Rectangle(
                    (x + 0.5 * column, y - 0.3 * (place + 1)), 0.46, 0.26, facecolor=face, edgecolor=LINE,
                    linewidth=0.6, linestyle="-" if place < count else ":",
                )
            )  # fmt: skip


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": LINE})
    axes.text(
        (start[0] + end[0]) / 2, max(start[1], end[1]) + 0.06, text, ha="center", va="bottom", fontsize=8
    )


def tree() -> None:
    figure = Figure(figsize=(8.2, 2.4))
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.96))
    for k, (name, count, colour) in enumerate(ROWS):
        for e in range(count):
            axes.add_patch(
                Rectangle(
                    (0.32 * e, -0.55 * k - 0.3), 0.28, 0.26, facecolor=colour, edgecolor=LINE, linewidth=0.6
                )
            )
        axes.text(-0.1, -0.55 * k - 0.17, f"row {name}", ha="right", va="center")
    axes.text(0.8, 0.1, "arcs of A, row by row", ha="center", va="bottom")
    arrow(axes, (1.75, -0.7), (2.75, -0.7), "messages\nm = a ⊗ h")
    heights = [(count, colour) for _, count, colour in ROWS]
    cells(axes, 2.95, 0.05, heights, 5)
    axes.text(3.7, 0.1, "[size, k], padded with 0", ha="center", va="bottom")
    arrow(axes, (4.55, -0.7), (5.25, -0.7), "halves ⊕\nhalves")
    cells(axes, 5.35, -0.1, [(2, colour) for _, _, colour in ROWS], 2)
    cells(axes, 5.35, -0.9, [(min(1, count - 4), colour) for _, count, colour in ROWS], 1)
    axes.text(6.1, 0.1, "the odd one waits", ha="center", va="bottom")
    arrow(axes, (6.95, -0.7), (7.45, -0.7), "⊕")
    cells(axes, 7.55, -0.4, [(1, colour) for _, _, colour in ROWS], 1)
    axes.text(8.3, -0.3, "y", ha="center", va="bottom")
    axes.set(xlim=(-0.8, 9.1), ylim=(-1.75, 0.5))
    axes.axis("off")
    figure.savefig(HERE / "semiring.svg", metadata={"Date": None})


def ptags() -> None:
    figure = Figure(figsize=(8.2, 2.6))
    axes = figure.add_axes((0.01, 0.12, 0.98, 0.86))
    steps = ["scatter", "gather", "transform"]
    for rank in range(3):
        y = -0.75 * rank
        axes.text(-0.1, y + 0.2, f"rank {rank}\ncolumns C{rank}", ha="right", va="center", fontsize=8)
        for k, step in enumerate(steps):
            colour = READ if k < 2 else PART
            axes.add_patch(
                FancyBboxPatch((1.45 * k, y), 1.15, 0.4, "round,pad=0.03", facecolor=colour, edgecolor=LINE)
            )
            axes.text(1.45 * k + 0.575, y + 0.2, step, ha="center", va="center")
            if k:
                axes.annotate(
                    "", (1.45 * k - 0.03, y + 0.2), (1.45 * k - 0.26, y + 0.2),
                    arrowprops={"arrowstyle": "->", "color": LINE},
                )  # fmt: skip
        axes.annotate(
            "", (5.3, -0.55), (4.1, y + 0.2), arrowprops={"arrowstyle": "->", "color": LINE, "linewidth": 1.2}
        )
    axes.text(4.75, 0.2, "sync: sum or max", ha="center", va="bottom")
    axes.add_patch(FancyBboxPatch((5.4, -0.75), 1.15, 0.4, "round,pad=0.03", facecolor=OWN, edgecolor=LINE))
    axes.text(5.975, -0.55, "apply(v, t)", ha="center", va="center")
    axes.text(5.975, -0.9, "whole rows, at the\nbatch's owner", ha="center", va="top", fontsize=8)
    axes.set(xlim=(-1.0, 6.9), ylim=(-1.75, 0.65))
    axes.axis("off")
    keys = [
        Patch(facecolor=READ, label="entry by entry, on its columns"),
        Patch(facecolor=PART, label="partial: a share of t"),
        Patch(facecolor=OWN, label="whole"),
    ]
    figure.legend(handles=keys, loc="lower center", ncols=3, frameon=False)
    figure.savefig(HERE / "ptags.svg", metadata={"Date": None})


if __name__ == "__main__":
    tree()
    ptags()

"""Draw attention.svg: python docs/pictures/attention.py

One rank of a 3 × 3 grid: the block of Ψ that it computes and never holds, which rows come and go.
"""

from __future__ import annotations

from draw import HERE, LINE, OWN, PART, READ
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

SIDE, ROW, COLUMN = 3, 1, 2
"""The grid's side, and the rank's place."""


def matrix(axes: Axes, x: float, width: float, name: str, parts: dict[tuple[float, float], str]) -> None:
    """An upright matrix [n × w] from x; parts: (first row, rows) in ninths → colour."""
    for (first, rows), colour in parts.items():
        axes.add_patch(Rectangle((x, -(first + rows) / 9), width, rows / 9, facecolor=colour, linewidth=0))
    for p in range(1, 9):
        axes.plot([x, x + width], [-p / 9] * 2, color=LINE, linewidth=0.3)
    axes.add_patch(Rectangle((x, -1), width, 1, fill=False, edgecolor=LINE, linewidth=0.9))
    axes.text(x + width / 2, 0.05, name, ha="center", va="bottom")


def main() -> None:
    figure = Figure(figsize=(8.2, 3.0))
    axes = figure.add_axes((0.01, 0.12, 0.98, 0.86))
    # Vertices lie by (i, k): row slab i is ninths 3i … 3i + 2, column slab k the ninths k, k + 3, k + 6.
    mine = 3 * ROW + COLUMN
    slab = {(3 * ROW, 3): READ, (mine, 1): OWN}
    near = {(3 * i + COLUMN, 1): READ for i in range(SIDE)} | {(mine, 1): OWN}
    matrix(axes, 0.0, 0.3, "u, or Q", slab)
    for i in range(SIDE):
        block = (1.0 + (3 * i + COLUMN) / 9, -(3 * ROW + 3) / 9)
        axes.add_patch(Rectangle(block, 1 / 9, 1 / 3, facecolor=OWN, linewidth=0))
    for p in range(1, 9):
        axes.plot([1.0, 2.0], [-p / 9] * 2, color=LINE, linewidth=0.3)
        axes.plot([1.0 + p / 9] * 2, [0, -1], color=LINE, linewidth=0.3)
    axes.add_patch(Rectangle((1.0, -1), 1, 1, fill=False, edgecolor=LINE, linewidth=0.9))
    axes.text(1.5, 0.05, "Ψ = softmax(A ∘ virtual)  [n × n]", ha="center", va="bottom")
    matrix(axes, 2.7, 0.3, "v, or K", near)
    matrix(axes, 3.3, 0.5, "X  [n × w]", near)
    matrix(axes, 4.5, 0.5, "Y = Ψ X", {(3 * ROW, 3): PART, (mine, 1): OWN})
    axes.annotate("", (0.95, -0.5), (0.35, -0.5), arrowprops={"arrowstyle": "->", "color": LINE})
    axes.text(0.65, -0.47, "gather\nalong inner", ha="center", va="bottom")
    axes.annotate("", (2.05, -0.5), (2.65, -0.5), arrowprops={"arrowstyle": "->", "color": LINE})
    axes.text(2.35, -0.47, "gather\nalong row", ha="center", va="bottom")
    axes.annotate("", (4.45, -0.5), (3.85, -0.5), arrowprops={"arrowstyle": "->", "color": LINE})
    axes.text(4.15, -0.47, "sums and\nmaxima merge\nalong inner", ha="center", va="bottom")
    axes.set(xlim=(-0.1, 5.1), ylim=(-1.1, 0.25))
    axes.set_aspect("equal")
    axes.axis("off")
    keys = [
        Patch(facecolor=OWN, label="its own; of Ψ a row of a block at a time"),
        Patch(facecolor=READ, label="what it reads of others"),
        Patch(facecolor=PART, label="what it computes for others"),
    ]
    figure.legend(handles=keys, loc="lower center", ncols=3, frameon=False)
    figure.savefig(HERE / "attention.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

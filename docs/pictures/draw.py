"""Draw the pictures of docs/grid.md and docs/algorithms: python docs/pictures/draw.py

Each shows the box of work cut by a grid, one rank's part of it, and that rank's part of Y = A·H.
The words.png beside them is made by: weft bench words --plot docs/pictures/words.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon, Rectangle

from weft.parallel import Grid

HERE = Path(__file__).parent
OWN, READ, PART, LINE = "#f28e2b", "#a9cdea", "#b5dfad", "#555555"
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "weft", "font.size": 9}

PICTURES = {
    "grid": (Grid(3, 2, 2), False),
    "1d": (Grid(4, 1, 1), False),
    "halo": (Grid(4, 1, 1), True),
    "1.5d": (Grid(4, 2, 1), False),
    "a-stationary": (Grid(3, 3, 1), False),
    "2d": (Grid(3, 1, 3), False),
    "3d": (Grid(2, 2, 2), False),
    "feature": (Grid(1, 1, 4), False),
}
READS = {1: [0.2, 0.7], 2: [0.45], 3: [0.1, 0.35, 0.8]}
"""Halo: where in each other rank's stripe a row is read."""


def box(axes: Axes, grid: Grid) -> None:
    """The cuboid of rows × inner × features with its cuts; the rank (0, last, 0) filled."""

    def at(inner: float, row: float, feature: float) -> tuple[float, float]:
        return inner + 0.42 * feature, -row + 0.36 * feature

    def face(corners: list[tuple[float, float, float]], colour: str) -> None:
        axes.add_patch(Polygon([at(*c) for c in corners], facecolor=colour, edgecolor=LINE, linewidth=0.7))

    r, k, f = grid.shape
    mine = 0, k - 1, 0
    for i in range(r):
        for j in range(k):
            x, y = (j / k, (j + 1) / k), (i / r, (i + 1) / r)
            colour = OWN if (i, j, 0) == mine else "white"
            face([(x[0], y[0], 0), (x[1], y[0], 0), (x[1], y[1], 0), (x[0], y[1], 0)], colour)
    for j in range(k):
        for g in range(f):
            x, z = (j / k, (j + 1) / k), (g / f, (g + 1) / f)
            colour = OWN if (0, j, g) == mine else "#f4f4f4"
            face([(x[0], 0, z[0]), (x[1], 0, z[0]), (x[1], 0, z[1]), (x[0], 0, z[1])], colour)
    for i in range(r):
        for g in range(f):
            y, z = (i / r, (i + 1) / r), (g / f, (g + 1) / f)
            colour = OWN if (i, k - 1, g) == mine else "#e6e6e6"
            face([(1, y[0], z[0]), (1, y[1], z[0]), (1, y[1], z[1]), (1, y[0], z[1])], colour)
    axes.text(-0.06, -0.5, "n rows", rotation=90, ha="right", va="center")
    axes.text(0.5, -1.06, "n inner vertices", ha="center", va="top")
    axes.text(1.26, -0.86, "f features", ha="left", va="top")
    axes.text(0.7, 0.48, f"grid {grid}: P = {grid.size}", ha="center", va="bottom")
    axes.set(xlim=(-0.25, 1.75), ylim=(-1.25, 0.6))


def stripe(axes: Axes, p: float, ranks: int, x: float, width: float, colour: str, height: float = 1) -> None:
    """Row stripe p of `ranks`, from x, so wide."""
    axes.add_patch(
        Rectangle((x, -(p + height) / ranks), width, height / ranks, facecolor=colour, linewidth=0)
    )


def frame(axes: Axes, ranks: int, width: float, name: str, columns: int) -> None:
    """The outline of a matrix, a thin line between ranks, a dashed one between blocks of columns."""
    for p in range(1, ranks):
        axes.plot([0, width], [-p / ranks] * 2, color=LINE, linewidth=0.3)
    for c in range(1, columns):
        axes.plot([c * width / columns] * 2, [0, -1], color=LINE, linewidth=0.5, linestyle=":")
    axes.add_patch(Rectangle((0, -1), width, 1, fill=False, edgecolor=LINE, linewidth=0.9))
    axes.text(width / 2, 0.05, name, ha="center", va="bottom")
    axes.set(xlim=(-0.15, width + 0.15), ylim=(-1.35, 0.3))


def matrices(axes: list[Axes], grid: Grid, sparse: bool) -> None:
    """A, H and Y with the share of rank (0, last, 0): what it keeps, reads, writes and owns."""
    a, h, y = axes
    ranks, me = grid.size, grid.rank(0, grid.inner - 1, 0)
    slab = [p for p in range(ranks) if grid.place(p)[0] == 0]
    inner = [p for p in range(ranks) if grid.place(p)[1] == grid.inner - 1]
    width = 0.5
    block = width / grid.feature
    for p in slab:
        for q in inner:
            stripe(a, p, ranks, q / ranks, 1 / ranks, OWN)
    for q in range(1, ranks):
        a.plot([q / ranks] * 2, [0, -1], color=LINE, linewidth=0.3)
    for q in inner:
        if not sparse:
            stripe(h, q, ranks, 0, block, READ)
        for place in READS.get(q, []) if sparse else []:
            stripe(h, q + place, ranks, 0, block, READ, 0.12)
    for p in slab:
        stripe(y, p, ranks, 0, block, PART)
    for panel in (h, y):
        stripe(panel, me, ranks, 0, width, OWN)
    frame(a, ranks, 1, "A  [n × n]", 1)
    frame(h, ranks, width, "H  [n × f]", grid.feature)
    frame(y, ranks, width, "Y  [n × f]", grid.feature)


def draw(name: str, grid: Grid, sparse: bool) -> None:
    figure = Figure(figsize=(8.2, 2.9))
    left = figure.add_axes((0.0, 0.12, 0.34, 0.86))
    panels = [
        figure.add_axes(place)
        for place in ((0.34, 0.12, 0.27, 0.86), (0.61, 0.12, 0.18, 0.86), (0.79, 0.12, 0.18, 0.86))
    ]
    box(left, grid)
    matrices(panels, grid, sparse)
    for axes in (left, *panels):
        axes.set_aspect("equal")
        axes.axis("off")
    keys = [
        Patch(facecolor=OWN, label="its own: a block of A, complete rows at rest"),
        Patch(facecolor=READ, label="what it reads of others"),
    ]
    if grid.inner > 1 or grid.feature > 1:
        keys.append(Patch(facecolor=PART, label="what it computes for others"))
    figure.legend(handles=keys, loc="lower center", ncols=3, frameon=False)
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    for name, (grid, sparse) in PICTURES.items():
        draw(name, grid, sparse)

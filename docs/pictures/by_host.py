"""Draw by-host.svg: python docs/pictures/by_host.py

Two hosts of two ranks: how one rank's block gets to the ranks of the other host, directly and by host.
"""

from __future__ import annotations

from draw import HERE, LINE, OWN, PART, READ
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

HIGH = 0.5
"""Of a block."""
NEEDS = {2: [0.0, 0.14, 0.28], 3: [0.14, 0.28, 0.42]}
"""Where in rank 0's block each rank of the other host reads a row."""


def rank(axes: Axes, number: int, x: float, y: float, rows: list[float], colour: str, whole: bool) -> None:
    """A rank with rows of rank 0's block: all of them its own, or those that it got."""
    axes.add_patch(Rectangle((x, y), 0.42, HIGH, facecolor=OWN if whole else "white", edgecolor=LINE))
    for row in [] if whole else rows:
        axes.add_patch(Rectangle((x, y + HIGH - row - 0.075), 0.42, 0.07, facecolor=colour, linewidth=0))
    axes.text(x + 0.21, y + HIGH + 0.04, f"rank {number}", ha="center", va="bottom")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str, bend: float) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle=f"arc3,rad={bend}", arrowstyle="->", mutation_scale=12, color=LINE
        )
    )
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    axes.text(x, y - bend * 0.8 + 0.03, text, ha="center", va="bottom", fontsize=8)


def panel(axes: Axes, x: float, by_host: bool) -> None:
    for host, left in (("host A", x), ("host B", x + 2.0)):
        axes.add_patch(
            Rectangle((left, -0.12), 0.7, 1.86, facecolor="#f4f4f4", edgecolor=LINE, linewidth=0.7)
        )
        axes.text(left + 0.35, 1.79, host, ha="center", va="bottom")
    union = sorted({*NEEDS[2], *NEEDS[3]})
    rank(axes, 0, x + 0.14, 1.0, [], OWN, True)
    rank(axes, 1, x + 0.14, 0.08, [], OWN, False)
    rank(axes, 2, x + 2.14, 1.0, union if by_host else NEEDS[2], READ, False)
    rank(axes, 3, x + 2.14, 0.08, NEEDS[3], PART if by_host else READ, False)
    if by_host:
        arrow(axes, (x + 0.58, 1.25), (x + 2.12, 1.25), f"U(0, B): {len(union)} rows, once", 0.0)
        arrow(axes, (x + 2.58, 1.1), (x + 2.58, 0.4), "", -0.5)
        axes.text(x + 2.76, 0.78, f"{len(NEEDS[3])} passed on", ha="left", va="center", fontsize=8)
    else:
        arrow(axes, (x + 0.58, 1.25), (x + 2.12, 1.25), f"need of 2: {len(NEEDS[2])} rows", 0.0)
        arrow(axes, (x + 0.58, 1.1), (x + 2.12, 0.4), "", 0.0)
        axes.text(x + 1.2, 0.42, f"need of 3: {len(NEEDS[3])} rows", ha="center", va="bottom", fontsize=8)
    axes.text(x + 1.35, -0.2, "by host" if by_host else "directly", ha="center", va="top")


def main() -> None:
    figure = Figure(figsize=(8.2, 2.9))
    axes = figure.add_axes((0.01, 0.1, 0.98, 0.88))
    panel(axes, 0.0, False)
    panel(axes, 3.4, True)
    axes.set(xlim=(-0.1, 6.8), ylim=(-0.42, 2.05))
    axes.set_aspect("equal")
    axes.axis("off")
    keys = [
        Patch(facecolor=OWN, label="rank 0's rows"),
        Patch(facecolor=READ, label="come over the link"),
        Patch(facecolor=PART, label="are passed on within the host"),
    ]
    figure.legend(handles=keys, loc="lower center", ncols=3, frameon=False)
    figure.savefig(HERE / "by-host.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

"""Draw the pictures of docs/algorithms/subgraph.md, link.md and arcs.md: python docs/pictures/graphs.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

HERE = Path(__file__).parent
OWN, READ, PART, LINE, PALE = "#f28e2b", "#4f8fc4", "#b5dfad", "#555555", "#c8c8c8"
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "weft", "font.size": 9}

Point = tuple[float, float]


def dot(axes: Axes, at: Point, colour: str, text: str = "", edge: str = LINE) -> None:
    axes.plot(
        [at[0]], [at[1]], "o", markersize=15, markerfacecolor=colour, markeredgecolor=edge, zorder=3
    )  # fmt: skip
    axes.text(*at, text, ha="center", va="center", fontsize=8, zorder=4)


def arrow(axes: Axes, a: Point, b: Point, colour: str = LINE, **more: object) -> None:
    style = {
        "arrowstyle": "-|>", "mutation_scale": 9, "color": colour, "linewidth": 1.0, "shrinkA": 8,
        "shrinkB": 8, **more,
    }  # fmt: skip
    axes.add_patch(FancyArrowPatch(a, b, **style))  # type: ignore[arg-type]


def box(axes: Axes, x: float, y: float, w: float, h: float, colour: str, text: str = "") -> None:
    axes.add_patch(Rectangle((x, y), w, h, facecolor=colour, edgecolor=LINE, linewidth=0.8, zorder=2))
    axes.text(x + w / 2, y + h / 2, text, ha="center", va="center", zorder=4)


def subgraph(axes: Axes) -> None:
    """Three ranks, the vertices that a step draws, and the rows that move for it."""
    places: dict[int, Point] = {
        0: (0.6, 2.3), 1: (1.6, 1.6), 2: (0.7, 0.8), 3: (1.9, 2.5), 4: (3.5, 2.4), 5: (4.5, 1.7),
        6: (3.4, 1.1), 7: (4.7, 0.7), 8: (6.2, 2.4), 9: (7.3, 1.9), 10: (6.3, 1.0), 11: (7.4, 0.7),
    }  # fmt: skip
    drawn = {0, 1, 4, 6, 9, 10}
    arcs = [(0, 1), (1, 4), (6, 1), (4, 6), (10, 6), (9, 10), (2, 1), (3, 4), (5, 8), (7, 10), (8, 9),
            (11, 9), (3, 0), (5, 6), (2, 6)]  # fmt: skip
    for rank in range(3):
        x = 0.1 + 2.8 * rank
        axes.add_patch(Rectangle((x, 0.35), 2.5, 2.6, facecolor="#f4f4f4", edgecolor=PALE))
        axes.text(x + 1.25, 3.05, f"rank {rank}", ha="center", weight="bold")
    for source, target in arcs:
        both = source in drawn and target in drawn
        moves = both and source // 4 != target // 4
        colour = READ if moves else LINE if both else PALE
        arrow(axes, places[source], places[target], colour, linewidth=2.0 if moves else 1.1 if both else 0.7)
    for vertex, at in places.items():
        inside = vertex in drawn
        dot(axes, at, OWN if inside else "white", str(vertex), LINE if inside else PALE)
    dot(axes, (0.4, -0.05), OWN)
    axes.text(0.65, -0.05, "V′: every rank draws the same, by counter", va="center")
    arrow(axes, (4.2, -0.05), (5.0, -0.05), READ, linewidth=2.0, shrinkA=0, shrinkB=0)
    axes.text(5.1, -0.05, "an arc of E′ between ranks: one row moves", va="center")
    axes.set(xlim=(-0.1, 8.5), ylim=(-0.35, 3.35))


def link(axes: Axes) -> None:
    """True and false pairs, the encoder's rows, the decoder's scores."""
    places: dict[str, Point] = {
        "u": (0.5, 2.2),
        "v": (1.9, 2.5),
        "a": (0.4, 0.9),
        "b": (1.4, 1.2),
        "w": (2.3, 1.7),
    }
    for a, b in (("u", "b"), ("b", "a"), ("b", "w"), ("v", "b")):
        axes.plot(*zip(places[a], places[b], strict=True), color=LINE, linewidth=1.1, zorder=1)
    for other, colour in (("v", OWN), ("w", READ)):
        axes.plot(
            *zip(places["u"], places[other], strict=True), color=colour, linewidth=2.0,
            linestyle="-" if other == "v" else (0, (3, 2)), zorder=1,
        )  # fmt: skip
    for name, at in places.items():
        dot(axes, at, "white", name)
    axes.text(1.3, 3.0, "training arcs alone", ha="center")
    arrow(axes, (2.55, 1.7), (3.35, 1.7), shrinkA=0, shrinkB=0)
    axes.text(2.95, 1.85, "encoder", ha="center", fontsize=8)
    rows = {"u": 2.35, "v": 1.95, "w": 1.15}
    box(axes, 3.45, 0.75, 0.9, 2.0, "white")
    for name, y in rows.items():
        box(axes, 3.45, y, 0.9, 0.3, PART, f"H[{name}]")
    axes.text(3.9, 3.0, "H: a row a vertex", ha="center")
    for y, colour, text in ((2.0, OWN, "s(u, v)"), (0.85, READ, "s(u, w)")):
        box(axes, 5.6, y, 1.0, 0.5, colour, text)
    for name, y in (("u", 2.3), ("v", 2.2), ("u", 1.15), ("w", 1.05)):
        arrow(axes, (4.4, rows[name] + 0.15), (5.55, y), shrinkA=0, shrinkB=0)
    axes.text(6.1, 3.0, "decoder: pairs' scores", ha="center")
    axes.text(6.75, 2.25, "true pair: up", va="center")
    axes.text(6.75, 1.1, "false pair, drawn\nby counter: down", va="center")
    axes.text(
        4.2,
        0.25,
        "a pair lies with the owner of one end; the other end's row comes there, its gradient goes back",
        ha="center",
    )
    axes.set(xlim=(0, 8.4), ylim=(0.05, 3.3))


def arcs(axes: Axes) -> None:
    """Data of arcs stay where their rows are; rows of h come."""
    for x, wide, name in ((0.1, 2.3, "rank 1"), (2.7, 5.6, "rank 0")):
        axes.add_patch(Rectangle((x, 0.35), wide, 2.6, facecolor="#f4f4f4", edgecolor=PALE))
        axes.text(x + wide / 2, 3.05, name, ha="center", weight="bold")
    target, sources = (4.6, 1.65), [(1.2, 2.4), (1.2, 0.95), (3.3, 0.75)]
    for k, at in enumerate(sources):
        away = at[0] < 2.6
        arrow(axes, at, target, READ if away else LINE, linewidth=2.0 if away else 1.1)
        dot(axes, at, "white", f"j{'₁₂₃'[k]}")
        x, y = (3.3, target[1] + (at[1] - target[1]) * 0.38) if away else (3.95, 1.2)
        box(axes, x - 0.2, y - 0.14, 0.4, 0.28, PART, "f")
    dot(axes, target, OWN, "i")
    box(axes, 5.2, 2.05, 2.9, 0.5, "white", "s = score(h_i, h_j, f_ij)")
    box(axes, 5.2, 1.4, 2.9, 0.5, "white", "softmax over the arcs into i")
    box(axes, 5.2, 0.75, 2.9, 0.5, OWN, "y_i = Σ of messages(h_j, f_ij)")
    arrow(axes, (0.2, -0.05), (0.9, -0.05), READ, linewidth=2.0, shrinkA=0, shrinkB=0)
    axes.text(1.0, -0.05, "a row h_j moves", va="center")
    box(axes, 3.2, -0.19, 0.4, 0.28, PART, "f")
    axes.text(3.7, -0.05, "f_ij: with the row of A that it belongs to, it never moves", va="center")
    axes.set(xlim=(0, 8.5), ylim=(-0.35, 3.35))


def main() -> None:
    for name, draw in (("subgraph", subgraph), ("link", link), ("arcs", arcs)):
        figure = Figure(figsize=(8.6, 3.6), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_axis_off()
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

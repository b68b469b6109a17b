"""Draw baselines.svg: python docs/pictures/baselines.py

Words and milliseconds of an epoch, the papers' algorithms and weft's, as the last table of
docs/algorithms/baselines.md has them: it is read from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from draw import HERE, OWN, PART
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAGE = HERE.parent / "algorithms" / "baselines.md"
TITLES = ("million words into the busiest rank, an epoch", "milliseconds an epoch (two cores for all ranks)")


def rows() -> Iterator[tuple[str, str, int, tuple[float, float], tuple[float, float]]]:
    """(the paper's, weft's, ranks, words of both in millions, milliseconds of both)."""
    table = PAGE.read_text().split("## Words and seconds")[1]
    for line in table.splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        if len(cells) == 9 and cells[2].isdigit():
            words = [int(cell.replace(",", "")) / 1e6 for cell in cells[3:5]]
            yield cells[0], cells[1], int(cells[2]), (words[0], words[1]), (float(cells[6]), float(cells[7]))


def bars(axes: Axes, found: list[tuple[str, str, tuple[float, float]]], title: str) -> None:
    places = range(len(found))
    for side, (colour, label) in enumerate(((PART, "the paper's"), (OWN, "weft's"))):
        heights = [pair[side] for _, _, pair in found]
        axes.bar([place + 0.4 * side for place in places], heights, 0.38, color=colour, label=label)
    axes.set_xticks([place + 0.2 for place in places], [name for _, name, _ in found], fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def main() -> None:
    all_rows = list(rows())
    counts = sorted({ranks for _, _, ranks, _, _ in all_rows})
    figure = Figure(figsize=(9, 4.6))
    axes = figure.subplots(2, len(counts), sharey="row")
    for column, ranks in enumerate(counts):
        here = [row for row in all_rows if row[2] == ranks]
        bars(axes[0][column], [(a, b, words) for a, b, _, words, _ in here], f"{ranks} ranks")
        bars(axes[1][column], [(a, b, spent) for a, b, _, _, spent in here], "")
    for row, title in zip(axes, TITLES, strict=True):
        row[0].set_ylabel(title.replace(",", ",\n").replace(" (", "\n("), fontsize=8)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "baselines.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

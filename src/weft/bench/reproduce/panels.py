"""Pictures in the manner of the papers: bars side by side or stacked, lines, and timelines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..pictures import check_drawable, new_figure, save
from .item import Row

COLOURS = ("#20639b", "#b3541e", "#3caea3", "#8d6a9f", "#6b7b3a", "#c98b1b", "#7a7a7a", "#a02c5a", "#5fa8d3",
           "#e39aa8", "#3d3d3d")  # fmt: skip
_OWN = {"pull": COLOURS[1], "push-pull": COLOURS[0]}
"""Colours that go with a name, in every picture."""
_PLACES = 3
"""Fewer bars are as wide as if there were so many: one that fills its panel is a tower."""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure.

    x, y, by   columns of the rows: where, how high, and which line or colour of bar
    stack      entries of the column `y` (a table) that stand on each other, lowest first; others follow them
    """

    title: str
    rows: Sequence[Row]
    x: str
    y: str
    by: str = ""
    form: str = "bars"
    """bars, stacked or lines."""
    label: str = ""
    """Of the vertical axis."""
    stack: Sequence[str] = ()
    log: bool = False
    line: float | None = None
    """A level to compare with."""
    ticks: dict[Any, str] = field(default_factory=dict)


def figure_of(panels: Sequence[Panel], title: str = "", columns: int = 3) -> Callable[[str], None]:
    """What draws these panels into a file."""
    return partial(_draw, list(panels), title, columns)


def _draw(panels: list[Panel], title: str, columns: int, path: str) -> None:
    check_drawable(path)
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(3.7 * columns + 0.4, 3.0 * lines + (0.6 if title else 0.2))
    places = figure.subplots(lines, columns, squeeze=False).ravel()
    for place, panel in zip(places, panels, strict=False):
        {"bars": _bars, "stacked": _stacked, "lines": _lines}[panel.form](place, panel)
        place.set_title(panel.title, fontsize=9)
        place.set_xlabel(panel.x.replace("_", " "), fontsize=8)
        place.grid(axis="y", alpha=0.3)
        if panel.log:
            place.set_yscale("log")
            _plain_ticks(place.yaxis)
        place.set_ylabel(_in_its_unit(place, panel), fontsize=8)
        place.tick_params(labelsize=7, which="both")
        if panel.line is not None:
            place.axhline(panel.line, color="grey", linewidth=1, linestyle="--")
        if place.get_legend_handles_labels()[1]:
            place.legend(
                fontsize=6.5, framealpha=0.7, edgecolor="none", ncols=2 if panel.form == "stacked" else 1
            )
    for place in places[len(panels) :]:
        place.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10)
    save(figure, path)


def _in_its_unit(place: Any, panel: Panel) -> str:
    """The label of the vertical axis; small seconds are told in ms."""
    label = panel.label or panel.y.replace("_", " ")
    if panel.log or place.get_ylim()[1] >= 0.1 or not re.search(r"\bseconds\b", label):
        return label
    place.yaxis.set_major_formatter(lambda value, _: f"{1e3 * value:g}")
    return re.sub(r"\bseconds\b", "ms", label)


def _plain_ticks(axis: Any) -> None:
    """6M and 10M, of one size, in place of powers of ten."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return short_number(x) if super().__call__(x, pos) else ""

    for put in (axis.set_major_formatter, axis.set_minor_formatter):
        put(Plain(minor_thresholds=(2, 0.5)))


def short_number(value: float) -> str:
    """
    >>> short_number(6e6), short_number(2000), short_number(0.05)
    ('6M', '2k', '0.05')
    """
    step, name = next((s for s in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= s[0]), (1.0, ""))
    return f"{value / step:g}{name}"


def _colour(name: object, number: int) -> str:
    """
    >>> _colour("pull (as DGL)", 0) == _colour("pull", 5)
    True
    """
    return _OWN.get(str(name).split(" ")[0], COLOURS[number % len(COLOURS)])


def _groups(panel: Panel) -> tuple[list[Any], list[Any]]:
    return list(dict.fromkeys(row[panel.x] for row in panel.rows)), list(
        dict.fromkeys(row.get(panel.by, "") for row in panel.rows)
    )


def _bars(place: Any, panel: Panel) -> None:
    values, names = _groups(panel)
    wide = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        mine = {row[panel.x]: row[panel.y] for row in panel.rows if row.get(panel.by, "") == name}
        at = [k + (number - (len(names) - 1) / 2) * wide for k, v in enumerate(values) if v in mine]
        colour = _colour(name, number)
        place.bar(at, [mine[v] for v in values if v in mine], wide, color=colour, label=str(name) or None)
    _named(place, panel, values)


def _stacked(place: Any, panel: Panel) -> None:
    """A bar for each row, its parts on each other; rows of one x stand side by side, named below."""
    values, names = _groups(panel)
    wide, tallest = 0.8 / max(1, len(names)), 0.0
    others = {key: None for row in panel.rows for key, high in row[panel.y].items() if high > 0}
    parts = list(dict.fromkeys([*panel.stack, *others]))  # a bar without them would be too low
    for k, value in enumerate(values):
        for number, name in enumerate(names):
            found = [r for r in panel.rows if r[panel.x] == value and r.get(panel.by, "") == name]
            if not found:
                continue
            at, low = k + (number - (len(names) - 1) / 2) * wide, 0.0
            for part, key in enumerate(parts):
                high = found[0][panel.y].get(key, 0.0)
                shown = key if k == 0 and number == 0 else None
                place.bar(at, high, wide * 0.92, bottom=low, color=COLOURS[part % len(COLOURS)], label=shown)
                low += high
            tallest = max(tallest, low)
            if name:
                place.text(at, low, f" {name}", rotation=90, ha="center", va="bottom", fontsize=6)
    lines = -(-len(parts) // 2)  # of the legend, in two columns
    place.set_ylim(0, (1.3 + 0.08 * lines) * tallest or 1.0)  # room for names, and for what colours mean
    _named(place, panel, values)


def _lines(place: Any, panel: Panel) -> None:
    values, names = _groups(panel)
    numbers = all(isinstance(value, int | float) for value in values)
    where = {v: v if numbers else k for k, v in enumerate(values)}
    for number, name in enumerate(names):
        mine = [row for row in panel.rows if row.get(panel.by, "") == name]
        place.plot(
            [where[row[panel.x]] for row in mine],
            [row[panel.y] for row in mine],
            marker="osD^vPX*"[number % 8],
            markersize=4,
            linewidth=1.2,
            color=_colour(name, number),
            label=str(name) or None,
        )
    if numbers and values and min(values) > 0 and max(values) >= 8 * min(values):
        place.set_xscale("log", base=2)
    place.set_xticks([where[v] for v in values], [panel.ticks.get(v, str(v)) for v in values])
    place.minorticks_off()


def _named(place: Any, panel: Panel, values: list[Any]) -> None:
    if len(values) < _PLACES:
        around = (_PLACES - len(values)) / 2 + 0.5
        place.set_xlim(-around, len(values) - 1 + around)
    shown = [panel.ticks.get(v, str(v)) for v in values]
    tilted = max(map(len, shown), default=0) > 8 and len(shown) > 2
    place.set_xticks(
        range(len(values)), shown, rotation=30 if tilted else 0, ha="right" if tilted else "center"
    )


def timeline(parts: Sequence[tuple[str, Sequence[Row]]], title: str) -> Callable[[str], None]:
    """What draws ranks over time: (name, events) a panel, an event {rank, what, start, seconds}."""
    return partial(_timeline, list(parts), title)


def _timeline(parts: list[tuple[str, Sequence[Row]]], title: str, path: str) -> None:
    check_drawable(path)
    figure = new_figure(7.5, 1.9 * len(parts) + 0.7)
    end = max((1e3 * (e["start"] + e["seconds"]) for _, events in parts for e in events), default=1.0)
    for place, (name, events) in zip(
        figure.subplots(len(parts), 1, squeeze=False).ravel(), parts, strict=True
    ):
        ranks = sorted({event["rank"] for event in events})
        seen: set[str] = set()
        for event in events:
            work = event["what"] == "compute"
            at = event["rank"] + (0.2 if work else -0.2)
            label = None if event["what"] in seen else event["what"]
            seen.add(event["what"])
            place.barh(
                at,
                1e3 * event["seconds"],
                0.36,
                left=1e3 * event["start"],
                color=COLOURS[0] if work else "#e0b020",
                label=label,
            )
        place.set_yticks(ranks, [f"rank {r}" for r in ranks])
        place.set_xlim(0, end)
        place.set_title(name, fontsize=9)
        place.set_xlabel("ms", fontsize=8)
        place.tick_params(labelsize=7)
        if seen:
            place.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle(title, fontsize=10)
    save(figure, path)

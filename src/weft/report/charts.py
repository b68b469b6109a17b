"""Pictures as SVG, without a script: lines, bars by rank, heat maps. Colours are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .html import Safe, esc, svg
from .scales import log_ticks, tick_text, ticks
from .units import digits, short, told, unit_of

WIDTH, HEIGHT = 460.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 14.0, 24.0, 40.0
_POINTS = 300
"""A line has at most twice so many points: the least and the most of each stretch."""
_LETTER = 6.5
"""Width of a digit of a tick."""
_LOG = 60.0
"""A line whose values span more than this ratio stands on a logarithmic scale."""

_LONG = {"k": "thousands", "M": "millions", "G": "billions", "T": "trillions"}
"""Units of counts, beside an axis."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve: its name, its points, and the class that colours it."""

    name: str
    points: Sequence[Point]
    kind: str = "s1"


def lines(
    curves: Sequence[Line], label: str, x: str = "epoch", y: str = "", kind: str = "plain", whole: bool = True
) -> Safe:
    """Curves over epochs, which are `whole` numbers. `kind` is what y counts: see `units`."""
    points = [p for curve in curves for p in curve.points if math.isfinite(p[1])]
    if not points:
        return Safe("")
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    log = kind == "plain" and low > 0 and high / low > _LOG
    unit, name = unit_of(high, kind)
    place = _Scale(*(map(math.log10, (low, high)) if log else _padded(low, high, kind)))
    across = _Scale(x0, x1) if x1 > x0 else _Scale(x0 - 1, x1 + 1)

    def at(p: Point) -> tuple[float, float]:
        value = math.log10(p[1]) if log else p[1]
        return (
            _LEFT + across(p[0]) * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - place(value) * (HEIGHT - _TOP - _BOTTOM),
        )

    marks = log_ticks(low, high) if log else [t * unit for t in ticks(place.low / unit, place.high / unit)]
    step = (marks[1] - marks[0]) / unit if len(marks) > 1 else 1.0
    body = []
    for mark in marks:
        height = at((x0, mark))[1]
        text = f"{mark:g}" if log else tick_text(mark / unit, step)
        body.append(f'<path class="grid" d="M{_LEFT:g} {height:.1f}H{WIDTH - _RIGHT:g}"/>')
        body.append(f'<text class="tick end" x="{_LEFT - 7:g}" y="{height + 3.5:.1f}">{text}</text>')
    below, apart = _across(x0, x1, whole)
    for mark in below:
        width, shown = at((mark, high))[0], tick_text(mark, apart)
        body.append(f'<path class="axis" d="M{width:.1f} {HEIGHT - _BOTTOM:g}v4"/>')
        body.append(f'<text class="tick mid" x="{width:.1f}" y="{HEIGHT - _BOTTOM + 17:g}">{shown}</text>')
    body.append(f'<path class="axis" d="M{_LEFT:g} {HEIGHT - _BOTTOM:g}H{WIDTH - _RIGHT:g}"/>')
    body.append(f'<text class="name end" x="{WIDTH - _RIGHT:g}" y="{HEIGHT - 6:g}">{esc(x)}</text>')
    above = f"{y} ({_LONG.get(name, name)})" if y and name else y or _LONG.get(name, name)
    if above or log:
        body.append(
            f'<text class="name" x="2" y="11">{esc(above or y)}{" (log scale)" if log else ""}</text>'
        )
    for curve in curves:
        body.append(_drawn(curve, at))
    return svg(WIDTH, HEIGHT, label, "".join(body))


def _across(low: float, high: float, whole: bool) -> tuple[list[float], float]:
    """Ticks along x whose numbers do not touch each other, and how far they are apart.

    >>> _across(1, 60, True)[0], _across(1, 2051, True)[0]
    ([10.0, 20.0, 30.0, 40.0, 50.0, 60.0], [500.0, 1000.0, 1500.0, 2000.0])
    """
    for about in (6, 5, 4, 3, 2):
        found = ticks(low, high, about, whole)
        apart = found[1] - found[0] if len(found) > 1 else 1.0
        letters = sum(len(tick_text(mark, apart)) + 2 for mark in found)
        if letters * _LETTER <= WIDTH - _LEFT - _RIGHT:
            break
    return found, apart


def _drawn(curve: Line, at: Callable[[Point], Point]) -> str:
    pieces: list[list[Point]] = [[]]
    for p in curve.points:
        if math.isfinite(p[1]):
            pieces[-1].append(p)
        elif pieces[-1]:
            pieces.append([])
    out = []
    for piece in pieces:
        where = [at(p) for p in thinned(piece)]
        if len(where) == 1:
            x, y = where[0]
            out.append(f'<circle class="{curve.kind} dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        elif where:
            d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in where)
            out.append(f'<path class="line {curve.kind}" d="{d}"/>')
    return f"<g><title>{esc(curve.name)}</title>{''.join(out)}</g>"


def thinned(points: Sequence[Point], most: int = _POINTS) -> list[Point]:
    """A curve with fewer points that looks the same: ends, and the least and most of each stretch.

    >>> thinned([(x, float(x == 50)) for x in range(100)], most=2)
    [(0, 0.0), (50, 1.0), (51, 0.0), (99, 0.0)]
    """
    if len(points) <= 2 * most:
        return list(points)
    out = [points[0]]
    size = len(points) / most
    for i in range(most):
        part = points[int(i * size) : int((i + 1) * size)]
        pair = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        out += [p for p in sorted(pair) if p[0] > out[-1][0]]
    return out if out[-1] == points[-1] else [*out, points[-1]]


def steady(points: Sequence[Point]) -> list[Point]:
    """Without the first, where that took three times as long as most: it warmed up.

    >>> steady([(1, 9.0), (2, 1.0), (3, 1.1)]), steady([(1, 1.5), (2, 1.0)])
    ([(2, 1.0), (3, 1.1)], [(1, 1.5), (2, 1.0)])
    """
    rest = sorted(y for _, y in points[1:] if math.isfinite(y))
    odd = bool(rest) and points[0][0] == 1 and points[0][1] > 3 * rest[len(rest) // 2]
    return list(points[1:] if odd else points)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    def __call__(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def _padded(low: float, high: float, kind: str) -> tuple[float, float]:
    """The range of an axis: amounts begin at 0, scores end at 1."""
    if kind in ("seconds", "bytes", "count"):
        return 0.0, high * 1.05 or 1.0
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    top = min(high + room, 1.0) if kind == "score" and high <= 1 else high + room
    return (max(low - room, 0.0) if low >= 0 else low - room), top


def bars(values: Sequence[float], label: str, kind: str, colour: str = "s1") -> Safe:
    """One bar a rank, and the mean as a line. [p]"""
    height, p = 190.0, len(values)
    unit, name = unit_of(max(values), kind)
    top = (max(values) or 1.0) * 1.08
    scale = (height - _TOP - _BOTTOM) / top
    wide = (WIDTH - _LEFT - _RIGHT) / p
    body = []
    marks = [t * unit for t in ticks(0, top / unit, 4)]
    step = (marks[1] - marks[0]) / unit if len(marks) > 1 else 1.0
    for mark in marks:
        y = height - _BOTTOM - mark * scale
        body.append(f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{WIDTH - _RIGHT:g}"/>')
        body.append(
            f'<text class="tick end" x="{_LEFT - 7:g}" y="{y + 3.5:.1f}">'
            f"{tick_text(mark / unit, step)}</text>"
        )
    gap = min(8.0, wide * 0.22)
    for rank, value in enumerate(values):
        x, tall = _LEFT + rank * wide + gap / 2, value * scale
        body.append(
            f'<rect class="fill {colour}" x="{x:.1f}" y="{height - _BOTTOM - tall:.1f}" '
            f'width="{wide - gap:.2f}" height="{tall:.1f}" rx="1.5">'
            f"<title>rank {rank}: {esc(told(value, kind))}</title></rect>"
        )
    for rank in (int(t) for t in ticks(0, p - 1, 8, whole=True)) if p > 1 else (0,):
        x = _LEFT + (rank + 0.5) * wide
        body.append(f'<text class="tick mid" x="{x:.1f}" y="{height - _BOTTOM + 16:g}">{rank}</text>')
    mean = height - _BOTTOM - sum(values) / p * scale
    body.append(f'<path class="mean" d="M{_LEFT:g} {mean:.1f}H{WIDTH - _RIGHT:g}"/>')
    body.append(f'<path class="axis" d="M{_LEFT:g} {height - _BOTTOM:g}H{WIDTH - _RIGHT:g}"/>')
    body.append(f'<text class="name end" x="{WIDTH - _RIGHT:g}" y="{height - 6:g}">rank</text>')
    if name:
        body.append(f'<text class="name" x="2" y="11">{esc(_LONG.get(name, name))}</text>')
    return svg(WIDTH, height, label, "".join(body))


def stacked(parts: Sequence[tuple[str, str, Sequence[float]]], label: str) -> Safe:
    """A bar of seconds a rank, in pieces: (class of the colour, name, seconds of each rank)."""
    p = len(parts[0][2])
    tall = 26.0 if p <= 16 else max(7.0, 416.0 / p)
    height, left, width = p * tall + 44, 64.0, 920.0
    longest = max(sum(part[2][rank] for part in parts) for rank in range(p)) or 1.0
    unit, name = unit_of(longest, "seconds")
    scale = (width - left - 16) / longest
    marks = [t * unit for t in ticks(0, longest / unit, 8)]
    step = (marks[1] - marks[0]) / unit if len(marks) > 1 else 1.0
    body = []
    for mark in marks:
        x = left + mark * scale
        body.append(f'<path class="grid" d="M{x:.1f} 4V{p * tall + 8:g}"/>')
        body.append(
            f'<text class="tick mid" x="{x:.1f}" y="{p * tall + 24:g}">{tick_text(mark / unit, step)}</text>'
        )
    body.append(f'<text class="name end" x="{width - 8:g}" y="{height - 3:g}">{esc(name)}</text>')
    for rank in range(p):
        y, x = 6 + rank * tall, left
        if p <= 32 or rank % math.ceil(p / 32) == 0:
            body.append(
                f'<text class="tick end" x="{left - 8:g}" y="{y + tall / 2 + 3:.1f}">rank {rank}</text>'
            )
        for colour, what, seconds in parts:
            wide = seconds[rank] * scale
            if wide > 0.05:
                body.append(
                    f'<rect class="fill {colour}" x="{x:.1f}" y="{y:.1f}" width="{wide:.2f}" '
                    f'height="{tall - min(6.0, tall * 0.2):.1f}"><title>rank {rank}, {esc(what)}: '
                    f"{esc(told(seconds[rank], 'seconds'))}</title></rect>"
                )
            x += wide
    return svg(width, height, label, "".join(body), "chart broad")


def heat(
    cells: Sequence[Sequence[float]],
    label: str,
    row_name: str,
    column_name: str,
    kind: str = "count",
    logarithmic: bool = False,
    share: bool = False,
) -> Safe:
    """A square of squares, darker for more. [n, n]; `share`: of its row, not of all."""
    n = len(cells)
    size = max(3.0, min(72.0, 400.0 / n))
    left, top = 46.0, 30.0
    most = max((v for row in cells for v in row), default=0.0)
    unit, _ = unit_of(most, kind) if kind == "bytes" else (1.0, "")
    body = []
    for i, row in enumerate(cells):
        whole = (sum(row) if share else most) or 1.0
        for j, value in enumerate(row):
            if value <= 0:
                continue
            depth = math.log1p(value) / math.log1p(whole) if logarithmic else value / whole
            x, y = left + j * size, top + i * size
            body.append(
                f'<rect class="heat" x="{x:.1f}" y="{y:.1f}" width="{size:.2f}" height="{size:.2f}" '
                f'fill-opacity="{0.06 + 0.94 * depth:.3f}"><title>{esc(row_name)} {i}, {esc(column_name)} '
                f"{j}: {esc(told(value, kind))}</title></rect>"
            )
            if size >= 30:
                text = digits(value / unit) if kind == "bytes" else short(value)
                dark = " over" if depth > 0.5 else ""
                body.append(
                    f'<text class="cell mid{dark}" x="{x + size / 2:.1f}" y="{y + size / 2 + 3.5:.1f}">'
                    f"{esc(text)}</text>"
                )
    every = math.ceil(16 / size)
    for i in range(0, n, every):
        body.append(
            f'<text class="tick end" x="{left - 6:g}" y="{top + (i + 0.5) * size + 3.5:.1f}">{i}</text>'
        )
        body.append(f'<text class="tick mid" x="{left + (i + 0.5) * size:.1f}" y="{top - 7:g}">{i}</text>')
    side = n * size
    body.append(f'<rect class="frame" x="{left:g}" y="{top:g}" width="{side:g}" height="{side:g}"/>')
    body.append(f'<text class="name mid" x="{left + side / 2:g}" y="10">{esc(column_name)}</text>')
    middle = top + side / 2
    body.append(
        f'<text class="name mid" transform="translate(10 {middle:g}) rotate(-90)">{esc(row_name)}</text>'
    )
    return svg(max(left + side + 10, 300), top + side + 10, label, "".join(body), "chart square", 1.15)

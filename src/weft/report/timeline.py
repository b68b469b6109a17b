"""One epoch on a time line: a lane a rank, a colour a kind of work."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .html import Safe, esc, figure, legend, scrolled, svg, table
from .runs import Run
from .scales import tick_text, ticks
from .sections import colours_of, name_of
from .units import told, unit_of

WIDTH, _LEFT = 1100.0, 64.0
_LANES = 32
"""Ranks that are drawn."""
_OWN = 5.0
"""An event that is so wide has a box, and a text, of its own; smaller ones of a kind are one shape."""
_LEAST = 0.4
"""Events of a kind that are nearer than this are drawn as one."""


def timeline(run: Run) -> str:
    """The section of `measured.json`'s time line."""
    found: dict[str, Any] = run.measured.get("timeline") or {}
    events, span = found.get("events") or [], float(found.get("seconds") or 0.0)
    if not span or not any(events):
        return ""
    total: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0])
    for lane in events:
        for kind, _, _, seconds, size in lane:
            entry = total[str(kind)]
            entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + seconds, entry[2] + size
    kinds, colours = sorted(total, key=lambda k: -total[k][1]), colours_of(run)
    epoch = run.measured.get("epoch", "")
    label = f"Epoch {epoch}, rank by rank"
    keys = legend([(f"{colours[k]} block", name_of(k)) for k in kinds])
    rows = [
        [name_of(k), f"{total[k][0]:,.0f}", told(total[k][1], "seconds"),
         told(total[k][1] / total[k][0], "seconds"), told(total[k][2], "bytes") if total[k][2] else "–"]
        for k in kinds
    ]  # fmt: skip
    heads = ["", "calls", "seconds of all ranks", "a call", "received"]
    numbers = table("What the time line shows, added up", heads, rows)
    return figure(
        "One epoch in time", keys, scrolled(label, _drawn(events[:_LANES], span, colours, label)), numbers,
        wide=True, note=_note(run, found, len(events)),
    )  # fmt: skip


def _note(run: Run, found: dict[str, Any], ranks: int) -> str:
    note = f"Epoch {run.measured.get('epoch', '')}. Gaps are other work between these calls."
    if not found.get("whole"):
        note += f" The epoch is longer: these are its first {told(float(found['seconds']), 'seconds')}."
    if ranks > _LANES:
        note += f" The first {_LANES} of {ranks} ranks."
    apart = [abs(float(error)) for _, error in run.measured.get("clocks") or []]
    if furthest := max(apart, default=0.0):
        note += f" Clocks of hosts are aligned to within {told(furthest, 'seconds')}."
    return note


def _drawn(events: list[list[Any]], span: float, colours: dict[str, str], label: str) -> Safe:
    p = len(events)
    tall = 34.0 if p <= 8 else max(14.0, 272.0 / p)
    height = p * tall + 40
    scale = (WIDTH - _LEFT - 14) / span
    unit, name = unit_of(span, "seconds")
    marks = [t * unit for t in ticks(0, span / unit, 10)]
    step = (marks[1] - marks[0]) / unit if len(marks) > 1 else 1.0
    body = []
    for rank, lane in enumerate(events):
        y, deep = 6 + rank * tall, tall - min(6.0, tall * 0.22)
        body.append(
            f'<rect class="lane" x="{_LEFT:g}" y="{y:.1f}" width="{span * scale:.1f}" height="{deep:.1f}"/>'
            f'<text class="tick end" x="{_LEFT - 8:g}" y="{y + deep / 2 + 4:.1f}">rank {rank}</text>'
        )
        body.append(_lane(lane, colours, scale, y, deep))
    for mark in marks:
        x = _LEFT + mark * scale
        body.append(f'<path class="axis" d="M{x:.1f} {p * tall + 6:g}v4"/>')
        body.append(
            f'<text class="tick mid" x="{x:.1f}" y="{p * tall + 23:g}">{tick_text(mark / unit, step)}</text>'
        )
    body.append(f'<text class="name end" x="{WIDTH - 4:g}" y="{height - 3:g}">{esc(name)}</text>')
    return svg(WIDTH, height, label, "".join(body), "chart broad")


def _lane(lane: list[Any], colours: dict[str, str], scale: float, y: float, deep: float) -> str:
    """Wide events as boxes with a text, small ones of a kind as one shape."""
    boxes = []
    small: dict[str, list[list[float]]] = defaultdict(list)
    for kind, call, start, seconds, size in lane:
        x, wide = _LEFT + start * scale, seconds * scale
        if wide >= _OWN:
            moved = f", {told(size, 'bytes')} received" if size else ""
            what = f"{name_of(kind)}{f' ({call})' if call else ''}: {told(seconds, 'seconds')}{moved}"
            boxes.append(
                f'<rect class="fill {colours[kind]}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
                f'height="{deep:.1f}"><title>{esc(what)}</title></rect>'
            )
        elif small[kind] and x - small[kind][-1][1] < _LEAST:
            small[kind][-1][1] = max(small[kind][-1][1], x + wide)
        else:
            small[kind].append([x, x + wide])
    shapes = []
    for kind, spans in small.items():
        d = "".join(
            f"M{a:.1f} {y:.1f}h{max(b - a, 0.3):.1f}v{deep:.1f}h-{max(b - a, 0.3):.1f}z" for a, b in spans
        )
        shapes.append(f'<path class="fill {colours[kind]}" d="{d}"/>')
    return "".join(boxes + shapes)

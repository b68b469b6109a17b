"""Tables and figures. Everything that a run folder says is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Safe(str):
    """HTML that we made: not to be escaped again."""

    __slots__ = ()


def esc(value: object) -> Safe:
    """Text as HTML.

    >>> esc("<b>"), esc(Safe("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Safe) else Safe(html.escape(str(value), quote=True))


def table(
    caption: str,
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    left: int = 1,
    total: bool = False,
    after: int = 0,
) -> Safe:
    """A table that scrolls by itself where the screen is narrow; the first `left` columns are text, and the
    last `after`.

    `total`: the last row is the sum of the others.
    """
    cells = list(rows)
    last = len(heads) - after

    def kind(i: int) -> str:
        return "" if i < left else " class=after" if i >= last else " class=n"

    head = "".join(f'<th scope="col"{kind(i)}>{esc(name)}</th>' for i, name in enumerate(heads))
    body = []
    for place, row in enumerate(cells):
        first = f'<th scope="row">{esc(row[0])}</th>' if row else ""
        rest = "".join(f"<td{kind(i)}>{esc(c)}</td>" for i, c in enumerate(row[1:], 1))
        sums = ' class="total"' if total and place == len(cells) - 1 else ""
        body.append(f"<tr{sums}>{first}{rest}</tr>")
    return Safe(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{esc(caption)}"><table>'
        f"<caption>{esc(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
        "</table></div>"
    )


def folded(summary: str, *parts: str, open_: bool = False) -> Safe:
    """What is shown on request."""
    return Safe(
        f"<details{' open' if open_ else ''}><summary>{esc(summary)}</summary>{''.join(parts)}</details>"
    )


def legend(entries: Sequence[tuple[str, str]]) -> Safe:
    """(class of the colour, name) of each; the class may name a dash too."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 22 10" aria-hidden="true">'
        f'<path class="{esc(kind)}" d="M1 5H21"/></svg>{esc(name)}</li>'
        for kind, name in entries
    )
    return Safe(f'<ul class="legend">{items}</ul>')


def figure(title: str, *parts: str, wide: bool = False, note: str = "") -> Safe:
    """A card: what it shows, the picture, its numbers."""
    said = f'<p class="note">{esc(note)}</p>' if note else ""
    return Safe(
        f'<figure class="card{" wide" if wide else ""}"><figcaption><h4>{esc(title)}</h4></figcaption>'
        f"{said}{''.join(parts)}</figure>"
    )


def svg(width: float, height: float, label: str, body: str, kind: str = "chart", grows: float = 1.6) -> Safe:
    """A picture that fits its place, at most `grows` times as large as drawn; `label` is read aloud."""
    return Safe(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" style="max-width:{width * grows:.0f}px" '
        f'role="img" aria-label="{esc(label)}">{body}</svg>'
    )


def scrolled(label: str, picture: str) -> Safe:
    """A wide picture, which scrolls where the screen is narrow."""
    return Safe(
        f'<div class="scroll picture" tabindex="0" role="region" aria-label="{esc(label)}">{picture}</div>'
    )


def tiles(entries: Iterable[tuple[str, str, str]]) -> Safe:
    """(name, value, what stands below it) of each number that counts most."""
    shown = list(entries)
    made = "".join(
        f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd>"
        f"{f'<dd class=sub>{esc(below)}</dd>' if below else ''}</div>"
        for name, value, below in shown
    )
    columns = len(shown) if len(shown) <= 6 else -(-len(shown) // 2)  # in two even rows, not six and one
    return Safe(f'<dl class="tiles" style="--n:{columns}">{made}</dl>')

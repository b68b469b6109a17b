"""The whole page. It needs nothing else: no network, no script; a policy in its head says so to browsers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import __version__
from . import compare as side_by_side
from . import sections
from .html import Safe, esc, tiles
from .judged import judged
from .runs import Run, number
from .style import style_sheet
from .timeline import timeline
from .units import told

_ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError)
"""What files that somebody wrote by hand, or another weft, make of our sections."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

Section = tuple[str, str, Callable[[Run], str]]
_SECTIONS: tuple[Section, ...] = (
    ("curves", "Curves", sections.curves),
    ("scores", "Scores", judged),
    ("time", "Where the time went", sections.seconds_by_rank),
    ("timeline", "Time line", timeline),
    ("messages", "Messages", lambda run: _messages(run)),
    ("balance", "Balance", sections.balance),
    ("settings", "Settings", sections.settings),
)


def page(runs: Sequence[Run]) -> str:
    """The report of some runs as HTML, in the order that they are given in."""
    many = len(runs) > 1
    title = f"{len(runs)} runs" if many else runs[0].name
    menu: list[tuple[str, str]] = []
    body: list[str] = []
    if many:
        menu.append(("#compare", "Comparison"))
        compared = _safely(runs[0], "the comparison", lambda _: side_by_side.compare(runs))
        body.append(f'<section id="compare"><h2>How they compare</h2>{compared}</section>')
    for place, run in enumerate(runs):
        inner, links = _run(run, f"-{place}" if many else "")
        if many:
            menu.append((f"#run-{place}", run.name))
            body.append(
                f'<details class="run" id="run-{place}"{" open" if not place else ""}>'
                f"<summary>{esc(run.name)}</summary>{inner}</details>"
            )
        else:
            menu, body = links, [inner]
    links_ = "".join(f'<li><a href="{esc(where)}">{esc(name)}</a></li>' for where, name in menu)
    lead = "Runs of weft, side by side." if many else _lead(runs[0])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="generator" content="weft {esc(__version__)}">
<title>{esc(title)} · weft report</title>
<style>
{style_sheet()}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header class="top"><div class="wrap">
<div><p class="mark">weft report</p><h1>{esc(title)}</h1><p>{esc(lead)}</p></div>
<fieldset class="theme"><legend>Colours</legend>
<input type="radio" name="theme" id="system" checked><label for="system">Auto</label>
<input type="radio" name="theme" id="day"><label for="day">Light</label>
<input type="radio" name="theme" id="night"><label for="night">Dark</label>
</fieldset></div></header>
<nav class="menu" aria-label="Sections"><div class="wrap"><ul>{links_}</ul></div></nav>
<main id="main" class="wrap" tabindex="-1">
{"".join(body)}
</main>
<footer><div class="wrap">Made by weft {esc(__version__)}. A word is one number of a tensor;
1 MB is 10<sup>6</sup> bytes.</div></footer>
</body>
</html>
"""


def _run(run: Run, tail: str) -> tuple[str, list[tuple[str, str]]]:
    """A run's sections, and where they begin."""
    made: list[str] = []
    links: list[tuple[str, str]] = []
    for name, title, build in _SECTIONS:
        inner = _safely(run, title.lower(), build)
        if inner:
            made.append(f'<section id="{name}{tail}"><h3>{esc(title)}</h3>{inner}</section>')
            links.append((f"#{name}{tail}", title))
    first = _safely(run, "the run", _tiles)
    notes = "".join(f"<li>{esc(note)}</li>" for note in run.notes)  # after the sections, which may add some
    head = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f"{head}{first}{''.join(made)}", links


def _safely(run: Run, what: str, build: Callable[[Run], str]) -> str:
    """A section; a note in its place where the run's files do not hold what it needs."""
    try:
        return build(run)
    except _ODD as error:
        run.notes.append(
            f"What the run's files say of {what} cannot be shown: {type(error).__name__} {error}."
        )
        return ""


def _lead(run: Run) -> str:
    made = [
        f"{run.setting('model.name')} on {run.setting('data.graph')}",
        f"{run.setting('parallel.strategy')} on {_ranks(run)}",
        run.state.line(),
    ]
    return " · ".join(made)


def _ranks(run: Run) -> str:
    ranks = run.summary.get("ranks") or run.measured.get("ranks") or run.setting("parallel.ranks")
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def _tiles(run: Run) -> Safe:
    found = side_by_side.facts(run)
    entries = []
    for name in [n for n in found if n.startswith("test ")] or [n for n in found if n.startswith("val ")]:
        best = run.summary.get("best_epoch")
        below = f"of epoch {best}" if best else "" if run.summary else "when last measured"
        entries.append((name[:1].upper() + name[1:], found[name], below))
    asked = run.setting("train.epochs")
    entries.append(("Epochs", found["epochs"], f"of {asked:,} asked for" if isinstance(asked, int) else ""))
    entries.append(("Last loss", found["last loss"], "training"))
    entries.append(("An epoch takes", found["an epoch"], "median, training alone"))
    if found["words, busiest rank"] != "–" and run.measured.get("ranks", 2) != 1:
        received = sum(number(b) for row in run.measured.get("received") or [] for _, _, b in row)
        below = f"words an epoch; {told(received, 'bytes')} in all" if received else "words an epoch"
        entries.append(("Into the busiest rank", found["words, busiest rank"], below))
    most, whose = side_by_side.peak(run)
    entries.append(("Memory, at most", told(most, "bytes"), f"of {whose or 'the largest rank'}"))
    return tiles(entries)


def _messages(run: Run) -> str:
    made = sections.traffic(run) + sections.predicted(run)
    return f'<div class="cards">{made}</div>' if made else ""

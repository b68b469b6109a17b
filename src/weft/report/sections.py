"""The sections of a run: each takes the run and gives HTML, or nothing where the run has nothing to show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..train.config import fields
from ..train.result import agrees
from ..train.watch import KINDS
from .charts import Line, bars, heat, lines, stacked, steady
from .html import Safe, esc, figure, folded, legend, scrolled, table
from .runs import Run, number
from .units import told, unit_of

_ROWS = 200
"""Epochs in a table; of more, every so many."""
_MATRIX = 16
"""Ranks up to which every pair stands in the table; of more, those with most."""
_MOST_RANKS = 4096
"""Of more ranks no map is made: it has a number for every pair."""
_MAP = 96
"""Ranks in the map; of more, neighbours are drawn together."""
_SPLITS = (("train", "s1"), ("val", "s2 d2"), ("test", "s3 d3"))
_COLOURS = {
    "spmm": "s1", "dense": "s3", "gather": "s2", "reduce": "s4", "grad": "s5", "split": "s6", "loss": "s7",
    "join": "s8", "pull": "s2", "push": "s4", "ask": "s9", "back": "s10", "errors": "s11",
    "waiting": "calm", "other": "calmer",
}  # fmt: skip
PHASES = {
    "split": "rows become columns", "join": "columns become rows again", "gather": "rows come from others",
    "reduce": "partial sums are added up at their owners", "grad": "weights' gradients are summed",
    "loss": "the loss is summed", "ask": "who wants which rows", "pull": "rows of a batch come",
    "push": "what a batch asks of others", "back": "gradients of such rows go home",
    "errors": "the error goes to all", "sample": "neighbours of others' vertices", "waiting": "for messages",
    "spmm": "A times rows, a kernel", "sddmm": "a number for each arc, a kernel",
    "attend": "scores, softmax and sum, a kernel", "dense": "rows times weights",
    "sampling": "neighbours are drawn, a kernel", "other": "Python, torch's other functions, the optimiser",
}  # fmt: skip
"""Kinds of work in some words."""
_SERIES = [f"s{number}" for number in range(1, 13)]
_BESIDE = {"epoch", "seconds", "words", "rss_bytes", "lr", "at", "skipped", "loss"}


def colours_of(run: Run) -> dict[str, str]:
    """A colour for each kind of work of a run, no two alike while there are enough."""
    lanes = (run.measured.get("timeline") or {}).get("events") or []
    time = run.measured.get("time") or run.summary.get("time") or {}
    kinds = sorted({str(kind) for kind in time} | {str(event[0]) for lane in lanes for event in lane})
    found: dict[str, str] = {}
    order = list(_COLOURS)
    for kind in sorted(kinds, key=lambda k: order.index(k) if k in order else len(order)):
        wish = _COLOURS.get(kind, "")
        free = [c for c in _SERIES if c not in found.values()]
        found[kind] = wish if wish and wish not in found.values() else (free or _SERIES)[0]
    return found


def name_of(kind: str) -> str:
    return KINDS.get(kind, kind)


def curves(run: Run) -> str:
    """Losses, scores, seconds, and what else changes from epoch to epoch."""
    if not run.records:
        return ""
    loss = [Line("training", run.column("loss"), "s1"), Line("validation", run.column("val_loss"), "s2 d2")]
    cards = [_card("Loss", loss, "")]
    names = [n for n in run.metrics() if n not in _BESIDE and not n.endswith("loss")]
    for score in dict.fromkeys(name.partition("_")[2] for name in names if "_" in name):
        found = [Line(s, run.column(f"{s}_{score}"), kind) for s, kind in _SPLITS]
        cards.append(_card(score_name(score, run), found, "", "score"))
    took = run.column("seconds")
    note = "" if steady(took) == took else f"But the first, which warms up: {told(took[0][1], 'seconds')}."
    cards.append(_card("Time of an epoch", [Line("seconds", steady(took), "s4")], "", "seconds", note))
    for name, title, kind, colour in (
        ("words", "Words that rank 0 received", "count", "s7"), ("lr", "Learning rate", "plain", "s6"),
    ):  # fmt: skip
        values = {y for _, y in run.column(name) if math.isfinite(y)}
        if len(values) > 1:
            cards.append(_card(title, [Line(title, run.column(name), colour)], "", kind))
    made = "".join(card for card in cards if card)
    return f'<div class="cards">{made}</div>{_epochs(run)}'


def score_name(score: str, run: Run) -> str:
    """As people call a metric."""
    known = {"accuracy": "Accuracy", "mrr": "MRR", "auc": "AUC", "hits": f"Hits@{run.setting('link.hits')}"}
    return known.get(score, score)


def _card(title: str, found: Sequence[Line], y: str, kind: str = "plain", note: str = "") -> str:
    shown = [line for line in found if any(math.isfinite(v) for _, v in line.points)]
    if not shown:
        return ""
    keys = legend([(line.kind, line.name) for line in shown]) if len(shown) > 1 else ""
    picture = lines(shown, f"{title} by epoch; the numbers are in the table of epochs.", "epoch", y, kind)
    return figure(title, keys, picture, note=note)


def _epochs(run: Run) -> str:
    every = max(1, math.ceil(len(run.records) / _ROWS))
    names = [n for n in run.metrics() if n not in ("epoch", "at")]
    known = {"seconds": "seconds", "words": "count", "rss_bytes": "bytes"}
    kinds = {
        n: known.get(n, "loss" if n.endswith("loss") else "score" if "_" in n else "plain") for n in names
    }
    rows = [
        [str(r["epoch"]), *(_cell(r.get(n), kinds[n]) for n in names)]
        for r in [*run.records[:-1:every], run.records[-1]]
    ]
    what = "Every epoch" if every == 1 else f"Every {every}th epoch, and the last"
    heads = ["epoch", *(n.replace("_", " ").replace("rss bytes", "memory") for n in names)]
    shown = table(f"{what}, as metrics.jsonl has it", heads, rows)
    return f'<div class="tall">{folded("All epochs as a table", shown)}</div>'


def _cell(value: Any, kind: str) -> str:
    return told(number(value), kind)


# Ranks


def seconds_by_rank(run: Run) -> str:
    """Where one epoch's time went: a bar a rank."""
    time: dict[str, list[float]] = run.measured.get("time") or run.summary.get("time") or {}
    if not time:
        return ""
    took = [k for k in time if sum(time[k])] or list(time)  # one rank waits for nobody
    kinds = sorted(took, key=lambda k: (k in ("waiting", "other"), -sum(time[k])))
    total = sum(map(sum, time.values())) or 1.0
    colours = colours_of(run)
    shown = [k for k in kinds if sum(time[k]) / total >= 0.002] or kinds
    parts = [(colours[k], name_of(k), time[k]) for k in shown]
    ranks = len(time[kinds[0]])
    keys = legend([(f"{colours[k]} block", name_of(k)) for k in shown])
    rows = [
        [
            name_of(k), f"{sum(time[k]) / total:.1%}", told(min(time[k]), "seconds"),
            told(sum(time[k]) / ranks, "seconds"), told(max(time[k]), "seconds"),
            str(max(range(ranks), key=lambda r: time[k][r])), PHASES.get(k, ""),
        ]
        for k in kinds
    ]  # fmt: skip
    epoch = run.measured.get("epoch")
    label = f"Seconds of {'epoch ' + str(epoch) if epoch else 'one epoch'} by rank and kind of work"
    heads = ["", "share", "least", "mean", "most", "at rank", "what it is"]
    numbers = table(label, heads, rows, after=1)
    return figure(label, keys, scrolled(label, stacked(parts, label)), numbers, wide=True)


def traffic(run: Run) -> str:
    """Who sent how much to whom."""
    received = run.measured.get("received") or []
    p = len(received)
    if p < 2:
        return ""
    if p > _MOST_RANKS:
        raise ValueError(f"a map of {p} ranks is too large")
    size = [[0.0] * p for _ in range(p)]
    words = [[0.0] * p for _ in range(p)]
    for to, row in enumerate(received):
        for sender, count, length in row:
            words[sender][to], size[sender][to] = float(count), float(length)
    whole = sum(map(sum, size))
    label = "Bytes that each rank (row) sent to each other (column) in one epoch"
    blocks = _blocks(size)
    unit = unit_of(max(map(max, blocks)), "bytes")[1]
    note = f"In {unit}; {told(whole, 'bytes')} in all."
    if len(blocks) < p:
        note += f" A square stands for {math.ceil(p / len(blocks))} ranks by as many."
    picture = heat(blocks, label, "from rank", "to rank", "bytes", logarithmic=_uneven(blocks))
    if _uneven(blocks):
        note += " The shades are logarithmic."
    if p <= _MATRIX:
        heads = ["from", *(f"to {r}" for r in range(p)), "sent"]
        body = [
            [f"rank {a}", *(told(v, "bytes") if v else "·" for v in row), told(sum(row), "bytes")]
            for a, row in enumerate(size)
        ]
        got = [told(sum(row[b] for row in size), "bytes") for b in range(p)]
        numbers = table(label, heads, [*body, ["received", *got, told(whole, "bytes")]], total=True)
    else:
        pairs = sorted(((size[a][b], a, b) for a in range(p) for b in range(p)), reverse=True)[:20]
        rows = [[f"rank {a}", f"rank {b}", f"{words[a][b]:,.0f}", told(v, "bytes")] for v, a, b in pairs]
        numbers = table("The 20 pairs that moved most", ["from", "to", "words", "bytes"], rows, left=2)
    return figure("Who sent how much to whom", picture, folded("As a table", numbers), note=note)


def _blocks(cells: list[list[float]]) -> list[list[float]]:
    """The same with at most `_MAP` rows: neighbours together."""
    p = len(cells)
    every = math.ceil(p / _MAP)
    if every == 1:
        return cells
    n = math.ceil(p / every)
    out = [[0.0] * n for _ in range(n)]
    for a in range(p):
        for b in range(p):
            out[a // every][b // every] += cells[a][b]
    return out


def _uneven(cells: Sequence[Sequence[float]]) -> bool:
    some = [v for row in cells for v in row if v]
    return bool(some) and max(some) > 50 * min(some)


def balance(run: Run) -> str:
    """How evenly vertices, arcs, words and memory lie on the ranks."""
    words = _by_rank(run.measured.get("words") or run.summary.get("words") or {})
    found = [
        ("Vertices", run.measured.get("vertices"), "count", "s1"),
        ("Arcs", run.measured.get("arcs") or run.summary.get("arcs_per_rank"), "count", "s3"),
        ("Words received an epoch", words, "count", "s2"),
        (
            "Memory, at most",
            run.summary.get("peak_rss_bytes") or run.measured.get("rss_bytes"),
            "bytes",
            "s4",
        ),
    ]
    shown = [(name, [number(v) for v in vs], kind, colour) for name, vs, kind, colour in found if vs]
    shown = [entry for entry in shown if len(entry[1]) > 1 and max(entry[1]) > 0]
    if not shown:
        return ""
    cards = [
        figure(name, bars(vs, f"{name} by rank", kind, colour), note=f"Largest over mean {_skew(vs):.2f}")
        for name, vs, kind, colour in shown
    ]
    rows = [
        [name, told(min(vs), kind), told(sum(vs) / len(vs), kind), told(max(vs), kind), f"{_skew(vs):.3f}"]
        for name, vs, kind, _ in shown
    ]
    numbers = table("Balance over ranks", ["", "least", "mean", "most", "largest over mean"], rows)
    each = table(
        "By rank", ["rank", *(name.lower() for name, *_ in shown)],
        [[str(r), *(told(vs[r], kind) for _, vs, kind, _ in shown)] for r in range(len(shown[0][1]))],
    )  # fmt: skip
    more = f'<div class="tall">{folded("Rank by rank", each)}</div>'
    return f'<div class="cards">{"".join(cards)}{figure("In numbers", numbers, more, wide=True)}</div>'


def _by_rank(words: dict[str, list[float]]) -> list[float]:
    return [float(sum(column)) for column in zip(*words.values(), strict=True)]


def _skew(values: Sequence[float]) -> float:
    return max(values) * len(values) / (sum(values) or 1.0)


def predicted(run: Run) -> str:
    """Words as foretold before the epoch, and as they were; seconds, where a plan said some."""
    source = run.measured if run.measured.get("words") else run.summary
    words, foretold = source.get("words") or {}, source.get("predicted_words") or {}
    rows: list[list[object]] = []
    for phase in dict.fromkeys([*foretold, *words]):
        a, b = sum(foretold.get(phase, [])), sum(words.get(phase, []))
        rows.append([phase, f"{a:,}", f"{b:,}", _verdict(phase, words, foretold)])
    made = []
    if rows:
        a, b = sum(map(sum, foretold.values())), sum(map(sum, words.values()))
        whole = agrees(words, foretold)
        rows.append(["all", f"{a:,}", f"{b:,}", Safe("<span class=good>as predicted</span>") if whole
                     else Safe("<span class=bad>not as predicted</span>")])  # fmt: skip
        heads = ["phase", "predicted", "measured", "on every rank"]
        made.append(table("Words received by all ranks in one epoch", heads, rows, total=True))
    plan, took = run.summary.get("planned_epoch_seconds"), run.summary.get("epoch_seconds")
    if plan and took:
        row = [
            "an epoch",
            told(number(plan), "seconds"),
            told(number(took), "seconds"),
            f"{took / plan:.2f}x",
        ]
        made.append(
            table("Seconds, by the plan", ["", "planned", "measured", "measured over planned"], [row])
        )
    return figure("Predicted and measured", *made) if made else ""


def _verdict(phase: str, words: dict[str, Any], foretold: dict[str, Any]) -> Safe:
    same = words.get(phase) == foretold.get(phase)
    if same:
        return Safe("<span class=good>equal</span>")
    if phase == "errors" and agrees({phase: words.get(phase, 0)}, {phase: foretold.get(phase, 0)}):
        return Safe("<span class=good>at most that</span>")
    return Safe("<span class=bad>differs</span>")


def settings(run: Run) -> str:
    """What the run read: what differs from the defaults first, all of it on request."""
    known = fields()
    own: list[list[str]] = []
    rest: list[list[str]] = []
    for path, value in run.settings.items():
        default = known[path].default if path in known else None
        row = [path, shown(value), "" if path not in known else shown(default),
               known[path].help if path in known else "a setting that this weft does not know"]  # fmt: skip
        (rest if path in known and value == default else own).append(row)
    heads = ["setting", "value", "default", "meaning"]
    made = []
    if own:
        made.append(table("Settings that are not the default", heads, own, left=4))
    if rest:
        made.append(folded("Settings that are the default", table("Defaults", heads, rest, left=4)))
    if run.text:
        again = f"weft train {run.path / 'config.toml'}"
        made.append(
            folded(
                "config.toml",
                f"<pre>{esc(run.text)}</pre><p class=note>Repeat it: <code>{esc(again)}</code></p>",
            )
        )
    return figure("Settings", *made, wide=True) if made else ""


def shown(value: object) -> str:
    """A setting for people: yes or no, and a dash for an empty text.

    >>> shown(True), shown(""), shown(0.5)
    ('yes', '–', '0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in ("", None) else str(value)

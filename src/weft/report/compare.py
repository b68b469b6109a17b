"""Several runs side by side: one table, the settings that differ, curves on one chart."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .charts import Line, lines, steady
from .html import Safe, esc, figure, legend, table
from .runs import Run, number
from .sections import score_name, shown
from .units import told

_SETTING = ("state", "graph", "model", "layout")
"""What stands in words in the table of runs, left out where it is the same in all."""
_DASHES = ("", " d2", " d3", " d4")


def kind_of(place: int) -> str:
    """Colour and dash of the run at a place: the first 32 differ.

    >>> kind_of(0), kind_of(1), kind_of(8)
    ('s1', 's2 d2', 's1 d2')
    """
    return f"s{place % 8 + 1}{_DASHES[(place + place // 8) % 4]}"


def compare(runs: Sequence[Run]) -> str:
    """The section of several runs."""
    cards = [_curves(runs, "loss", "Training loss"), _curves(runs, "val_loss", "Validation loss")]
    scores = dict.fromkeys(
        name for run in runs for name in run.metrics() if name.startswith("val_") and name != "val_loss"
    )
    cards += [
        _curves(runs, name, f"{score_name(name.removeprefix('val_'), runs[0])}, validation", "score")
        for name in scores
    ]
    cards.append(_curves(runs, "seconds", "Time of an epoch", "seconds"))
    made = "".join(card for card in cards if card)
    return f'{figure("The runs", _table(runs))}<div class="cards">{made}</div>{_settings(runs)}'


def _curves(runs: Sequence[Run], name: str, title: str, kind: str = "plain") -> str:
    found = [Line(run.name, run.column(name), kind_of(i)) for i, run in enumerate(runs)]
    if kind == "seconds":
        found = [Line(line.name, steady(line.points), line.kind) for line in found]
    found = [line for line in found if any(math.isfinite(y) for _, y in line.points)]
    if not found:
        return ""
    keys = legend([(line.kind, line.name) for line in found])
    return figure(title, keys, lines(found, f"{title} of every run by epoch", "epoch", "", kind))


def _table(runs: Sequence[Run]) -> str:
    columns = [facts(run) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    alike = [n for n in _SETTING if len({column.get(n) for column in columns}) == 1]
    said = "What they gave"
    if alike:
        said += f"; all of them: {', '.join(columns[0][n] for n in alike)}"
    names = [n for n in names if n not in alike]
    rows = [
        [Safe(f'<a href="#run-{i}">{esc(run.name)}</a>'), *(_broken(columns[i].get(n, "–")) for n in names)]
        for i, run in enumerate(runs)
    ]
    return table(said, ["run", *names], rows, left=1 + sum(n in _SETTING for n in names))


def _broken(text: str) -> Safe:
    """A text whose lines may end after a comma between words, as a generator's arguments.

    >>> _broken("sbm:nodes=9,classes=2"), _broken("22,219")
    ('sbm:nodes=9,<wbr>classes=2', '22,219')
    """
    return Safe(re.sub(r",(?=[a-z])", ",<wbr>", esc(text)))


def facts(run: Run) -> dict[str, str]:
    """The numbers by which runs are compared."""
    summary, measured = run.summary, run.measured
    ranks = summary.get("ranks") or measured.get("ranks") or run.setting("parallel.ranks")
    grid = summary.get("grid") or measured.get("grid")
    strategy = str(run.setting("parallel.strategy"))
    out = {
        "state": run.state.state,
        "graph": str(run.setting("data.graph")),
        "model": str(run.setting("model.name")),
        "layout": f"{strategy} {'×'.join(map(str, grid))}" if grid else strategy,
        "ranks": str(ranks),
        "epochs": f"{run.state.epochs:,}",
    }
    losses = [y for _, y in run.column("loss")]
    out["last loss"] = told(losses[-1], "loss") if losses else "–"
    for key, value in (summary or _latest(run)).items():
        split, _, score = key.partition("_")
        if split in ("val", "test") and isinstance(value, (int, float)) and score != "loss":
            called = score_name(score, run)
            out[f"{split} {called.lower() if called == 'Accuracy' else called}"] = told(float(value), "score")
    seconds = sorted(y for _, y in run.column("seconds")[1:] or run.column("seconds") if math.isfinite(y))
    out["an epoch"] = told(seconds[len(seconds) // 2] if seconds else None, "seconds")
    words = measured.get("words") or summary.get("words") or {}
    received = [sum(column) for column in zip(*words.values(), strict=False)]
    out["words, busiest rank"] = told(float(max(received)), "count") if received else "–"
    most, whose = peak(run)
    out["memory, largest rank"] = told(most, "bytes") + (f", {whose}" if most and whose else "")
    return out


def peak(run: Run) -> tuple[float | None, str]:
    """(the most bytes that a rank held, whose they are where not every rank told).

    A run that died left what rank 0 wrote epoch by epoch.
    """
    memory = run.summary.get("peak_rss_bytes") or run.measured.get("rss_bytes") or []
    if memory:
        return max(number(m) for m in memory), ""
    held = [y for _, y in run.column("rss_bytes") if math.isfinite(y)]
    return max(held, default=None), "rank 0"


def _latest(run: Run) -> dict[str, float]:
    """What the epochs say of a run without a summary: every score as it was measured last."""
    found = {name: [y for _, y in run.column(name) if math.isfinite(y)] for name in run.metrics()}
    return {name: values[-1] for name, values in found.items() if values}


def _settings(runs: Sequence[Run]) -> str:
    paths = dict.fromkeys(path for run in runs for path in run.settings)
    values = {path: [shown(run.setting(path)) for run in runs] for path in paths}
    rows = [[path, *found] for path, found in values.items() if len(set(found)) > 1]
    if not rows:
        return '<p class="note">All settings of these runs are the same.</p>'
    heads = ["setting", *(run.name for run in runs)]
    return figure("Settings that differ", table("From config.toml", heads, rows, left=len(runs) + 1))

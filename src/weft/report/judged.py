"""What the scores are made of: who was taken for whom, how pairs rank."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .charts import Line, heat, lines
from .html import figure, folded, legend, table
from .runs import Run
from .sections import score_name
from .units import told

_CLASSES = 64
"""Classes up to which the square is drawn."""


def judged(run: Run) -> str:
    """The section of `Task.details`."""
    details: dict[str, Any] = run.measured.get("details") or {}
    scores = _scores(run)
    made: list[str] = []
    if details.get("kind") == "classes":
        numbers, made = _classes(details)
        scores += numbers
    elif details.get("kind") == "links":
        numbers, made = _links(details)
        scores += numbers
    first = figure("In numbers", scores) if scores else ""
    return f'<div class="cards">{first}{"".join(made)}</div>' if first or made else ""


def _scores(run: Run) -> str:
    """The scores of the kept weights, split by split."""
    names = ("train", "val", "test")
    found: dict[str, dict[str, float]] = {}
    for key, value in run.summary.items():
        split, _, score = key.partition("_")
        if split in names and score and isinstance(value, (int, float)):
            found.setdefault(score, {})[split] = float(value)
    rows = [
        [score_name(score, run), *(told(values.get(split), "score") for split in names)]
        for score, values in found.items()
    ]
    if not rows:
        return ""
    epoch = run.summary.get("best_epoch")
    return table(f"Of the weights that were kept, those of epoch {epoch}", ["score", *names], rows)


def _classes(details: dict[str, Any]) -> tuple[str, list[str]]:
    """(the classes' numbers, the square)."""
    split, square = details["split"], details.get("confusion")
    if square:
        c = len(square)
        true = [sum(row) for row in square]
        guessed = [sum(row[j] for row in square) for j in range(c)]
        right = [square[i][i] for i in range(c)]
    else:
        true, guessed, right = (details[key] for key in ("true", "guessed", "right"))
        c = len(true)
    rows = []
    for i in range(c):
        precision, recall = _over(right[i], guessed[i]), _over(right[i], true[i])
        f1 = _over(2 * right[i], true[i] + guessed[i])
        rows.append(
            [f"{i}", f"{true[i]:,}", f"{guessed[i]:,}", *(told(v, "score") for v in (precision, recall, f1))]
        )
    what = f"the {split} vertices"
    heads = ["class", "vertices", "taken for it", "precision", "recall", "F1"]
    numbers = table(f"Class by class, of {what}", heads, rows)
    made: list[str] = []
    if square and c <= _CLASSES:
        label = f"Of {what}: the class (row) and what they were taken for (column)"
        whole = table(label, ["class", *map(str, range(c))], [[str(i), *row] for i, row in enumerate(square)])
        wrong = sum(true) - sum(right)
        made.append(
            figure(
                "Who was taken for whom",
                heat(square, label, "class", "taken for", share=True),
                folded("As a table", whole),
                note=f"{sum(true):,} {split} vertices, {wrong:,} of them wrong. Shades are shares of a row.",
            )
        )
    return f'<div class="tall">{numbers}</div>', made


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


def _links(details: dict[str, Any]) -> tuple[str, list[str]]:
    """(Hits@K, the curve and the scores)."""
    made: list[str] = []
    split, share_above = details["split"], ""
    hits = details.get("hits") or {}
    if hits:
        rows = [[f"Hits@{k}", told(float(v), "score")] for k, v in hits.items()]
        caption = f"True {split} pairs that score above the K-th best false one"
        share_above = table(caption, ["", "share"], rows)
    roc = details.get("roc") or []
    if roc:
        points = [(100 * float(a), float(b)) for a, b in roc]
        line = [
            Line("true pairs above the bar", points, "s1"),
            Line("by chance", [(0, 0), (100, 1)], "calm d2"),
        ]
        picture = lines(
            line,
            "Share of true pairs above a bar, by the share of false ones",
            "% of false pairs above a bar",
            "",
            "score",
        )
        rows = [[f"{a:.1f} %", told(b, "score")] for a, b in points[:: max(1, len(points) // 20)]]
        numbers = table("The curve", ["false pairs above a bar", "true pairs above it"], rows)
        keys = legend([(entry.kind, entry.name) for entry in line])
        made.append(figure("True against false pairs (ROC)", keys, picture, folded("As a table", numbers)))
    histogram = details.get("histogram") or {}
    if histogram:
        edges = [float(e) for e in histogram["edges"]]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        curves = []
        for key, kind in (("true", "s1"), ("false", "s2 d2")):
            total = sum(histogram[key]) or 1
            points = [(x, n / total) for x, n in zip(middles, histogram[key], strict=True)]
            curves.append(Line(f"{key} pairs", points, kind))
        label = "How true and false pairs spread over the scores"
        keys = legend([(curve.kind, curve.name) for curve in curves])
        rows = [
            [f"{a:.2f} to {b:.2f}", f"{t:,}", f"{f:,}"]
            for a, b, t, f in zip(edges, edges[1:], histogram["true"], histogram["false"], strict=False)
        ]
        numbers = table(label, ["score", "true pairs", "false pairs"], rows)
        picture = lines(curves, label, "score (logit)", "share of pairs", "plain", whole=False)
        made.append(figure("Scores of pairs", keys, picture, folded("As a table", numbers)))
    return share_above, made

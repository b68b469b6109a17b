"""What a run leaves in its folder: NAME.csv, NAME.png, and NAME.txt with the paper's numbers beside ours."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError
from .item import PAPER, Outcome, Row


def check_folder(folder: str, names: list[str]) -> None:
    """Refuse a folder that cannot be written or has files of these names, before anything is run."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}. Choose another --out.") from None
    if not os.access(path, os.W_OK):
        raise UserError(f"cannot write into {folder}. Choose another --out.")
    for name in names:
        for ending in (".csv", ".png", ".txt"):
            if (path / f"{name}{ending}").exists():
                raise UserError(f"{path / name}{ending} exists already. Choose another --out, or remove it.")


def write(outcome: Outcome, folder: str, name: str, title: str, picture: bool = True) -> list[str]:
    """The three files; their paths."""
    base = Path(folder) / name
    text = [title, *map(str, outcome.compared), *sizes_of(outcome.rows)]
    text += [f"note: {note}" for note in outcome.notes]
    made = [f"{base}.csv", f"{base}.txt"]
    try:
        with open(made[0], "x", newline="", encoding="utf-8") as file:
            flat = [_flat(row) for row in outcome.rows]
            names = list(dict.fromkeys(key for row in flat for key in row))
            writer = csv.DictWriter(file, names, restval="")
            writer.writeheader()
            writer.writerows(flat)
        with open(made[1], "x", encoding="utf-8") as file:
            file.write("\n".join(text) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}. Choose another --out.") from None
    if picture:
        outcome.draw(f"{base}.png")
        made.append(f"{base}.png")
    return made


def sizes_of(rows: Sequence[Row]) -> list[str]:
    """A line for each graph: its size, and on how many ranks or parts it was measured or foretold.

    >>> row = {"kind": "measured", "graph": "karate", "vertices": 34, "arcs": 156, "ranks": 2}
    >>> sizes_of([row, row | {"ranks": 4}, row | {"kind": "paper"}])
    ['measured: karate, 34 vertices, 156 arcs; ranks 2, 4']
    """
    found: dict[str, dict[str, dict[Any, None]]] = {}
    for row in rows:
        if row["kind"] == PAPER:
            continue
        counts = [f"{row[key]:,} {key}" for key in ("vertices", "arcs") if key in row]
        what = ", ".join([f"{row['kind']}: {row['graph']}", *counts])
        over = found.setdefault(what, {"ranks": {}, "parts": {}})
        for key, values in over.items():
            if key in row:
                values[row[key]] = None
    return [
        "; ".join([what, *(f"{key} {', '.join(map(str, v))}" for key, v in over.items() if v)])
        for what, over in found.items()
    ]


def _flat(row: Row) -> dict[str, Any]:
    """Tables inside a row as columns of their own.

    >>> _flat({"ranks": 2, "time": {"spmm": 0.5}})
    {'ranks': 2, 'time.spmm': 0.5}
    """
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": number for inner, number in value.items()}
        else:
            found[key] = value
    return found

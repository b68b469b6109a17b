"""A run folder, read with care: what is missing or odd becomes a note, never an error."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError
from ..train.config import fields, read_toml
from ..train.run import RunState, is_run, read_records, read_summary, state_of

_MOST_BYTES = 1 << 28
"""A file of a run folder that is larger is not read."""


@dataclass
class Run:
    """What a run folder tells."""

    path: Path
    """Its folder."""
    name: str
    """What the report calls it: the folder's name."""
    state: RunState
    """Running, ended, died, stopped, failed; and at which epoch."""
    settings: dict[str, Any] = field(default_factory=dict)
    """`{section.name: value}` of config.toml."""
    text: str = ""
    """config.toml as it stands."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """A line of metrics.jsonl each."""
    summary: dict[str, Any] = field(default_factory=dict)
    """summary.json; empty where the run did not come to an end."""
    measured: dict[str, Any] = field(default_factory=dict)
    """measured.json: one epoch, rank by rank."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know of it."""

    @property
    def version(self) -> str:
        """The weft that made it; empty: it does not say."""
        return str(self.summary.get("version") or self.measured.get("version") or "")

    def setting(self, path: str) -> Any:
        """A setting's value, the default where the run does not name it."""
        known = fields().get(path)
        return self.settings.get(path, None if known is None else known.default)

    def column(self, name: str) -> list[tuple[float, float]]:
        """(epoch, value) of a metric, where it was measured; what is not finite is nan."""
        return [
            (float(record["epoch"]), number(record[name]))
            for record in self.records
            if name in record and not isinstance(record["epoch"], bool)
        ]

    def metrics(self) -> list[str]:
        """The names of all that was recorded."""
        return list(dict.fromkeys(name for record in self.records for name in record))


def number(value: Any) -> float:
    """A number as JSON has it: null is not finite.

    >>> number(3), number(None), number("3")
    (3.0, nan, nan)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return float("nan")


def read_run(path: Path) -> Run:
    """What a run folder holds; a folder that is no run is a `UserError`."""
    if not path.exists():
        raise UserError(f"no folder {path}. Give a run folder that weft train made.")
    if not is_run(path):
        raise UserError(f"{path} is not a run folder: it has no config.toml. Give one that weft train made.")
    run = Run(path, path.resolve().name, state_of(path))
    _read_settings(run)
    run.records = read_records(path)
    run.summary = read_summary(path) or {}
    run.measured = _read_json(path / "measured.json", run.notes)
    run.notes[:0] = _about(run)
    return run


def _read_settings(run: Run) -> None:
    path = run.path / "config.toml"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} is larger than any config")
        run.text = path.read_text(encoding="utf-8", errors="replace")
        run.settings = read_toml(path)
    except (UserError, OSError) as error:
        run.notes.append(f"The settings cannot be read: {error}")
        return
    strange = sorted(set(run.settings) - set(fields()))
    strange = [name for name in strange if name.rsplit(".", 1)[0] not in fields()]
    if strange:
        run.notes.append(f"This weft does not know the settings {', '.join(strange[:8])}.")


def _read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            notes.append(f"{path.name} is larger than anything that weft writes there; it is left out.")
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        notes.append(f"{path.name} is damaged; what it would show is left out.")
        return {}
    return found


def _about(run: Run) -> list[str]:
    notes = []
    state = run.state
    if state.state != "ended":
        notes.append(f"This run {'is ' if state.state == 'running' else ''}{state.line()}.")
    if not run.records:
        notes.append("No epoch was recorded.")
    if not run.measured:
        notes.append(
            "It has no measured.json, which weft writes after its second epoch: the time line, the map of "
            "messages and what the scores are made of are left out."
        )
    if run.version and run.version != __version__:
        notes.append(
            f"It was made by weft {run.version}; this is weft {__version__}. What both know is shown."
        )
    elif not run.version and (run.summary or run.measured):
        notes.append(f"It does not say which weft made it: one before {__version__} kept no version.")
    return notes


def name_apart(runs: list[Run]) -> None:
    """Runs whose folders have the same name are named by their paths."""
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = str(run.path)

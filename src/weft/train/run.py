"""The run folder: the config, a line of metrics per epoch, the weights; and what state a run is in.

A folder belongs to one run. The same command continues it until it has ended; any other is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .checkpoint import checkpoints, clear, prune
from .config import Field, RunConfig, fields, load_toml, to_toml, unread_by

_FREE = {
    "data.graph", "data.data", "train.threads", "train.device", "train.trace", "train.out", "train.epochs",
    "train.checkpoint_every", "train.keep", "train.on_nan", "train.restarts", "train.log_every",
    "train.log", "train.rank_logs",
    "batch.feed", "batch.memory_budget",
}  # fmt: skip
"""Settings that a run may go on with other values of, and all of [parallel]: they change no result beyond
rounding. The graph is compared by its checksum, not by its name."""
_SPANS = ("cosine", "linear")
"""Schedules whose length is the number of epochs."""


class RunFolder:
    """A folder that holds one run and nothing else.

    config.toml     what the run read, not where it wrote (folder, trace); `weft train config.toml` repeats it
    metrics.jsonl   one JSON object per epoch
    measured.json   one epoch rank by rank, and what the scores are made of, for `weft report`
    logs/           a log of each rank, with `--rank-logs`; tensorboard/, wandb/ with `--log`
    checkpoints/    the whole state, while the run has not ended
    weights.pt      the kept weights, a dict of tensors
    embeddings.npy  the kept embeddings of the vertices, where they were learned
    summary.json    what `weft train --json` prints

    Whoever trains holds a lock on metrics.jsonl, which goes with the process.
    """

    def __init__(self, path: Path):
        self.path = path
        self._metrics = (path / "metrics.jsonl").open("ab", buffering=0)
        self._said = False
        if not _lock(self._metrics.fileno(), fcntl.LOCK_EX):
            self._metrics.close()
            raise _running(path)

    @classmethod
    def create(cls, config: RunConfig) -> RunFolder:
        """Make the folder that the config names, or the next free `runs/<graph>-<model>-<number>`."""
        path = _new(Path(config.train.out)) if config.train.out else _make_next(config)
        repeatable = dataclasses.replace(config, train=dataclasses.replace(config.train, out="", trace=""))
        try:
            (path / "config.toml").write_text(to_toml(repeatable), encoding="utf-8")
            return cls(path)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)  # ours: it was made just now
            raise UserError(f"cannot write into {path}: {error.strerror}. Name another with --out.") from None

    @classmethod
    def reopen(cls, path: Path, epoch: int, torn: list[str]) -> RunFolder:
        """Go on in a folder: what was recorded of `epoch` and later is written again, torn checkpoints go."""
        folder = cls(path)
        clear(path, [path / "checkpoints" / name for name in torn])
        keep = 0
        for end, record in _records(path):
            if record["epoch"] < epoch:
                keep = end
        os.ftruncate(folder._metrics.fileno(), keep)
        (path / "summary.json").unlink(missing_ok=True)  # of a stop that is over: the run goes on
        return folder

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.close()

    def record(self, metrics: dict[str, Any]) -> None:
        """Append one epoch; written through, so that nothing is lost when the process dies.

        A disk that is full costs the line, not the training.
        """
        line = (json.dumps(finite(metrics)) + "\n").encode()
        size = os.fstat(self._metrics.fileno()).st_size
        try:
            written = self._metrics.write(line)
            reason = "" if written == len(line) else "No space left on device"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            os.ftruncate(self._metrics.fileno(), size)  # half a line would spoil those that follow
            if not self._said:
                print(f"weft: metrics.jsonl lacks epochs: {reason}. Training goes on.", file=sys.stderr)
            self._said = True

    def measured(self, found: dict[str, Any]) -> None:
        """Keep what was measured; a disk that is full costs this, not the training."""
        try:
            with self._whole("measured.json") as part:
                part.write_text(json.dumps(finite(found)) + "\n", encoding="utf-8")
        except UserError as error:
            print(f"weft: {error}", file=sys.stderr)

    def finish(self, weights: dict[str, Tensor], summary: dict[str, Any]) -> None:
        """Save the weights and the summary, each in one step: a file is whole or not there."""
        packed = io.BytesIO()  # torch's own writer says of a full disk only that something is wrong
        torch.save(weights, packed)
        with self._whole("weights.pt") as part:
            part.write_bytes(packed.getbuffer())
        with self._whole("summary.json") as part:
            part.write_text(json.dumps(finite(summary), indent=1) + "\n", encoding="utf-8")
        if not summary.get("interrupted") and not summary.get("failure"):
            prune(self.path, 0)  # it has ended: what it could go on from goes

    @contextlib.contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        part = self.path / f"{name}.part"
        try:
            yield part
            os.replace(part, self.path / name)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UserError(
                f"cannot write {self.path / name}: {error.strerror}. Make room, then go on: "
                f"weft train --resume {self.path}."
            ) from None


# The state of a run


@dataclass(frozen=True)
class RunState:
    """What a run folder tells of its run."""

    state: str
    """running, ended, stopped (by Ctrl-C or a signal), failed (it says why), or died."""
    epochs: int
    """Epochs that were recorded."""
    resumable: bool
    """Whether it can go on: from a checkpoint, or from the beginning where it died before the first."""
    checkpoint: str
    """The newest, `epoch.updates`; empty: there is none."""
    failure: str = ""

    def line(self) -> str:
        """For people.

        >>> RunState("died", 190, True, "000190.000000").line()
        'died in epoch 191, resumable from checkpoint 000190.000000'
        """
        if self.state == "ended":
            return f"ended, {self.epochs} epochs"
        if self.state == "running":
            return f"running, epoch {self.epochs + 1}"
        how = {"stopped": "stopped", "failed": "failed", "died": "died"}[self.state]
        source = f"checkpoint {self.checkpoint}" if self.checkpoint else "the beginning"
        rest = f"resumable from {source}" if self.resumable else "not resumable"
        return f"{how} in epoch {self.epochs + 1}, {rest}{f': {self.failure}' if self.failure else ''}"


def is_run(path: Path) -> bool:
    """Whether a folder is one that `weft train` made."""
    return (path / "config.toml").is_file()


def refuse_pipes(path: Path) -> None:
    """A run folder may be somebody else's: a pipe in it would be waited for."""
    for folder, _, names in os.walk(path):
        for file in (Path(folder, name) for name in names):
            if file.exists() and not file.is_file():
                raise UserError(f"{file} is no plain file. Remove it, or name another run.")


def state_of(path: Path) -> RunState:
    """What state a run is in, from its folder alone."""
    refuse_pipes(path)
    summary = read_summary(path)
    records, found = _records(path), checkpoints(path)
    epochs = records[-1][1]["epoch"] if records else 0
    newest = found[0].name if found else ""
    if _is_locked(path):
        return RunState("running", epochs, False, newest)
    if summary is None:
        return RunState("died", epochs, True, newest)
    failure = summary.get("failure") or ""
    if failure or summary.get("interrupted"):
        return RunState("failed" if failure else "stopped", epochs, bool(newest), newest, str(failure))
    return RunState("ended", epochs, False, newest)


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a run that came to an end; None where there is none that can be read."""
    try:
        found = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_records(path: Path) -> list[dict[str, Any]]:
    """The epochs of metrics.jsonl, up to the first line that is not whole."""
    return [record for _, record in _records(path)]


def standing(config: RunConfig) -> RunState | None:
    """The state of the run that `out` names; None where there is no such folder yet.

    Refused, before any work is done: a path that is no run folder, a run with other settings, one that
    somebody trains just now, and one that cannot go on.
    """
    path = Path(config.train.out)
    if not config.train.out or not os.path.lexists(path):
        return None
    if not is_run(path):
        raise _exists(path)
    theirs = RunConfig()
    load_toml(theirs, path / "config.toml")
    for setting in _differing(config, theirs):
        raise UserError(
            f"{path} holds a run with {setting.path} = {setting.of(theirs)!r}, not {setting.of(config)!r}. "
            "Choose another --out, or the run's own settings."
        )
    found = state_of(path)
    if found.state == "running":
        raise _running(path)
    if found.state != "ended" and not found.resumable:
        raise UserError(
            f"{path} holds a run that {found.state} and has no checkpoint to go on from. "
            "Choose another --out."
        )
    return found


def _differing(a: RunConfig, b: RunConfig) -> Iterator[Field]:
    """Settings that change a run and differ in two configs."""
    for path, setting in fields().items():
        free = path in _FREE or setting.section == "parallel"
        if path == "train.epochs" and a.train.scheduler in _SPANS:
            free = False
        read = unread_by(a, setting) is None or unread_by(b, setting) is None
        if not free and read and setting.of(a) != setting.of(b):
            yield setting


def _records(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """(where it ends, the record) of the lines of metrics.jsonl, up to the first that is not whole."""
    found: list[tuple[int, dict[str, Any]]] = []
    end = 0
    with contextlib.suppress(OSError, ValueError, RecursionError):
        for line in (path / "metrics.jsonl").read_bytes().splitlines(keepends=True):
            record, end = json.loads(line), end + len(line)
            whole = line.endswith(b"\n") and isinstance(record, dict)
            if not whole or type(record.get("epoch")) is not int:
                break
            found.append((end, record))
    return found


def _lock(file: int, how: int) -> bool:
    """Whether the lock was got; true too where the file system has none."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_locked(path: Path) -> bool:
    try:
        with (path / "metrics.jsonl").open("rb") as file:
            return not _lock(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _running(path: Path) -> UserError:
    return UserError(f"{path} is being trained just now. Wait for its end, or choose another --out.")


def finite(value: Any) -> Any:
    """The same with NaN and infinity as null: JSON has neither.

    >>> finite({"loss": [1.0, float("nan")]})
    {'loss': [1.0, None]}
    """
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def next_name(config: RunConfig, parent: Path = Path("runs")) -> Path:
    """The next free `runs/<graph>-<model>-<number>`."""
    graph = Path(config.data.graph.split(":")[0]).name.split(".")[0] or "graph"
    for number in range(1, 1_000_000):
        path = parent / f"{graph}-{config.model.name}-{number}"
        if not os.path.lexists(path):
            return path
    raise UserError(f"{parent} holds a million runs. Name a folder with --out.")


def _make_next(config: RunConfig) -> Path:
    while True:
        with contextlib.suppress(_Taken):  # another run was faster
            return _new(next_name(config))


class _Taken(UserError):
    """The folder exists."""


def _exists(path: Path) -> _Taken:
    return _Taken(f"{path} exists already. Choose another --out, or remove it.")


def _new(path: Path) -> Path:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise _exists(path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot make the run folder {path}: {reason}. Name another with --out.") from None
    return path

"""The run folder: the config, a line of metrics per epoch, the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .config import RunConfig, to_toml


class RunFolder:
    """A folder that holds one run and nothing else.

    config.toml     what the run read, but the folder; `weft train config.toml` repeats the run in a new one
    metrics.jsonl   one JSON object per epoch
    weights.pt      the kept weights, a dict of tensors
    embeddings.npy  the kept embeddings of the vertices, where they were learned
    summary.json    what `weft train --json` prints
    """

    def __init__(self, path: Path):
        self.path = path
        self._metrics = (path / "metrics.jsonl").open("a", encoding="utf-8")

    @classmethod
    def create(cls, config: RunConfig) -> RunFolder:
        """Make the folder that the config names, or the next free `runs/<graph>-<model>-<number>`."""
        path = _new(Path(config.train.out)) if config.train.out else _next_free(Path("runs"), config)
        repeatable = dataclasses.replace(config, train=dataclasses.replace(config.train, out=""))
        (path / "config.toml").write_text(to_toml(repeatable), encoding="utf-8")
        return cls(path)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.close()

    def record(self, metrics: dict[str, Any]) -> None:
        """Append one epoch; written through, so that nothing is lost when the process dies."""
        self._metrics.write(json.dumps(finite(metrics)) + "\n")
        self._metrics.flush()

    def finish(self, weights: dict[str, Tensor], summary: dict[str, Any]) -> None:
        """Save the weights and the summary, each in one step: a file is whole or not there."""
        with self._whole("weights.pt") as part:
            torch.save(weights, part)
        with self._whole("summary.json") as part:
            part.write_text(json.dumps(finite(summary), indent=1) + "\n", encoding="utf-8")

    @contextlib.contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        part = self.path / f"{name}.part"
        yield part
        os.replace(part, self.path / name)


def check_free(config: RunConfig) -> None:
    """Refuse a run folder that exists, before any work is done for it."""
    if config.train.out and os.path.lexists(config.train.out):
        raise _exists(Path(config.train.out))


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


def _next_free(parent: Path, config: RunConfig) -> Path:
    graph = Path(config.data.graph.split(":")[0]).name.split(".")[0] or "graph"
    for number in range(1, 1_000_000):
        path = parent / f"{graph}-{config.model.name}-{number}"
        if not os.path.lexists(path):
            with contextlib.suppress(_Taken):  # another run was faster
                return _new(path)
    raise UserError(f"{parent} holds a million runs. Name a folder with --out.")


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

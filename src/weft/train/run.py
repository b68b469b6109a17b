"""The run folder: the config, a line of metrics per epoch, the weights."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .config import RunConfig, to_toml


class RunFolder:
    """A folder that holds one run and nothing else.

    config.toml     every setting; `weft train config.toml` repeats the run
    metrics.jsonl   one JSON object per epoch
    weights.pt      the kept weights, a dict of tensors
    summary.json    what `weft train --json` prints
    """

    def __init__(self, path: Path):
        self.path = path
        self._metrics = (path / "metrics.jsonl").open("a", encoding="utf-8")

    @classmethod
    def create(cls, config: RunConfig) -> RunFolder:
        """Make the folder that the config names, or the next free `runs/<graph>-<model>-<number>`."""
        if config.train.out:
            path = Path(config.train.out)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                raise UserError(f"{path} exists already. Choose another --out, or remove it.") from None
            except OSError as error:
                raise UserError(f"cannot make the run folder {path}: {error.strerror}. Choose another --out.") from None
        else:
            path = _next_free(Path("runs"), config)
        (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
        return cls(path)

    def record(self, metrics: dict[str, Any]) -> None:
        """Append one epoch; written through, so that nothing is lost when the process dies."""
        self._metrics.write(json.dumps(finite(metrics)) + "\n")
        self._metrics.flush()

    def finish(self, weights: dict[str, Tensor], summary: dict[str, Any]) -> None:
        """Save the weights and the summary, each in one step."""
        self._metrics.close()
        part = self.path / "weights.pt.part"
        torch.save(weights, part)
        os.replace(part, self.path / "weights.pt")
        (self.path / "summary.json").write_text(json.dumps(finite(summary), indent=1) + "\n", encoding="utf-8")

    def close(self) -> None:
        self._metrics.close()


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
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"cannot make the run folder {path}: {error.strerror}. Name another with --out.") from None
    raise UserError(f"{parent} holds a million runs. Name a folder with --out.")

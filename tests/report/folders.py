"""Run folders, as weft train leaves them: one of a training on virtual ranks, and some by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.comm import run_ranks
from weft.train import RunConfig, Trainer
from weft.train.run import RunFolder

from ..train.graphs import config, small


def trained(path: Path, ranks: int = 3, **changes: Any) -> Path:
    """A run of a few epochs, by the same calls as `weft train`."""
    made: RunConfig = config(epochs=4, **changes)
    made.train.out, made.parallel.ranks, made.parallel.strategy = str(path), ranks, "1d"

    def work(comm):
        trainer = Trainer(small(), made, comm)
        folder = RunFolder.create(made) if comm.rank == 0 else None
        result = trainer.fit(folder)
        summary = result.as_dict() | result.gather(trainer)
        if folder is not None:
            folder.measured(result.measured | {"version": summary["version"], "details": result.details})
            folder.finish(trainer.model.state_dict(), summary)
            folder.__exit__()

    run_ranks(work, ranks, "threads")
    return path


def written(path: Path, records: int = 0, **files: Any) -> Path:
    """A folder by hand: `config` is the text of config.toml, `summary` and `measured` are data."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(files.get("config", '[data]\ngraph = "karate"\n'))
    lines = [json.dumps({"epoch": e, "loss": 2.0 / e, "seconds": 0.01 * e}) for e in range(1, records + 1)]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for name in ("summary", "measured"):
        if name in files:
            (path / f"{name}.json").write_text(json.dumps(files[name]))
    return path

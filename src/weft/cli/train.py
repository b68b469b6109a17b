"""weft train: from a graph and options to trained weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..train.config import RunConfig
from .options import Parser, add_config, config_from

_EXAMPLES = """  weft train                                         a built-in graph
  weft train sbm:nodes=50000,classes=10 --hidden 128  the same, larger
  weft train cora --model sage --aggregate max        a data set under $WEFT_DATA
  weft train g.weft --layers 3 --epochs 500 --patience 50 --out runs/mine
  weft train run.toml --set model.hidden=256          everything can stand in a TOML file
  weft train cora --json > result.json"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser("train", "Train a graph neural network on one graph, full batch.", _EXAMPLES)
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, nothing else")
    parsed = parser.parse(arguments)
    config = config_from(parsed)
    return train(config, as_json=parsed.json)


def train(config: RunConfig, as_json: bool) -> int:
    """Load, train, save, tell."""
    import torch
    from rich.console import Console

    from ..graph import load, split
    from ..kernels import native
    from ..train.run import RunFolder, finite
    from ..train.trainer import Trainer

    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    console = Console(stderr=as_json, highlight=False)
    graph = load(config.data.graph, config.data.data or None)
    if graph.labels is not None and graph.train_mask is None:
        graph = split(graph, config.data.train_share, config.data.val_share, config.train.seed)
    trainer = Trainer(graph, config)
    folder = RunFolder.create(config)

    kernels = f"C++ kernels ({native.extension.isa()})" if native.extension else "torch kernels"
    widths = "-".join(map(str, trainer.model.widths))
    console.print(
        f"[bold]{graph.name}[/bold]  {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, "
        f"{graph.num_features:,} features, {graph.num_classes} classes"
    )
    console.print(
        f"[bold]{config.model.name}[/bold]  {widths}, {config.train.dtype}, "
        f"{torch.get_num_threads()} threads, {kernels}"
    )
    with _progress(config.train.epochs) as tick:
        result = trainer.fit(folder, tick)
    summary = result.as_dict() | _placement() | {"run": str(folder.path)}
    folder.finish(trainer.model.state_dict(), summary)

    if as_json:
        json.dump(finite(summary), sys.stdout)
        print()
    else:
        name = "micro-F1" if graph.multilabel else "accuracy"
        chance = "" if graph.multilabel else f"  (chance {1 / graph.num_classes:.3f})"
        scores = "   ".join(f"{split} [bold]{value:.4f}[/bold]" for split, value in result.accuracy.items())
        stop = ", stopped by Ctrl-C" if result.interrupted else ""
        console.print(f"{name}  {scores}{chance}")
        console.print(
            f"epoch     {result.epoch_seconds * 1e3:.1f} ms, {len(result.loss)} run{stop}, "
            f"weights of epoch {result.best_epoch} kept; peak memory {summary['peak_rss_bytes'][0] / 2**20:.0f} MB"
        )
        console.print(f"run       {folder.path}")
    return 130 if result.interrupted else 0


def _placement() -> dict[str, Any]:
    """How the work lay: one process is the 1×1×1 grid, and nothing moves."""
    return {
        "strategy": "1d", "grid": [1, 1, 1], "exchange": "dense", "ranks": 1,
        "words": {}, "messages": {}, "predicted_words": {},
    }  # fmt: skip


@contextmanager
def _progress(epochs: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error; yields the function to call after each epoch."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs, note="")

        def tick(record: dict[str, Any]) -> None:
            note = f"loss {record['loss']:.4f}"
            if "val_accuracy" in record and record["val_accuracy"] == record["val_accuracy"]:
                note += f"  val {record['val_accuracy']:.4f}"
            bar.update(task, completed=record["epoch"], note=note)

        yield tick



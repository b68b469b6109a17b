"""weft train: from a graph and options to trained weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..train.config import RunConfig
from .options import Parser, add_config, config_from

if TYPE_CHECKING:
    from ..graph import Graph
    from ..train.trainer import Result, Trainer

_EXAMPLES = """  weft train                                           a built-in graph
  weft train sbm:nodes=50000,classes=10 --hidden 128   the same, larger
  weft train cora --model sage --aggregate max         a data set under $WEFT_DATA
  weft train g.weft --layers 3 --epochs 500 --patience 50 --out runs/mine
  weft train run.toml --set model.hidden=256           everything can stand in a TOML file
  weft train runs/mine/config.toml                     repeat a run
  weft train cora --json > result.json"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "train", "[GRAPH | RUN.toml] [OPTIONS]", "Train a graph neural network on one graph, full batch.",
        _EXAMPLES,
    )  # fmt: skip
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parsed = parser.parse(arguments)
    return train(config_from(parsed), as_json=parsed.json)


def train(config: RunConfig, as_json: bool) -> int:
    """Load, train, save, tell."""
    import torch

    from ..train.run import RunFolder, check_free, finite
    from ..train.trainer import Trainer, check_options

    check_options(config)
    check_free(config)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    say = _say_to(sys.stderr if as_json else sys.stdout)
    graph = _load(config)
    trainer = Trainer(graph, config)
    with RunFolder.create(config) as folder:
        for line in _heading(graph, trainer):
            say(line)
        with _progress(config.train.epochs) as tick:
            result = trainer.fit(folder, tick)
        summary = result.as_dict() | _placement() | {"run": str(folder.path)}
        folder.finish(trainer.model.state_dict(), summary)
    if as_json:
        print(json.dumps(finite(summary)))
    else:
        for line in _outcome(graph, result, summary):
            say(line)
    return 130 if result.interrupted else 0


def _load(config: RunConfig) -> Graph:
    """The graph that the config names, split where it brings no split."""
    from ..graph import load, split

    graph = load(config.data.graph, config.data.data or None)
    if graph.labels is None or graph.train_mask is not None:
        return graph
    shares = (config.data.train_share, config.data.val_share)
    train, val = (int(share) if share >= 1 and share.is_integer() else share for share in shares)
    return split(graph, train, val, config.train.seed)


def _heading(graph: Graph, trainer: Trainer) -> Iterator[str]:
    import torch

    from ..kernels import native

    config = trainer.config
    kernels = f"C++ kernels ({native.extension.isa()})" if native.extension else "torch kernels"
    widths = "-".join(map(str, trainer.model.widths))
    yield (
        f"graph     {graph.name}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, "
        f"{graph.num_features:,} features, {graph.num_classes:,} classes"
    )
    threads = torch.get_num_threads()
    yield (
        f"model     {config.model.name} {widths}, {config.train.dtype}, "
        f"{threads} thread{'s' if threads > 1 else ''}, {kernels}"
    )


def _outcome(graph: Graph, result: Result, summary: dict[str, Any]) -> Iterator[str]:
    name = "micro-F1" if graph.multilabel else "accuracy"
    scores = "   ".join(f"{split} {value:.4f}" for split, value in result.accuracy.items())
    chance = "" if graph.multilabel else f"   (chance {1 / graph.num_classes:.3f})"
    yield f"{name}  {scores}{chance}"
    stop = ", stopped by Ctrl-C" if result.interrupted else ""
    memory = summary["peak_rss_bytes"][0] / 2**20
    each = f"{result.epoch_seconds * 1e3:.1f} ms each"
    yield f"epochs    {len(result.loss)}{stop}, {each}; peak memory {memory:,.0f} MB"
    yield f"run       {summary['run']} (weights of epoch {result.best_epoch})"


def _say_to(stream: Any) -> Callable[[str], None]:
    """Prints a line, its first word bold where somebody watches."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)

    def say(line: str) -> None:
        text = Text(line)
        text.stylize("bold", 0, len(line.split()[0]))
        console.print(text, soft_wrap=True)

    return say


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
        TextColumn("training "), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs, note="")
        scores = ""

        def tick(record: dict[str, Any]) -> None:
            nonlocal scores
            if "val_accuracy" in record and record["val_accuracy"] == record["val_accuracy"]:
                scores = f"  val {record['val_accuracy']:.4f}"
            bar.update(task, completed=record["epoch"], note=f"loss {record['loss']:.4f}{scores}")

        try:
            yield tick
        except UserError:
            bar.live.transient = True  # the one line of the error stands alone
            raise

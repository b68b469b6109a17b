"""weft train: from a graph and options to trained weights."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..train.config import RunConfig
from ..train.run import check_free
from .options import Parser, add_config, config_from
from .ranks import on_ranks

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..graph import Graph, Store
    from ..train.trainer import Result, Trainer

_EXAMPLES = """  weft train                                           a built-in graph
  weft train sbm:nodes=50000,classes=10 --hidden 128   the same, larger
  weft train cora --model sage --aggregate max         a data set under $WEFT_DATA
  weft train g.weft --ranks 4 --strategy 2d            four ranks on a 2 x 2 grid
  weft train g.weft --ranks 8 --strategy grid --grid 4x2x1 --exchange sparse
  weft train g.weft --batch-size 1000 --fanouts 25,10 --feed push-pull --ranks 4
  weft train g.weft --layers 3 --epochs 500 --patience 50 --out runs/mine
  weft train run.toml --set model.hidden=256           everything can stand in a TOML file
  weft train runs/mine/config.toml                     repeat a run
  weft train cora --json > result.json
  weft train cora --task link --model sage             links of papers: Hits@20, MRR, AUC
  weft train ogbl-ddi --task link --model sage --hidden 256 --evaluate-every 5"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "train", "[GRAPH | RUN.toml] [OPTIONS]",
        "Train a graph neural network on one graph, full batch or in sampled mini-batches.", _EXAMPLES,
    )  # fmt: skip
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--store", help=argparse.SUPPRESS)  # a rank that we started reads the graph here
    parsed = parser.parse(arguments)
    config = config_from(parsed)
    check_free(config)
    from ..train.sampled import check_batches

    check_batches(config)
    flags = ["--json"] if parsed.json else []
    work = functools.partial(train, config=config, as_json=parsed.json)
    return on_ranks(["train"], config, work, flags, parsed.store)


def train(comm: Communicator, source: Graph | Store, config: RunConfig, as_json: bool) -> int:
    """What every rank does: train; rank 0 saves and tells."""
    from ..train.run import RunFolder, finite
    from ..train.tasks import make_trainer

    trainer = make_trainer(source, config, comm)
    if comm.rank:
        result = trainer.fit()
        result.gather(trainer)
        trainer.save(Path(comm.all_gather_json("")[0]))
        _trace(result, config)
        return 130 if result.interrupted else 0
    say = _say_to(sys.stderr if as_json else sys.stdout)
    with RunFolder.create(config) as folder:
        for line in _heading(source, trainer):
            say(line)
        watched = f"val_{config.link.best_by}" if config.train.task == "link" else "val_accuracy"
        with _progress(config.train.epochs, watched) as tick:
            result = trainer.fit(folder, tick)
        summary = result.as_dict() | result.gather(trainer) | {"run": str(folder.path)}
        trainer.save(Path(comm.all_gather_json(str(folder.path.resolve()))[0]))
        folder.finish(trainer.model.state_dict(), summary)
    _trace(result, config)
    if as_json:
        print(json.dumps(finite(summary)), flush=True)
    else:
        for line in _outcome(trainer, result, summary):
            say(line)
    return 130 if result.interrupted else 0


def _trace(result: Result, config: RunConfig) -> None:
    from ..train.watch import write_trace

    if config.train.trace and result.watch is not None:
        write_trace(result.watch, config.train.trace)


def _heading(graph: Graph | Store, trainer: Trainer) -> Iterator[str]:
    import torch

    from ..kernels import native
    from ..train.link import LinkTrainer

    config = trainer.config
    kernels = f"C++ kernels ({native.extension.isa()})" if native.extension else "torch kernels"
    widths = "-".join(map(str, trainer.model.widths))
    size = f"graph     {graph.name}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs"
    if isinstance(trainer, LinkTrainer):
        kind = "edges" if trainer.pairs.undirected else "arcs"
        yield (
            f"{size}, {graph.num_features:,} features + {trainer.width:,} learned; "
            f"{trainer.counts['val']:,} {kind} to validate, {trainer.counts['test']:,} to test"
        )
    else:
        yield f"{size}, {graph.num_features:,} features, {graph.num_classes:,} classes"
    threads = torch.get_num_threads()
    yield (
        f"model     {config.model.name} {widths}, {config.train.dtype}, "
        f"{threads} thread{'s' if threads > 1 else ''}{' a rank' if trainer.comm.size > 1 else ''}, {kernels}"
    )
    if trainer.comm.size > 1:
        yield (
            f"ranks     {trainer.comm.size} on {trainer.comm.engine}, {config.parallel.strategy} on grid "
            f"{trainer.A.grid}, {trainer.exchange} exchange, {config.parallel.partition} partition"
        )
    yield from trainer.notes()


def _outcome(trainer: Trainer, result: Result, summary: dict[str, Any]) -> Iterator[str]:
    if trainer.config.train.task == "link":
        for split in ("val", "test"):
            hits, mrr, auc = (result.scores.get(f"{split}_{m}", float("nan")) for m in ("hits", "mrr", "auc"))
            yield f"{split:<9} Hits@{trainer.config.link.hits} {hits:.4f}   MRR {mrr:.4f}   AUC {auc:.4f}"
    else:
        name = "micro-F1" if trainer.multilabel else "accuracy"
        scores = "   ".join(f"{split} {value:.4f}" for split, value in result.accuracy.items())
        chance = "" if trainer.multilabel else f"   (chance {1 / trainer.model.widths[-1]:.3f})"
        yield f"{name}  {scores}{chance}"
    stop = ", stopped by Ctrl-C" if result.interrupted else ""
    peak, buffers, activations = (
        max(summary[key]) / 2**20 for key in ("peak_rss_bytes", "buffer_bytes", "activation_bytes")
    )
    yield f"epochs    {len(result.loss)}{stop}, {result.epoch_seconds * 1e3:.1f} ms each"
    yield (
        f"memory    {'of the largest rank: ' if trainer.comm.size > 1 else ''}peak {peak:,.0f} MB, "
        f"of which buffers {buffers:,.0f} MB; activations {activations:,.1f} MB"
    )
    if trainer.A.grid.row > 1:
        own, before = summary["arcs_per_row_slab"], summary["arcs_per_row_slab_in_vertex_order"]
        yield (
            f"balance   arcs per slab of rows, largest over mean: {_skew(own):.2f} "
            f"({_skew(before):.2f} in the graph's own order)"
        )
    if summary["words"]:
        words = [sum(phase[rank] for phase in summary["words"].values()) for rank in range(trainer.comm.size)]
        foretold = summary["words"] == summary["predicted_words"]
        yield (
            f"moved     {max(words):,} words an epoch into the busiest rank, "
            f"{'as predicted' if foretold else 'NOT as predicted'} ({', '.join(summary['words'])})"
        )
    from ..train.watch import time_table

    yield from (f"  {line}" for line in time_table(summary["time"]))
    yield f"run       {summary['run']} (weights of epoch {result.best_epoch})"


def _skew(counts: list[int]) -> float:
    return max(counts) * len(counts) / max(1, sum(counts))


def _say_to(stream: Any) -> Callable[[str], None]:
    """Prints a line, its first word bold where somebody watches."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)

    def say(line: str) -> None:
        text = Text(line)
        text.stylize("bold", 0, line.find(" "))  # nothing of a line that is indented
        console.print(text, soft_wrap=True)

    return say


@contextmanager
def _progress(epochs: int, watched: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error; yields the function to call after each epoch."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training "), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=epochs, note="")
        scores = ""

        def tick(record: dict[str, Any]) -> None:
            nonlocal scores
            if watched in record and record[watched] == record[watched]:
                scores = f"  val {record[watched]:.4f}"
            bar.update(task, completed=record["epoch"], note=f"loss {record['loss']:.4f}{scores}")

        try:
            yield tick
        except UserError:
            bar.live.transient = True  # the one line of the error stands alone
            raise
    if not console.is_terminal:  # a log gets the bar as it stands at the end
        console.print(bar.get_renderable())

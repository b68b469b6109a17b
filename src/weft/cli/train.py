"""weft train: from a graph and options to trained weights."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..signals import listening, told
from ..train.config import RunConfig, load_toml, read_toml
from ..train.every import Every
from ..train.run import finite, is_run, next_name, read_summary, standing, state_of
from ..units import spell_bytes, spell_seconds
from . import begun, logs
from .console import console, is_watched
from .logs import OnEpoch, check_logs
from .options import Parser, add_config, config_from, number
from .ranks import Foretold, on_ranks, raise_everywhere

_HEADING = 10
"""Columns of a line's heading."""

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..graph import Graph, Store
    from ..parallel import Blocks
    from ..train import Result, RunFolder, Trainer
    from ..train.checkpoint import Checkpoint

_EXAMPLES = """  weft train                                           a built-in graph
  weft train sbm:nodes=50000,classes=10 --hidden 128   the same, larger
  weft train cora --model sage --aggregate max         a data set under $WEFT_DATA
  weft train g.weft --ranks 4 --strategy 2d            four ranks on a 2 x 2 grid
  weft train g.weft --ranks 8 --strategy grid --grid 4x2x1 --exchange sparse
  weft train g.weft --ranks 8 --strategy auto          the plan's best: weft plan shows it
  weft train g.weft --batch-size 1000 --fanouts 25,10 --feed push-pull --ranks 4
  weft train g.weft --layers 3 --epochs 500 --patience 50 --out runs/mine
  weft train run.toml --set model.hidden=256           everything can stand in a TOML file
  weft train runs/mine/config.toml                     repeat a run
  weft train --resume runs/mine --ranks 6              go on with a run that did not end
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
    parser.add_argument("--foretold", default="0", help=argparse.SUPPRESS)  # what its plan says of an epoch
    parser.add_argument("--begun", default="0", help=argparse.SUPPRESS)  # when the command was given
    parser.add_argument(
        "--resume", metavar="RUN",
        help="go on with a run that did not end: its settings, and its ranks unless others are asked for",
    )  # fmt: skip
    parsed = parser.parse(arguments)
    config = config_from(parsed, None if parsed.resume is None else config_of(parsed.resume))
    check_logs(config)
    unasked = parsed.store is None and not parsed.resume and is_open(config, parsed.graph or "")
    if unasked:
        config.parallel.strategy = "auto"
    if config.train.restarts:
        _prepare_restarts(config)
    state = standing(config)
    if state is not None and state.state == "ended" and parsed.store is None:
        return _tell_ended(config, parsed.json)
    if state is None and config.train.trace and os.path.lexists(config.train.trace):
        # Only where a run begins: one that goes on has perhaps written it when it was stopped.
        raise UserError(f"{config.train.trace} exists already. Choose another --trace, or remove it.")
    begin = number(parsed.begun, "--begun") or begun()
    flags = [*(["--json"] if parsed.json else []), "--begun", f"{begin:.3f}"]
    plan = Foretold(number(parsed.foretold, "--foretold"), asked=not unasked)
    work = functools.partial(train, config=config, as_json=parsed.json, plan=plan, begin=begin)
    return on_ranks(
        ["train"], config, work, flags, parsed.store, during=listening, plan=plan,
        kept=parsed.resume is not None,
    )  # fmt: skip


def is_open(config: RunConfig, graph: str = "") -> bool:
    """Whether nobody said how the work is to lie, on the command line or in its TOML file: then the plan
    does, for several ranks.

    Not where features are to lie in files (a plan would refuse what then fits), nor for tasks of users' own,
    which a plan does not know.

    >>> config = RunConfig()
    >>> is_open(config)
    True
    >>> config.given.add("parallel.grid")
    >>> is_open(config)
    False
    """
    given = config.given | (read_toml(Path(graph)).keys() if graph.endswith(".toml") else set())
    layout = ("strategy", "grid", "replication", "exchange", "move_adjacency")
    return (
        not any(f"parallel.{name}" in given for name in layout)
        and not config.batch.memory_budget
        and config.train.task in ("node", "link")
    )


def _prepare_restarts(config: RunConfig) -> None:
    """A run that may be started again needs a folder that all its starts know, and ranks that weft starts."""
    from ..comm import in_job

    ours = "WEFT_RANK" in os.environ
    if (in_job() and not ours) or config.parallel.ranks < 2 or config.parallel.engine == "threads":
        raise UserError("restarts are for ranks that weft starts. Use --ranks 2 or more on mpi or torch.")
    if not config.train.out:
        config.train.out = str(next_name(config))


def config_of(run: str) -> RunConfig:
    """The settings of a run that is to go on."""
    path = Path(run)
    if not is_run(path):
        raise UserError(f"{path} is not a run folder: it has no config.toml. Give one that weft train made.")
    config = RunConfig()
    load_toml(config, path / "config.toml")
    config.train.out = run
    return config


def _tell_ended(config: RunConfig, as_json: bool) -> int:
    """The same command again, after the run's end: a job script need not know which job is the last."""
    path = Path(config.train.out)
    if as_json:
        print(json.dumps(finite(read_summary(path))))
    else:
        line = state_of(path).line()
        print(f"run       {path} {line}: nothing is left to do. Train anew with another --out.")
    return 0


def train(
    comm: Communicator, source: Graph | Store, config: RunConfig, as_json: bool, plan: Foretold | None = None,
    begin: float = 0.0,
) -> int:  # fmt: skip
    """What every rank does: train; rank 0 saves and tells. `plan` is held against the first epochs.

    `begin` is when the command was given, on the clock of whoever started the ranks.
    """
    from ..train import Trainer
    from ..train.numbers import BadNumbers

    first = comm.rank == 0
    say = _say_to(sys.stderr if as_json else sys.stdout) if first else lambda line: None
    found, torn, blocks = _found(comm, source, config)
    trainer = Trainer(source, config, comm, blocks=blocks)
    with _open(comm, config, found, torn) as folder:
        for line in _heading(source, trainer) if first else ():
            say(line)
        for line in _where_from(config, found, torn) if first else ():
            say(line)
        if begin:
            say(f"set up    after {spell_seconds(max(0.0, time.time() - begin))}")
        failure = ""
        with _told(trainer, folder, found, sys.stderr if as_json else sys.stdout, say) as tick:
            try:
                result = trainer.fit(folder, _checked(tick, plan, say) if first else tick, found)
            except BadNumbers as error:
                if error.result is None:
                    raise
                result, failure = error.result, str(error)
        summary = _finish(trainer, result, folder, failure, plan)
    for line in _trace(result, config):
        say(line)
    if first and as_json:
        print(json.dumps(finite(summary)), flush=True)
    elif first:
        for line in _outcome(trainer, result, summary):
            say(line)
    comm.barrier()  # a launcher ends the others when one leaves with an odd status: first all is kept
    if failure:
        raise UserError(failure)
    return 128 + (result.stopped_by or 2) if result.interrupted else 0


@contextmanager
def _told(
    trainer: Trainer, folder: RunFolder | None, found: Checkpoint | None, stream: Any,
    say: Callable[[str], None],
) -> Iterator[OnEpoch]:  # fmt: skip
    """Who hears of every epoch: the bar, the lines, the logs; every rank calls it."""
    config, comm = trainer.config, trainer.comm
    ears: list[OnEpoch] = []
    with ExitStack() as stack:
        if config.train.rank_logs:
            place = logs.joined(comm, None if folder is None else folder.path)
            ears.append(stack.enter_context(logs.rank_log(trainer, place)))
        if folder is not None:
            begins = 1 if found is None else int(found.facts["epoch"])
            ears += stack.enter_context(logs.told_to(config, folder.path, begins))
            epochs, watched = config.train.epochs, trainer.task.watched
            if is_watched(sys.stderr):
                ears.append(stack.enter_context(_progress(epochs, watched)))
            if not is_watched(stream):
                every = Every.parse(config.train.log_every, "log_every", batches=False)
                lines = logs.Lines(say, epochs, watched, every)
                ears.append(stack.enter_context(logs.beating(logs.Beats(lines, begins))))

        def tell(record: dict[str, Any]) -> None:
            for ear in ears:
                ear(record)

        yield tell


def _checked(
    tick: Callable[[dict[str, Any]], None], plan: Foretold | None, say: Callable[[str], None]
) -> Callable[[dict[str, Any]], None]:
    """`tick`, and after the first epochs a line where they take another time than was foretold."""
    if plan is None or not plan.seconds:
        return tick
    from ..planner.choose import SEEN, off_by

    seen: list[float] = []

    def both(record: dict[str, Any]) -> None:
        tick(record)
        if len(seen) < SEEN:
            seen.append(record["seconds"])
            line = off_by(plan.seconds, seen) if len(seen) == SEEN else ""
            if line:
                say(line)

    return both


def _found(
    comm: Communicator, source: Graph | Store, config: RunConfig
) -> tuple[Checkpoint | None, list[str], Blocks | None]:
    """(the checkpoint to go on from, what is wrong with newer ones, its partition); every rank calls it."""
    from ..graph.store import checksum
    from ..parallel import choose
    from ..train.checkpoint import newest
    from ..train.state import kept_blocks

    if not comm.all_gather_json(bool(config.train.out) and is_run(Path(config.train.out)))[0]:
        return None, [], None
    found, torn = newest(comm, Path(config.train.out))
    if found is None:
        return None, torn, None
    ours = comm.all_gather_json(checksum(source) if comm.rank == 0 else "")[0]
    if ours != found.facts.get("graph"):
        raise UserError(
            f"{found.path} is of another graph than {source.name}: their checksums differ. "
            "Use the run's own graph, or another --out."
        )
    options = config.parallel
    grid = choose(options.strategy, comm.size, options.grid, options.replication, options.exchange)[0]
    same = options.partition == found.facts["config"]["parallel"]["partition"]
    return found, torn, kept_blocks(found, source.num_nodes, grid) if same else None


@contextmanager
def _open(
    comm: Communicator, config: RunConfig, found: Checkpoint | None, torn: list[str]
) -> Iterator[RunFolder | None]:
    """Rank 0's run folder, None elsewhere. What rank 0 cannot make, all hear of: nobody waits for it."""
    from ..train.run import RunFolder

    folder, mistake = None, ""
    if comm.rank == 0:
        try:
            if config.train.out and is_run(Path(config.train.out)):
                epoch = 1 if found is None else int(found.facts["epoch"])
                folder = RunFolder.reopen(Path(config.train.out), epoch, [t.split(":")[0] for t in torn])
            else:
                folder = RunFolder.create(config)
        except UserError as error:
            mistake = str(error)
    raise_everywhere(comm, comm.all_gather_json(mistake)[0])
    with folder or nullcontext():
        yield folder


def _where_from(config: RunConfig, found: Checkpoint | None, torn: list[str]) -> Iterator[str]:
    for line in torn:
        yield f"torn      checkpoint {line}"
    if found is not None:
        epoch, step = found.facts["epoch"], found.facts["step"]
        where = f"epoch {epoch}" + (f", after {step} updates" if step else "")
        yield f"resumed   {config.train.out} in {where}"
    elif torn:
        yield f"restarted {config.train.out} from the beginning: no checkpoint is whole"


def _finish(
    trainer: Trainer, result: Result, folder: RunFolder | None, failure: str, plan: Foretold | None = None
) -> dict[str, Any]:
    """Write what is kept; the summary. Every rank calls it."""
    comm = trainer.comm
    summary = result.as_dict() | result.gather(trainer)
    if plan is not None and plan.seconds:
        summary["planned_epoch_seconds"] = plan.seconds
    if failure:
        summary["failure"] = failure
    path = comm.all_gather_json("" if folder is None else str(folder.path))[0]
    trainer.save(Path(path))
    if folder is not None:
        summary["run"] = path
        folder.measured(result.measured | {"version": summary["version"], "details": result.details})
        folder.finish(trainer.model.state_dict(), summary)
    return summary


def _trace(result: Result, config: RunConfig) -> Iterator[str]:
    """Write the trace, of a run that went on beside those of its earlier parts; the line that says so.

    Every rank calls it, rank 0 writes.
    """
    from ..train.watch import write_trace

    wanted = config.train.trace
    if wanted and result.watch is not None:
        path = _unused(wanted)
        write_trace(result.watch, path)
        if path != wanted:
            yield f"trace     {path}: {wanted} was there already"


def _unused(path: str) -> str:
    """The path, or where something is there already `name.2.json` and so on.

    >>> _unused("no-such-folder/t.json")
    'no-such-folder/t.json'
    """
    if not os.path.lexists(path):
        return path
    stem, ending = os.path.splitext(path)
    return next(free for k in itertools.count(2) if not os.path.lexists(free := f"{stem}.{k}{ending}"))


def _heading(graph: Graph | Store, trainer: Trainer) -> Iterator[str]:
    import torch

    from ..kernels import native

    config = trainer.config
    kernels = f"C++ kernels ({native.extension.isa()})" if native.extension else "torch kernels"
    widths = "-".join(map(str, trainer.model.widths))
    size = f"graph     {graph.name}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs"
    yield f"{size}, {trainer.task.heading(graph)}"
    threads = torch.get_num_threads()
    yield (
        f"model     {config.model.name} {widths}, {config.train.dtype}, "
        f"{threads} thread{'s' if threads > 1 else ''}{' a rank' if trainer.comm.size > 1 else ''}, {kernels}"
    )
    if trainer.comm.size > 1:
        exchange = trainer.shared.exchange + (" exchange, by host" if trainer.A.by_host else " exchange")
        yield (
            f"ranks     {trainer.comm.size} on {trainer.comm.engine}, {config.parallel.strategy} on grid "
            f"{trainer.A.grid}, {exchange}, {config.parallel.partition} partition"
        )
    yield from trainer.notes()


def _outcome(trainer: Trainer, result: Result, summary: dict[str, Any]) -> Iterator[str]:
    from ..train.result import agrees

    yield from trainer.task.outcome(result.scores)
    stop = ""
    if result.interrupted:
        stop = f", stopped by {told(result.stopped_by or 2)}"
    peak, buffers, activations = (
        spell_bytes(max(summary[key])) for key in ("peak_rss_bytes", "buffer_bytes", "activation_bytes")
    )
    yield f"epochs    {len(result.loss)}{stop}, {spell_seconds(result.epoch_seconds)} each"
    yield (
        f"memory    {'of the largest rank: ' if trainer.comm.size > 1 else ''}peak {peak}, "
        f"of which buffers {buffers}; activations {activations}"
    )
    if trainer.A.grid.row > 1:
        own, before = summary["arcs_per_row_slab"], summary["arcs_per_row_slab_in_vertex_order"]
        yield (
            f"balance   arcs per slab of rows, largest over mean: {_skew(own):.2f} "
            f"({_skew(before):.2f} in the graph's own order)"
        )
    if summary["words"]:
        words = [sum(phase[rank] for phase in summary["words"].values()) for rank in range(trainer.comm.size)]
        foretold = agrees(summary["words"], summary["predicted_words"])
        how = "as predicted" if foretold else "NOT as predicted"
        yield (
            f"moved     {max(words):,} words an epoch into the busiest rank, "
            f"{'not foretold' if result.not_foretold else how} ({', '.join(summary['words'])})"
        )
        if result.not_foretold:
            yield f"words     {result.not_foretold}"
    for what, how in trainer.A.explain().items():
        if "not fused" in how:
            yield f"unfused   {what}: {how}"
    from ..train.watch import time_table

    yield from (f"  {line}" for line in time_table(summary["time"]))
    yield f"run       {summary['run']} (weights of epoch {result.best_epoch})"
    if result.interrupted and result.checkpoint:
        yield f"go on     weft train --resume {summary['run']}"


def _skew(counts: list[int]) -> float:
    return max(counts) * len(counts) / max(1, sum(counts))


def _say_to(stream: Any) -> Callable[[str], None]:
    """Prints a line, its heading bold where somebody watches: `graph`, `set up`, `go on`."""
    from rich.text import Text

    out = console(stream)

    def say(line: str) -> None:
        text = Text(line)
        gap = line.find("  ", 0, _HEADING)
        text.stylize("bold", 0, gap if gap >= 0 else line.find(" "))  # nothing of a line that is indented
        out.print(text, soft_wrap=True)

    return say


@contextmanager
def _progress(epochs: int, watched: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error, where somebody watches; yields the function to call after each epoch."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training "), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console(sys.stderr)) as bar:
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

"""The tasks by name, and what a run refuses before anything is computed or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..minibatch import KINDS, fanouts_for, parse_bytes, parse_fanouts, parse_room
from ..nn import check_model, model_hops, model_widths
from ..parallel.assign import check_partition
from .budget import check_budget
from .classes import Classes, check_classes
from .config import LinkConfig, RunConfig, Section, refuse_unread
from .every import Every
from .links import Links, check_link_options, check_linkable, need_of_links
from .need import Need
from .sampled import FEEDS
from .task import Task

DEVICES = ("cpu", "cuda")
BATCHINGS = ("neighbours", "subgraph")


@dataclass(frozen=True)
class TaskEntry:
    """A task of the registry."""

    make: Callable[[RunConfig], Task]
    """The task of a config."""
    check: Callable[[Any, RunConfig], None]
    """Refuses a graph that it cannot be learned from, with a UserError."""
    check_options: Callable[[RunConfig], None] | None = None
    """Refuses values of its options that cannot be."""
    options: type[Section] | None = None
    """A dataclass of what this task alone reads, each with a default and a text below it: the section of the
    task's name in TOML (`config.mine` in Python), and a flag each."""
    splits: bool = True
    """Whether it trains on vertices of a split, so that `--train-share` and `--val-share` are for it."""
    by_header: bool = False
    """Whether `check` takes a `Store` too, of which it reads the header alone; ranks look at the values."""
    need: Callable[[Any, RunConfig], Need | None] | None = None
    """The least that training holds: refused beforehand where the machines have no room for it."""


def _need(graph: Graph | Store, config: RunConfig) -> Need | None:
    """An activation a layer, the weights and their gradients."""
    if config.batch.memory_budget and not config.batch.batch_size:
        return None  # activations lie in files
    widths = model_widths(config.model, graph.num_features, graph.num_classes)
    between = widths[1:-1]
    if not between:
        return None
    weights = sum(a * b for a, b in pairwise(widths))
    bytes_each = 4 if config.train.dtype == "float32" else 8
    what = (
        f"a model of {len(widths) - 1} layers with hidden={config.model.hidden} on {graph.num_nodes} vertices"
    )
    return Need(bytes_each * graph.num_nodes * sum(between), bytes_each * 2 * weights, what)


TASKS: dict[str, TaskEntry] = {
    "node": TaskEntry(Classes, check_classes, by_header=True, need=_need),
    "link": TaskEntry(
        Links, check_linkable, check_link_options, LinkConfig, False, by_header=True, need=need_of_links
    ),
}
"""A new task is an entry here."""


def check_task_options(config: RunConfig) -> None:
    """Refuse settings that suit no graph, and those that this run would not read.

    >>> config = RunConfig()
    >>> config.train.epochs = 0
    >>> check_task_options(config)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: epochs must be at least 1, not 0.
    """
    if config.train.task not in TASKS:
        raise unknown("task", config.train.task, TASKS)
    _check_options(config)
    check_partition(config.parallel.partition)
    entry = TASKS[config.train.task]
    if entry.check_options is not None:
        entry.check_options(config)
    refuse_unread(config)
    _check_batches(config)


def check_task(graph: Graph | Store, config: RunConfig, ranks: int = 1, hosts: int = 1) -> None:
    """Refuse what the task cannot be trained on, before anything is computed or written.

    `ranks` on `hosts` machines share the vertices, so each machine needs room for its share alone.
    """
    check_task_options(config)
    entry = TASKS[config.train.task]
    entry.check(graph, config)
    need = None if entry.need is None else entry.need(graph, config)
    if need is not None:
        need.check(ranks, hosts)


def _check_options(config: RunConfig) -> None:
    check_model(config.model)
    options = config.train
    for name, least in (("epochs", 1), ("evaluate_every", 1), ("patience", 0), ("seed", 0), ("threads", 0),
                        ("keep", 1), ("restarts", 0)):  # fmt: skip
        if getattr(options, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(options, name)}.")
    for name, most in (("seed", 2**63 - 1), ("threads", 1024)):
        if getattr(options, name) > most:
            raise UserError(f"{name} must be at most {most}, not {getattr(options, name)}.")
    if options.clip_norm < 0:
        raise UserError(f"clip_norm must not be negative, as {options.clip_norm:g} is. Use 0 for none.")
    if options.dtype not in ("float32", "float64"):
        raise unknown("dtype", options.dtype, ["float32", "float64"])
    if options.keep_weights not in ("best", "last"):
        raise unknown("keep_weights", options.keep_weights, ["best", "last"])
    if options.on_nan not in ("stop", "skip"):
        raise unknown("on_nan", options.on_nan, ["stop", "skip"])
    Every.parse(options.checkpoint_every, "checkpoint_every")
    _check_device(options.device)


def _check_device(name: str) -> None:
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise UserError("this machine has no CUDA device that torch sees. Use --device cpu.")


def _check_batches(config: RunConfig) -> None:
    """Refuse settings of mini-batches that suit no graph."""
    options = config.batch
    if options.batch_size < 0:
        raise UserError(
            f"batch_size must be at least 0, not {options.batch_size}. "
            "Use 0 for the whole graph in every step."
        )
    if options.batching not in BATCHINGS:
        raise unknown("batching", options.batching, BATCHINGS)
    if options.subgraph not in KINDS:
        raise unknown("subgraph", options.subgraph, KINDS)
    if options.batching == "subgraph":
        task = config.train.task
        if not getattr(TASKS[task].make, "draws", False):
            raise UserError(f"task {task} draws no subgraphs. Use --batching neighbours, or --task node.")
        if options.walk_length < 1:
            raise UserError(
                f"walk_length must be at least 1, not {options.walk_length}. Use --walk-length 4."
            )
        if options.subgraph == "seeds":
            parse_fanouts(options.fanouts)  # as many hops as there are numbers, whatever the model's layers
        return
    if options.feed not in (*FEEDS, "auto"):
        raise unknown("feed", options.feed, [*FEEDS, "auto"])
    if options.batch_size:
        fanouts, hops = parse_fanouts(options.fanouts), model_hops(config.model)
        fanouts_for(len(fanouts) if hops is None else hops, fanouts, config.model.layers)
    if options.prefetch < 0:
        raise UserError(f"prefetch must be at least 0, not {options.prefetch}. Use --prefetch 2.")
    if options.cache:
        parse_room(options.cache, 1, 1)
    if options.memory_budget:
        parse_bytes(options.memory_budget)
    check_budget(config)
    if options.batch_size and options.feed != "pull" and config.train.optimizer == "adafactor":
        raise UserError("adafactor needs whole weights, push-pull cuts the first. Use --feed pull, or adam.")

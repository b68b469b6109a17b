"""The trainer of a task, by its name."""

from __future__ import annotations

from ..comm import Communicator
from ..errors import unknown
from ..graph import Graph, Store
from .config import RunConfig
from .link import LinkTrainer, check_link_options, check_linkable
from .sampled import SampledTrainer, check_batches
from .sampled_link import SampledLinkTrainer, check_sampled_links
from .trainer import Trainer, check_options, check_trainable

_TRAINERS: dict[str, tuple[type[Trainer], type[Trainer]]] = {
    "node": (Trainer, SampledTrainer),
    "link": (LinkTrainer, SampledLinkTrainer),
}
"""Task → (full-batch, in mini-batches)."""
TASKS = tuple(_TRAINERS)


def make_trainer(source: Graph | Store, config: RunConfig, comm: Communicator | None = None) -> Trainer:
    """The trainer that the config's task asks for, full-batch or in mini-batches.

    >>> from weft.graph import load
    >>> type(make_trainer(load("karate"), RunConfig())).__name__
    'Trainer'
    """
    check_task_options(config)
    kinds = _TRAINERS[config.train.task]
    return kinds[1 if config.batch.batch_size else 0](source, config, comm)


def check_task_options(config: RunConfig) -> None:
    """Refuse settings that suit no graph."""
    if config.train.task not in TASKS:
        raise unknown("task", config.train.task, TASKS)
    check_options(config)
    check_batches(config)
    if config.train.task == "link":
        check_link_options(config)
        if config.batch.batch_size:
            check_sampled_links(config)


def check_task(graph: Graph, config: RunConfig) -> None:
    """Refuse what the task cannot be trained on, before anything is computed or written."""
    check_task_options(config)
    if config.train.task == "link":
        check_linkable(graph, config)
    else:
        check_trainable(graph, config)

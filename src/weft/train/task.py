"""What is learned, apart from how rows are made and how weights are moved.

A task says which vertices' rows a step wants on this rank, what loss they give, and how well a model does. An
encoder (`encoders`) makes the rows; the trainer (`trainer`) puts both together. A new task is a subclass, and
a line in `tasks.TASKS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..graph import Graph, Store
from ..minibatch import Objective
from ..nn import Model, Noise
from ..parallel import Rows
from .config import RunConfig


@dataclass(frozen=True, eq=False)
class Step:
    """One update: the rows that this rank wants, and what is made of them."""

    ids: Tensor
    """[m] the vertices whose rows are wanted here, by their number in the graph; none of them twice."""
    objective: Objective
    """From these rows and the model to this rank's share of the loss, and its backward."""
    noise: Noise
    """Its random numbers; their `epoch` is the step's number in the run."""
    share: float
    """What its loss counts in the epoch's."""
    local: Tensor | None = None
    """[m] where they stand among this rank's own rows, if they all are; the objective then gets a copy of
    them, which it may write over."""
    at: tuple[int, int] | None = None
    """(epoch, its number there), of a step of `Task.epoch`: what comes after it is known then."""
    drawn: Tensor | None = None
    """The vertices that all ranks draw the step's subgraph from, the same everywhere, none twice."""


class Task(ABC):
    """Classes of vertices, links, or a task of yours."""

    learned_width: int = 0
    """Learnable features a vertex, beside the given ones."""
    draws: bool = False
    """Whether its steps say what all ranks draw a subgraph from, for `--batching subgraph`."""
    always_reads: bool = False
    """Whether `read` is called for inference too, where a graph may have no labels and no split."""

    def __init__(self, config: RunConfig):
        self.config = config

    @property
    def options(self) -> Any:
        """The values of what its entry names as `options`: the config's section of the task's name."""
        return getattr(self.config, self.config.train.task)

    @abstractmethod
    def make_model(self, source: Graph | Store) -> Model:
        """The model, with its first weights; they follow from the seed alone."""

    @abstractmethod
    def read(self, source: Graph | Store, layout: Rows) -> None:
        """What the task needs of the graph beside features: this rank's labels, pairs, …"""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Updates an epoch."""

    @abstractmethod
    def step(self, epoch: int, number: int) -> Step:
        """Update `number` (from 0) of an epoch (from 1): the same on every number of ranks."""

    def epoch(self, epoch: int, most: int | None = None, first: int = 0) -> Iterator[Step]:
        """The steps of an epoch, or those below `most`; from `first` on."""
        for number in range(first, self.steps if most is None else min(most, self.steps)):
            yield replace(self.step(epoch, number), at=(epoch, number))

    def coming(self, step: Step) -> Iterator[Step]:
        """This step and those that follow it in its epoch."""
        return iter([step]) if step.at is None else self.epoch(step.at[0], first=step.at[1])

    @abstractmethod
    def evaluate(self, encode: Callable[[], Tensor], model: Model) -> dict[str, float]:
        """Metrics, `val_loss` among them; `encode()` gives the rows of this rank's vertices."""

    @abstractmethod
    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        """What the best epoch has most of."""

    @property
    @abstractmethod
    def judges(self) -> bool:
        """Whether there is anything to validate on."""

    @property
    @abstractmethod
    def watched(self) -> str:
        """The metric that people look at while it trains."""

    def scores(self, metrics: dict[str, float]) -> dict[str, float]:
        """Of an evaluation that which a run is reported with."""
        return {name: value for name, value in metrics.items() if name != "val_loss"}

    def details(self, encode: Callable[[], Tensor], model: Model) -> dict[str, Any]:
        """What a report shows beside the scores: plain data, the same on every rank; every rank calls it."""
        return {}

    def predictions(self, rows: Tensor, source: Graph | Store, layout: Rows) -> dict[str, Tensor]:
        """What `weft predict` writes beside the embeddings, by file name; `rows` are the model's."""
        return {"predictions.npy": rows}

    def clipped(self, model: Model) -> list[list[nn.Parameter]]:
        """The model's parameters, in the groups whose gradients are clipped together."""
        return [list(model.parameters())]

    def heading(self, source: Graph | Store) -> str:
        """What it learns from, for people: the end of the line that begins with the graph's size."""
        return ""

    def batches(self) -> str:
        """How an epoch is cut, for people."""
        return f"{self.steps:,} batches"

    def outcome(self, scores: dict[str, float]) -> list[str]:
        """The scores, for people."""
        return [f"{name:<9} {value:.4f}" for name, value in scores.items()]

    def facts(self) -> dict[str, Any]:
        """What it adds to the summary."""
        return {}

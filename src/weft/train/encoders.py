"""From a step to the rows it wants and back: on the whole graph, a subgraph, or sampled neighbourhoods.

    encoder              makes rows of a step's vertices by       its weights lie
    Whole                the model on the whole graph             replicated; learned features in rows
    Subgraph             the model on one that all ranks drew     the same (`subgraph`)
    Sampled, pull        blocks of sampled neighbours             the same (`sampled`)
    Sampled, push-pull   the same, features in columns            the first layer's and learned ones cut

`run` goes forward and back through steps; the trainer updates weights after each. `dry` is the same encoder
without numbers, on lines that count: what a step moves is foretold by running it.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..comm import Communicator
from ..errors import NotForetold
from ..kernels import Stream, gather_rows, uniform
from ..minibatch import Features
from ..nn import Model, Noise
from ..parallel import ByBlocks, Fetch, Operator, Owners, Rows, Volume, counted
from ..parallel.propagate import Wrap
from .placed import Placed
from .task import Step

_EMBEDDING = (1 << 20) - 3
"""The stream of the initial embeddings."""


@dataclass
class Passed:
    """A step that went forward and back: its loss and gradients wait for the update."""

    step: Step
    model: Model
    """The weights that it used; their `grad` is this rank's share of the gradient."""
    loss: Tensor
    learned: Tensor | None
    """The gradient of this rank's learned features."""


Update = Callable[[Passed], None]


class Encoder(ABC):
    """What all have in common."""

    name = ""
    live: Model
    """The weights that are trained: the model, or a copy whose first layer has this rank's rows alone."""
    features: Features
    """Of this rank; its learned part is trained too."""
    placed: Placed

    def __init__(self, model: Model, layout: Rows):
        self.model, self.layout = model, layout

    @abstractmethod
    def run(self, steps: Iterable[Step], update: Update) -> None:
        """Forward and back through each step, `update` after each."""

    @abstractmethod
    def dry(self, wrap: Wrap) -> Encoder:
        """The same without numbers, on lines that count."""

    def warm(self) -> None:  # noqa: B027
        """What an epoch after the first finds done; of one without numbers."""

    def under_way(self) -> list[Model]:
        """The weights of batches that have begun and not ended, the oldest first; between updates."""
        return []

    def recorded(self) -> bool:
        """Whether `rows_read` is complete; asking once makes it so two updates later, at the latest."""
        return True

    def rows_read(self) -> list[Tensor]:
        """The learned features of this rank as the batches of `under_way` have read them, the oldest first.

        Those that have not read any yet are left out: they come last, and read the present ones.
        """
        return []

    def resume(self, weights: list[dict[str, Tensor]], rows: list[Tensor]) -> None:  # noqa: B027
        """The first batches of the next `run` use these weights, as `under_way` gave them, and these rows."""

    def settle(self) -> None:  # noqa: B027
        """The model with whole weights again, for the evaluation and the run folder; every rank calls it."""

    def learned_rows(self) -> Tensor | None:
        """The learned features of this rank's vertices, [n_own, w]; every rank calls it."""
        return None if self.features.learned is None else self.features.learned.detach()

    def load(self, model: Model, learned: Tensor | None) -> None:
        """Take weights and learned rows that somebody kept; every rank calls it."""
        if learned is not None and self.features.learned is not None:
            with torch.no_grad():
                self.features.learned.copy_(learned)

    def learned_gradient(self) -> Tensor | None:
        """The gradient of the learned features of this rank's vertices; every rank calls it."""
        learned = self.features.learned
        if learned is None:
            return None
        return torch.zeros_like(learned) if learned.grad is None else learned.grad

    def bytes_of(self, words: dict[str, int]) -> int:
        """Bytes of these words."""
        return sum(words.values()) * self.features.given.element_size()

    def facts(self) -> dict[str, Any]:
        """What it adds to the summary."""
        return {}

    def notes(self, batches: str) -> list[str]:
        """Lines for people."""
        return []


class Whole(Encoder):
    """The model on the whole graph in every step."""

    name = "whole"

    def __init__(self, model: Model, A: Operator, features: Features, layout: Rows):
        super().__init__(model, layout)
        self.live, self.A, self.features = model, A, features
        self.owners: Owners = ByBlocks(layout.blocks)
        self.placed = Placed(layout.comm)

    def run(self, steps: Iterable[Step], update: Update) -> None:
        model = self.model
        model.train()
        for step in steps:
            model.zero_grad(set_to_none=True)
            A, x = self._input(step)
            h = model(A, x, step.noise)
            rows = self._rows(h, step)
            del h
            loss, back = step.objective(rows, model)
            del rows  # backward needs neither: one buffer less at its peak
            back()
            update(Passed(step, model, loss, self.features.gradient(x.grad)))

    def _input(self, step: Step) -> tuple[Operator, Tensor]:
        """The operator of a step, and the features of its rows."""
        x = self.features.now()
        return self.A, x if self.features.learned is None else x.detach().requires_grad_()

    def _rows(self, h: Tensor, step: Step) -> Tensor:
        if step.local is not None:
            return gather_rows(h, step.local, distinct=True)
        return Fetch(self.placed.comm, self.owners, step.ids, distinct=True).rows(h)

    def dry(self, wrap: Wrap) -> Whole:
        out = Whole(blank_model(self.model), self.A.dry(wrap), self.features.dry(), self.layout)
        out.placed = self.placed.dry(wrap)
        if self.A.holds(self.features.given):
            out.A.hold(out.features.given)
        return out

    def warm(self) -> None:
        if self.A.holds(self.features.given):  # an epoch that is steady has the products of the input already
            self.model.train()
            with torch.no_grad():
                self.model(self.A, self.features.given, Noise(0, 0))


def blank_model(model: Model) -> Model:
    """The same model without numbers."""
    return copy.deepcopy(model).to("meta")


def first_learned(ids: Tensor, n: int, width: int, seed: int, dtype: torch.dtype) -> nn.Parameter:
    """The first learned features of these vertices: Glorot's, for a matrix [n, width], from the seed."""
    bound, key = math.sqrt(6 / (n + width)), Stream(seed, 0, _EMBEDDING).key
    return nn.Parameter(uniform(ids, width, bound, key).to(dtype))


def foretold(encoder: Encoder, steps: Callable[[], Iterable[Step]], after: Callable[[Encoder], Update],
             last: Callable[[Encoder], None], steady: bool = True) -> Volume:  # fmt: skip
    """What this rank receives in these steps with their updates, and in what follows the last; `steady`:
    what the first epoch makes for all is there."""

    def prepare(wrap: Wrap) -> Callable[[], object]:
        dry = encoder.dry(wrap)
        if steady:
            dry.warm()

        def work() -> None:
            dry.run(steps(), after(dry))
            last(dry)

        return work

    return counted(encoder.layout.comm, prepare)


@contextmanager
def not_foretold(comm: Communicator) -> Iterator[list[str]]:
    """Foretell in here; every rank calls it. Afterwards why nothing can be: a layer of some rank that looks
    at numbers; empty: all is known.

    >>> from weft.comm.threads import single
    >>> with not_foretold(single()) as why:
    ...     raise NotForetold("layer 1, Careful, looks at numbers")
    >>> why
    ['layer 1, Careful, looks at numbers']
    """
    why: list[str] = []
    mine = ""
    try:
        yield why
    except NotForetold as error:
        mine = str(error)
    why.extend(text for text in comm.all_gather_json(mine) if text)

"""The trainer: a task, an encoder and a loop, put together. One call sequence on every rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..graph import Graph, Store, load
from ..memory import trim
from ..minibatch import Features
from ..nn import Model
from ..nn.layer import data_of
from ..parallel import Blocks, Shared, Volume
from ..parallel.source import count_arcs
from .budget import Budget
from .checkpoint import Checkpoint
from .config import RunConfig
from .encoders import Encoder, Passed, Update, Whole, first_learned, foretold
from .facts import take_facts
from .gradients import Gradients, Told, finite
from .inputs import read_features
from .loop import fit
from .norms import note_local_norms
from .numbers import BadNumbers, line
from .optimise import Schedule, check_elementwise, optimiser
from .result import Result, peak_rss_bytes
from .rows import write_rows
from .run import RunFolder
from .sampled import Sampled
from .subgraph import Subgraph, own_batches
from .task import Step
from .tasks import TASKS, check_task, check_task_options
from .weights import note_unread_weights


def _sharers(comm: Communicator | None) -> tuple[int, int]:
    """(ranks, the machines that they are on)."""
    if comm is None:
        return 1, 1
    return comm.size, len(set(comm.hosts))


class Trainer:
    """Trains a model on a graph: a task (classes, links), an encoder (whole graph, sampled), a loop.

    `source` is a graph, a store, or what `load` takes: a spec, a PyG `Data`.
    `judged=False` is for inference: the graph needs no labels, no split and no pairs to be judged by.
    `model` stands in for the one that the config describes, `blocks` for the partition.

    >>> from weft.graph import load
    >>> config = RunConfig()
    >>> config.train.epochs, config.model.hidden = 30, 8
    >>> result = Trainer(load("karate"), config).fit()
    >>> result.loss[-1] < result.loss[0]
    True
    """

    def __init__(
        self,
        source: Graph | Store | Any,
        config: RunConfig,
        comm: Communicator | None = None,
        judged: bool = True,
        model: Model | None = None,
        blocks: Blocks | None = None,
    ):
        source = source if isinstance(source, (Graph, Store)) else load(source)
        check_task_options(config)
        if isinstance(source, Graph) and judged:
            check_task(source, config, *_sharers(comm))
        self.source, self.config, self.comm = source, config, comm or single()
        self.idle_rss_bytes = peak_rss_bytes()
        dtype, device = getattr(torch, config.train.dtype), torch.device(config.train.device)
        take_facts(config.model, source, self.comm)
        self.task = TASKS[config.train.task].make(config)
        # The seed alone makes the weights: every rank of every grid starts from the same ones.
        made = self.task.make_model(source) if model is None else model
        self.model: Model = made.to(device=device, dtype=dtype)
        if self.comm.rank == 0:
            note_local_norms(self.model, self.comm.size)
            note_unread_weights(self.model, source, config.model)
        batches = own_batches(source, config, self.model)
        self.shared = Shared(source, self.comm, config.parallel, config.train.seed, batches, blocks)
        self.A = self.shared.operator(self.model.adjacency, dtype, device, data_of(self.model.layers))
        layout, grid = self.A.layout, self.shared.grid
        # What this rank's rows would hold if the vertices were cut in their own order.
        first, last = Blocks.even(source.num_nodes, grid).slab(grid.place(self.comm.rank)[0])
        self.arcs_in_order = count_arcs(source, first, last)
        self.budget = Budget.take(self, layout)
        aside = self.budget is not None and self.budget.short
        x, self.feature_norm = read_features(source, layout, config.data.feature_norm, dtype, aside)
        self.x = x.to(device)
        learned, width = None, self.task.learned_width
        if width:
            check_elementwise(config.train.optimizer)
            learned = first_learned(layout.ids, layout.count, width, config.train.seed, dtype).to(device)
        features = Features(self.x, None if learned is None else torch.nn.Parameter(learned.detach()))
        if judged or self.task.always_reads:
            self.task.read(source, layout)
        self.encoder: Encoder
        if config.batch.batch_size and judged and config.batch.batching == "subgraph":
            self.encoder = Subgraph(self.model, self.A, features, source, config)
        elif config.batch.batch_size and judged:
            self.encoder = Sampled(self.model, features, layout, source, config, self.task)
        else:
            self.encoder = Whole(self.model, self.A, features, layout)
        if not self.model.input_dropout and not width:
            self.A.hold(self.x)  # evaluation is on the whole graph, whatever trains
        trained = self.encoder.features.learned
        own = [] if trained is None else [trained]
        self.optimiser = optimiser(self.encoder.live, config.train, own)
        self.schedule = Schedule(self.optimiser, config.train)
        self.gradients_of = self._gradients(self.encoder)
        trim()

    def _gradients(self, encoder: Encoder) -> Gradients:
        learned = encoder.features.learned
        return Gradients(encoder.live, encoder.placed, learned, self.task, self.config.train.clip_norm)

    # An epoch.

    def step(self, epoch: int) -> float:
        """One epoch: every step forward and back, an update each; the loss on the way.

        A loss or a gradient that is not finite is an error, `BadNumbers`; with `on_nan` skip that update is
        left out, on all ranks.
        """
        return self.close_epoch(self.train(self.task.epoch(epoch), epoch))

    def train(self, steps: Iterable[Step], epoch: int = 1) -> Tensor:
        """Steps of an epoch with their updates; this rank's share of their loss."""
        total = torch.zeros((), dtype=torch.float64, device=self.x.device)
        broken, done = "", 0

        def update(passed: Passed) -> None:
            nonlocal total, broken, done
            if broken:  # a batch that was under way
                return
            told, done = self.update(passed), done + 1
            total = total + passed.loss.double() * passed.step.share
            if not told.finite and self.config.train.on_nan == "stop":
                broken = line(self, "the loss or a gradient", epoch, done)

        self.encoder.run(itertools.takewhile(lambda _: not broken, steps), update)
        if broken:
            raise BadNumbers(broken)
        return total

    def update(self, passed: Passed, wish: int = 0) -> Told:
        """The update of a step that went back; none where a loss or a gradient is not finite, on any rank."""
        told = self.gradients_of.take(passed, wish)
        if told.finite:
            self.optimiser.step()
        return told

    def close_epoch(self, share: float | Tensor) -> float:
        """After an epoch's last update: whole weights again, and the loss of all ranks."""
        self.encoder.settle()
        told = torch.as_tensor(share, dtype=torch.float64, device=self.x.device).view(1)
        return float(self.comm.all_reduce(told, phase="loss"))

    def predict(self, epoch: int | None = None, steady: bool | None = None) -> Volume:
        """What this rank receives in one epoch, by default the one that is reported; every rank calls it.

        `steady`: whether it comes after another one, which has made A·X for all; by default after epoch 1.

        The epoch is run without numbers, on lines that count: vertex numbers travel, features do not. It is
        known before the epoch is run; but for how many errors behind a ReLU are 0 (`weft.minibatch.feeds`).
        """
        epoch = min(2, self.config.train.epochs) if epoch is None else epoch
        return self.foretell(epoch, steady=epoch > 1 if steady is None else steady)

    def foretell(self, epoch: int, most: int | None = None, steady: bool = True) -> Volume:
        """The same; or of the first steps of an epoch alone, without what follows the last of them."""

        def after(dry: Encoder) -> Update:
            gradients = self._gradients(dry)

            def take(passed: Passed) -> None:
                gradients.take(passed)

            return take

        def last(dry: Encoder) -> None:
            if most is not None:
                return
            dry.settle()
            told = torch.empty(1, dtype=torch.float64, device="meta")
            dry.placed.comm.all_reduce(told, phase="loss")

        return foretold(self.encoder, lambda: self.task.epoch(epoch, most), after, last, steady)

    def bytes_of(self, words: dict[str, int]) -> int:
        """Bytes of these words."""
        return self.encoder.bytes_of(words)

    # What was learned.

    def inputs(self) -> Tensor:
        """The features of the own vertices, given and learned, without gradients; every rank calls it."""
        learned = self.encoder.learned_rows()
        if learned is None:
            return self.x
        return torch.cat([self.x, learned], 1) if self.x.shape[1] else learned

    @torch.no_grad()
    def encode(self) -> Tensor:
        """The model's rows of the own vertices, with the weights as they are. [n_own, ·]"""
        self.model.eval()
        return self.model(self.A, self.inputs())

    @torch.no_grad()
    def embed(self) -> Tensor:
        """The embedding of the own vertices: the last hidden layer, or what links are scored by."""
        self.model.eval()
        hidden, last = self.model.embed(self.A, self.inputs())
        return last if self.config.train.task == "link" else hidden

    def evaluate(self, epoch: int = 0) -> dict[str, float]:
        """The task's metrics, exact, on the whole graph; every rank calls it.

        Rows that are not finite are an error, which names the epoch whose weights these are.
        """
        return self._judge(epoch, False)[0]

    def judge(self, epoch: int = 0) -> tuple[dict[str, float], dict[str, Any]]:
        """The metrics, and what a report shows beside them (`Task.details`); every rank calls it."""
        return self._judge(epoch, True)

    @torch.no_grad()
    def _judge(self, epoch: int, fully: bool) -> tuple[dict[str, float], dict[str, Any]]:
        odd = torch.zeros(1, device="cpu")
        kept: list[Tensor] = []

        def encode() -> Tensor:
            if not kept:
                kept.append(self.encode())
                odd[0] = float(not finite(kept[0]))
            return kept[0]

        metrics = self.task.evaluate(encode, self.model)
        if float(self.comm.all_reduce(odd, phase="metrics")):
            raise BadNumbers(line(self, "an evaluation", epoch, self.task.steps))
        return metrics, self.task.details(encode, self.model) if fully else {}

    def gradients(self) -> dict[str, Tensor]:
        """Every gradient of the last step, whole, by its parameter's name; every rank calls it."""
        placed = self.encoder.placed
        found = {
            name: placed.whole(name, p.grad).clone()
            for name, p in self.encoder.live.named_parameters()
            if p.grad is not None
        }
        learned = self.encoder.learned_gradient()
        if learned is not None:
            found["embeddings"] = self.A.layout.collect(learned)
        return found

    def weights(self) -> dict[str, Tensor]:
        """A copy of all that was learned and this rank has; every rank calls it."""
        learned = self.encoder.learned_rows()
        own = {} if learned is None else {"embeddings": learned.clone()}
        return {name: w.clone() for name, w in self.model.state_dict().items()} | own

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take back what `weights` gave; every rank calls it."""
        rest = dict(weights)
        learned = rest.pop("embeddings", None)
        self.model.load_state_dict(rest)
        self.encoder.load(self.model, learned)

    def save(self, folder: Path) -> None:
        """Write what no rank has whole into the run folder; every rank calls it."""
        learned = self.encoder.learned_rows()
        if learned is not None:
            write_rows(folder / "embeddings.npy", learned, self.A.layout)

    @property
    def activation_bytes(self) -> int:
        """What the layers' outputs of this rank's vertices take: one buffer a layer."""
        return self.A.rows.numel() * sum(self.model.widths[1:]) * self.x.element_size()

    def facts(self) -> dict[str, Any]:
        """What task and encoder add to the summary."""
        lie = {} if self.budget is None else self.budget.facts()
        return self.encoder.facts() | self.task.facts() | lie

    def notes(self) -> list[str]:
        """Lines that they add to the heading."""
        notes = self.encoder.notes(self.task.batches() if self.config.batch.batch_size else "")
        return notes if self.budget is None else [*notes, self.budget.note()]

    def fit(
        self,
        folder: RunFolder | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        resume: Checkpoint | None = None,
    ) -> Result:
        """Train to the end, to early stopping, or until Ctrl-C or a signal asks to stop.

            folder     where metrics and checkpoints go; rank 0 gives it, the others None
            on_epoch   called with each epoch's record
            resume     go on from here: the same bits on the same ranks, the same up to rounding on others

        A stop comes after the present update, on all ranks together, and keeps what was learned.
        """
        return fit(self, folder, on_epoch, resume)

"""Full-batch training: the whole graph in every step."""

from __future__ import annotations

import math
import resource
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..comm import Communicator, ledger
from ..comm.threads import single
from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..graph.guard import check_fits, machine_bytes
from ..kernels import gather_rows, pool
from ..kernels.memory import trim
from ..nn import Model, Noise, build, check_model
from ..parallel import Blocks, DistributedGraph, Volume, choose
from ..parallel.source import count_arcs
from .assign import assign
from .config import RunConfig
from .metrics import hits, loss_sum, score
from .optimise import Schedule, optimiser
from .run import RunFolder
from .watch import StepWatch

SPLITS = ("train", "val", "test")


@dataclass
class Result:
    """What a run gave; `as_dict` is what `--json` prints."""

    loss: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    """The task's metrics of the kept weights, by the name that `--json` prints."""
    epoch_seconds: float = float("nan")
    """Median seconds of a training step, the first (which warms up) left out."""
    best_epoch: int = 0
    interrupted: bool = False
    moved: Volume = field(default_factory=Volume)
    """What this rank received in one steady epoch."""
    watch: StepWatch | None = None
    """Where that epoch's time went."""

    @property
    def accuracy(self) -> dict[str, float]:
        """Of each split; micro-F1 where vertices have several labels."""
        return {s: self.scores[f"{s}_accuracy"] for s in SPLITS if f"{s}_accuracy" in self.scores}

    def as_dict(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            **(self.scores or {f"{split}_accuracy": float("nan") for split in SPLITS}),
            "epoch_seconds": self.epoch_seconds,
            "epochs": len(self.loss),
            "best_epoch": self.best_epoch,
            "interrupted": self.interrupted,
        }

    def gather(self, trainer: Trainer) -> dict[str, Any]:
        """How the work lay and what moved, of all ranks; every rank calls it."""
        comm, predicted = trainer.comm, trainer.predict()
        mine = {
            "words": self.moved.words, "messages": self.moved.messages, "predicted_words": predicted.words,
            "peak_rss_bytes": peak_rss_bytes(), "arcs": trainer.A.arcs,
            "in_order": trainer.arcs_in_order, "buffer_bytes": pool.bytes,
            "activation_bytes": trainer.activation_bytes,
            "idle_rss_bytes": trainer.idle_rss_bytes,
            "time": self.watch.seconds() if self.watch else {},
        }  # fmt: skip
        ranks = comm.all_gather_json(mine)
        by_phase = {
            key: {
                phase: [rank[key].get(phase, 0) for rank in ranks]
                for phase in dict.fromkeys(p for rank in ranks for p in rank[key])
            }
            for key in ("words", "messages", "predicted_words")
        }

        def slabs(arcs: list[int]) -> list[int]:
            """Of ranks (i, ·, 0) together: the ranks of one feature line hold the same arcs."""
            grid = trainer.A.grid
            return [sum(arcs[grid.rank(i, k, 0)] for k in range(grid.inner)) for i in range(grid.row)]

        return {
            "strategy": trainer.config.parallel.strategy, "grid": list(trainer.A.grid.shape),
            "exchange": trainer.exchange, "ranks": comm.size, "widths": trainer.model.widths, **by_phase,
            "peak_rss_bytes": [rank["peak_rss_bytes"] for rank in ranks],
            "idle_rss_bytes": [rank["idle_rss_bytes"] for rank in ranks],
            "arcs_per_row_slab": slabs([r["arcs"] for r in ranks]),
            "arcs_per_row_slab_in_vertex_order": [
                ranks[trainer.A.grid.rank(i, 0, 0)]["in_order"] for i in range(trainer.A.grid.row)
            ],
            "arcs_per_rank": [rank["arcs"] for rank in ranks],
            "buffer_bytes": [rank["buffer_bytes"] for rank in ranks],
            "activation_bytes": [rank["activation_bytes"] for rank in ranks],
            "time": {
                kind: [rank["time"].get(kind, 0.0) for rank in ranks]
                for kind in dict.fromkeys(k for rank in ranks for k in rank["time"])
            },
            **trainer.facts(),
        }  # fmt: skip


class Trainer:
    """Trains a model on a graph as the config says; here: to tell the vertices' classes.

    What another task does otherwise is a method: `_make_model`, `_read`, `step`, `predict`, `evaluate`,
    `merit`, `scores`.

    >>> from weft.graph import load
    >>> config = RunConfig()
    >>> config.train.epochs, config.model.hidden = 30, 8
    >>> result = Trainer(load("karate"), config).fit()
    >>> result.loss[-1] < result.loss[0]
    True
    """

    def __init__(self, source: Graph | Store, config: RunConfig, comm: Communicator | None = None):
        if isinstance(source, Graph):
            self._check(source, config)
        self.config = config
        self.comm = comm or single()
        self.idle_rss_bytes = peak_rss_bytes()
        options = config.parallel
        grid, exchange = choose(
            options.strategy, self.comm.size, options.grid, options.replication, options.exchange
        )
        dtype = getattr(torch, config.train.dtype)
        # The seed alone makes the weights: every rank of every grid starts from the same ones.
        self.model: Model = self._make_model(source).to(dtype)
        blocks = assign(source, grid, options, config.train.seed, self.comm)
        self.A = DistributedGraph.build(
            source,
            self.comm,
            grid,
            self.model.adjacency,
            exchange,
            blocks,
            dtype,
            options.overlap,
            options.move_adjacency,
        )
        self.exchange = exchange
        # What this rank's rows would hold if the vertices were cut in their own order.
        first, last = Blocks.even(source.num_nodes, grid).slab(grid.place(self.comm.rank)[0])
        self.arcs_in_order = count_arcs(source, first, last)
        x = self.A.read(source, "features")
        if x is None:
            x = torch.empty(self.A.rows.numel(), 0)
        self.x = prepare_features(x, config.data.feature_norm, self.comm).to(dtype)
        self._read(source)
        self.optimiser = optimiser(self.model, config.train, self._own_parameters())
        self.schedule = Schedule(self.optimiser, config.train)
        self._stop = False
        trim()

    def _check(self, graph: Graph, config: RunConfig) -> None:
        check_trainable(graph, config)

    def _make_model(self, source: Graph | Store) -> Model:
        return build(self.config.model, source.num_features, source.num_classes, self.config.train.seed)

    def _own_parameters(self) -> list[nn.Parameter]:
        """Parameters that this rank alone has: updated here, their gradients summed with nobody's."""
        return []

    def _read(self, source: Graph | Store) -> None:
        """What the task needs of the graph beside the features: labels and masks."""
        labels = self.A.read(source, "labels")
        assert labels is not None
        self.multilabel = labels.dim() == 2
        self.rows: dict[str, Tensor] = {}
        for split in SPLITS:
            mask = self.A.read(source, f"{split}_mask")
            self.rows[split] = torch.empty(0, dtype=torch.int64) if mask is None else mask.nonzero().ravel()
        self.labels = {split: labels[rows] for split, rows in self.rows.items()}
        # Losses and metrics are divided by the global count, so that every grid gives the serial number.
        own = torch.tensor([self.rows[split].numel() for split in SPLITS])
        self.counts = dict(zip(SPLITS, self.comm.all_reduce(own, phase="plan").tolist(), strict=True))

    def _largest(self, number: int) -> int:
        return int(self.comm.all_reduce(torch.tensor([number]), "max", phase="plan"))

    def _spare(self) -> int:
        """A quarter of the smallest machine's memory: all ranks must decide alike what they hold."""
        return -self._largest(-machine_bytes()) // 4

    def facts(self) -> dict[str, Any]:
        """What another kind of trainer adds to the summary."""
        return {}

    def notes(self) -> list[str]:
        """Lines that it adds to the heading."""
        return []

    @property
    def activation_bytes(self) -> int:
        """What the layers' outputs of this rank's vertices take: one buffer a layer."""
        return self.A.rows.numel() * sum(self.model.widths[1:]) * self.x.element_size()

    def step(self, epoch: int) -> float:
        """One pass forward and back and an update; the loss before it."""
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        logits = self.model(self.A, self.x, Noise(self.config.train.seed, epoch))
        picked = gather_rows(logits, self.rows["train"], distinct=True)
        loss = loss_sum(picked, self.labels["train"]) / self.counts["train"]
        del logits, picked  # backward needs neither: one buffer less at its peak
        loss.backward()
        self._sum_gradients()
        self.optimiser.step()
        return self._tell(loss.detach())

    def _tell(self, loss: Tensor) -> float:
        """The ranks' losses together. Whether somebody was asked to stop travels along: all end together."""
        told = torch.stack([loss, loss.new_tensor(float(self._stop))])
        total, stop = self.comm.all_reduce(told, phase="loss").tolist()
        self._stop = stop > 0
        return float(total)

    def _sum_gradients(self) -> None:
        """Weights are replicated; one flat all-reduce sums their gradients over the ranks' vertices."""
        parameters = list(self.model.parameters())
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch.cat([*(p.grad.reshape(-1) for p in parameters), self._own_square()])  # type: ignore[union-attr]
        self.comm.all_reduce(flat, out=flat, phase="grad")
        *parts, square = flat.split([*(p.numel() for p in parameters), self._own_square_words()])
        for p, part in zip(parameters, parts, strict=True):
            p.grad = part.view_as(p)
        self._clip(self._clipped())
        if square.numel():
            _scale_down(self._own_parameters(), float(square.sqrt()), self.config.train.clip_norm)

    def _clip(self, groups: list[list[nn.Parameter]]) -> None:
        """Whole gradients, which are the same on every rank, cut to `clip_norm` group by group."""
        if self.config.train.clip_norm:
            for group in groups:
                nn.utils.clip_grad_norm_(group, self.config.train.clip_norm)

    def _clipped(self) -> list[list[nn.Parameter]]:
        """Replicated parameters, in the groups whose gradients are clipped together."""
        return [list(self.model.parameters())]

    def _own_square_words(self) -> int:
        return 1 if self.config.train.clip_norm and self._has_own() else 0

    def _has_own(self) -> bool:
        """Whether any rank has parameters of its own: the same answer everywhere."""
        return False

    def _own_square(self) -> Tensor:
        """The squared norm of the own parameters' gradients, which goes along with the sum; [0] or [1]."""
        out = self.x.new_zeros(self._own_square_words())
        for p in self._own_parameters() if out.numel() else ():
            if p.grad is not None:
                out += p.grad.square().sum()
        return out

    def predict(self) -> Volume:
        """What this rank receives in one steady epoch, by closed formulas: words and messages per phase."""
        total = self.A.predict_moves(self.model.moves(self.A.plain))
        return total + self._summed("grad", self._gradient_words()) + self._summed("loss", 2)

    def _gradient_words(self) -> int:
        return sum(p.numel() for p in self.model.parameters()) + self._own_square_words()

    def _summed(self, phase: str, words: int) -> Volume:
        """What this rank receives in one all-reduce."""
        traffic = ledger.all_reduce(words, self.comm.rank, self.comm.size)
        return Volume({phase: traffic.words}, {phase: traffic.messages}) if traffic.words else Volume()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Accuracy (micro-F1 for several labels) of each split, and the validation loss."""
        self.model.eval()
        logits = self.model(self.A, self.x)
        picked = {split: logits[self.rows[split]] for split in SPLITS}
        counts = torch.stack([hits(picked[split], self.labels[split]) for split in SPLITS])
        counts = self.comm.all_reduce(counts, phase="metrics")
        val_loss = self.comm.all_reduce(loss_sum(picked["val"], self.labels["val"]).view(1), phase="metrics")
        out = {
            f"{split}_accuracy": score(row, self.multilabel)
            for split, row in zip(SPLITS, counts, strict=True)
        }
        out["val_loss"] = float(val_loss) / self.counts["val"] if self.counts["val"] else float("nan")
        return out

    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        """What the best epoch has most of: validation accuracy; on equal accuracy the lower loss wins."""
        return metrics["val_accuracy"], -metrics["val_loss"]

    def scores(self, metrics: dict[str, float]) -> dict[str, float]:
        """Of an evaluation that which a run is reported with."""
        return {name: value for name, value in metrics.items() if name != "val_loss"}

    def embed(self) -> Tensor:
        """The last hidden layer of the own vertices, with the weights as they are. [n_own, hidden]"""
        self.model.eval()
        with torch.no_grad():
            return self.model.embed(self.A, self.x)[0]

    def gradients(self) -> dict[str, Tensor]:
        """Every gradient of the last step, whole, by its parameter's name; every rank calls it."""
        return {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}

    def weights(self) -> dict[str, Tensor]:
        """A copy of all that was learned and this rank has."""
        return {name: w.clone() for name, w in self.model.state_dict().items()}

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take back what `weights` gave."""
        self.model.load_state_dict(weights)

    def save(self, folder: Path) -> None:
        """Write what no rank has whole into the run folder; every rank calls it."""

    def _stop_on_interrupt(self) -> Callable[[], object]:
        """Ctrl-C asks to stop after this epoch, a second one stops at once; returns how to undo that."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def ask(number: int, frame: object) -> None:
            self._stop = True
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, ask)
        return lambda: signal.signal(signal.SIGINT, before)

    def fit(
        self, folder: RunFolder | None = None, on_epoch: Callable[[dict[str, Any]], None] | None = None
    ) -> Result:
        """Train to the end, to early stopping, or to Ctrl-C: each keeps what was learned."""
        options, result = self.config.train, Result()
        seconds: list[float] = []
        best: tuple[float, float] = (-math.inf, -math.inf)
        best_weights: dict[str, Tensor] | None = None
        waited = 0
        restore = self._stop_on_interrupt()
        try:
            for epoch in range(1, options.epochs + 1):
                # The second epoch is steady, A·X is kept by then: it is the one that is reported.
                watch = StepWatch(self.comm, keep_events=bool(options.trace)) if epoch <= 2 else nullcontext()
                with watch:
                    started = time.perf_counter()
                    loss = self.step(epoch)
                    seconds.append(time.perf_counter() - started)
                if isinstance(watch, StepWatch):
                    result.moved, result.watch = watch.received(), watch
                result.loss.append(loss)
                if not math.isfinite(loss):
                    raise UserError(f"the loss became {loss} in epoch {epoch}. Lower --lr, now {options.lr}.")
                record = {"epoch": epoch, "loss": loss, "seconds": seconds[-1]}
                watched = None
                if epoch % options.evaluate_every == 0 or epoch == options.epochs:
                    metrics = self.evaluate()
                    record |= metrics
                    watched = metrics["val_loss"] if self.counts["val"] else loss
                    rank = self.merit(metrics)
                    waited += 1
                    if rank > best:
                        best, result.best_epoch, waited = rank, epoch, 0
                        if options.keep == "best":
                            best_weights = self.weights()
                if folder is not None:
                    folder.record(record)
                if on_epoch is not None:
                    on_epoch(record)
                self.schedule.step(watched)
                if self._stop:
                    result.interrupted = True
                    break
                if options.patience and waited >= options.patience:
                    break
        except KeyboardInterrupt:
            result.interrupted = True
        finally:
            restore()
        if best_weights is not None:
            self.restore(best_weights)
        else:
            result.best_epoch = len(result.loss)
        result.epoch_seconds = statistics.median(seconds[1:] or seconds or [float("nan")])
        try:
            result.scores = self.scores(self.evaluate())
        except KeyboardInterrupt:  # an impatient one: the weights matter more than their score
            result.interrupted = True
        return result


def _scale_down(parameters: list[nn.Parameter], norm: float, limit: float) -> None:
    """Gradients times limit / norm where the norm is larger, as torch's `clip_grad_norm_` does it."""
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, limit / (norm + 1e-6)))


def prepare_features(x: Tensor, how: str, comm: Communicator | None = None) -> Tensor:
    """Features scaled to row sum 1 (`row`), as they are (`none`), or `auto`: row for sparse counts.

    `auto` looks at the rows of all ranks of `comm`.

    >>> prepare_features(torch.tensor([[1., 3.], [0., 0.]]), "row").tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    if how not in ("auto", "row", "none"):
        raise unknown("feature_norm", how, ["auto", "row", "none"])
    if how == "auto":
        # Bags of words: nothing negative, most entries 0.
        negatives = int(x.numel() > 0 and float(x.min()) < 0)
        facts = torch.tensor([negatives, x.numel() - int(x.count_nonzero()), x.numel()])
        if comm is not None:
            facts = comm.all_reduce(facts, phase="plan")
        negative, zeros, entries = facts.tolist()
        how = "row" if not negative and 2 * zeros > entries else "none"
    if how == "none":
        return x
    total = x.sum(1, keepdim=True)
    return x / torch.where(total == 0, 1.0, total)


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def check_trainable(graph: Graph, config: RunConfig) -> None:
    """Refuse what cannot be trained, before anything is computed or written."""
    check_options(config)
    if not graph.num_features:
        raise UserError(
            f"{graph.name} has no features to train on. Add some: weft convert --features X.npy, "
            "or a generator's features=64."
        )
    if graph.labels is None or graph.num_classes < 1:
        raise UserError(f"{graph.name} has no labels to train on. Add some: weft convert --labels Y.npy.")
    if graph.train_mask is None or not bool(graph.train_mask.any()):
        raise UserError(
            f"{graph.name} has no training vertices. Give a train mask, or a larger --train-share."
        )
    if not graph.multilabel:
        for split in SPLITS:
            mask = getattr(graph, f"{split}_mask")
            if mask is not None and bool((bare := mask & (graph.labels < 0)).any()):
                vertex = int(bare.nonzero()[0])
                raise UserError(
                    f"vertex {vertex} of {graph.name} is in {split}_mask but has no label. Mend one."
                )
    if config.train.patience and (graph.val_mask is None or not bool(graph.val_mask.any())):
        raise UserError(
            f"patience={config.train.patience} needs validation vertices, {graph.name} has none. "
            "Use --patience 0, or a split that has some."
        )
    _check_memory(graph, config)


def check_options(config: RunConfig) -> None:
    """Refuse settings that suit no graph.

    >>> config = RunConfig()
    >>> config.train.epochs = 0
    >>> check_options(config)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: epochs must be at least 1, not 0.
    """
    check_model(config.model)
    options = config.train
    for name, least in (("epochs", 1), ("evaluate_every", 1), ("patience", 0), ("seed", 0), ("threads", 0)):
        if getattr(options, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(options, name)}.")
    for name, most in (("seed", 2**63 - 1), ("threads", 1024)):
        if getattr(options, name) > most:
            raise UserError(f"{name} must be at most {most}, not {getattr(options, name)}.")
    if options.clip_norm < 0:
        raise UserError(f"clip_norm must not be negative, as {options.clip_norm:g} is. Use 0 for none.")
    if options.dtype not in ("float32", "float64"):
        raise unknown("dtype", options.dtype, ["float32", "float64"])
    if options.keep not in ("best", "last"):
        raise unknown("keep", options.keep, ["best", "last"])


def _check_memory(graph: Graph, config: RunConfig) -> None:
    """A lower bound of what training holds: an activation a layer, the weights and their gradients."""
    hidden, deep = config.model.hidden, config.model.layers - 1
    if config.model.name == "sgc" or deep < 1 or hidden < 1:
        return
    weights = hidden * (graph.num_features + graph.num_classes + (deep - 1) * hidden)
    bytes_each = 4 if config.train.dtype == "float32" else 8
    needed = bytes_each * (graph.num_nodes * hidden * deep + 2 * weights)
    check_fits(needed, f"a model of {deep + 1} layers with hidden={hidden} on {graph.num_nodes} vertices")

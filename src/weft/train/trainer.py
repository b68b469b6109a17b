"""Full-batch training: the whole graph in every step."""

from __future__ import annotations

import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, unknown
from ..graph import Graph, normalise
from ..graph.guard import check_fits
from ..kernels import CSR, gather_rows
from ..kernels.memory import trim
from ..nn import Model, Noise, build, check_model
from .config import RunConfig
from .metrics import hits, loss_sum, score
from .optimise import Schedule, optimiser
from .run import RunFolder

SPLITS = ("train", "val", "test")


@dataclass
class Result:
    """What a run gave; `as_dict` is what `--json` prints."""

    loss: list[float] = field(default_factory=list)
    accuracy: dict[str, float] = field(default_factory=dict)
    epoch_seconds: float = float("nan")
    """Median seconds of a training step, the first (which warms up) left out."""
    best_epoch: int = 0
    interrupted: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            **{f"{split}_accuracy": self.accuracy.get(split, float("nan")) for split in SPLITS},
            "epoch_seconds": self.epoch_seconds,
            "epochs": len(self.loss),
            "best_epoch": self.best_epoch,
            "interrupted": self.interrupted,
            "peak_rss_bytes": [peak_rss_bytes()],
        }


class Trainer:
    """Trains a model on a graph as the config says.

    >>> from weft.graph import load
    >>> config = RunConfig()
    >>> config.train.epochs, config.model.hidden = 30, 8
    >>> result = Trainer(load("karate"), config).fit()
    >>> result.loss[-1] < result.loss[0]
    True
    """

    def __init__(self, graph: Graph, config: RunConfig):
        _check(graph, config)
        self.config = config
        dtype = getattr(torch, config.train.dtype)
        # One generator seeds the weights: every rank of every grid starts from the same ones.
        torch.manual_seed(config.train.seed)
        self.model: Model = build(config.model, graph.num_features, graph.num_classes).to(dtype)
        self.optimiser = optimiser(self.model, config.train)
        self.schedule = Schedule(self.optimiser, config.train)

        normalised = normalise(graph, self.model.adjacency, dtype=dtype)
        n = graph.num_nodes
        self.A = CSR(normalised.indptr, normalised.indices, normalised.weights, (n, n))
        assert graph.features is not None
        assert graph.labels is not None
        self.x = prepare_features(graph.features, config.data.feature_norm).to(dtype)
        self.multilabel = graph.multilabel
        masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
        self.rows: dict[str, Tensor] = {}
        for split, mask in masks.items():
            self.rows[split] = torch.empty(0, dtype=torch.int64) if mask is None else mask.nonzero().ravel()
        self.labels = {split: graph.labels[rows] for split, rows in self.rows.items()}
        trim()

    def step(self, epoch: int) -> float:
        """One pass forward and back and an update; the loss before it."""
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        logits = self.model(self.A, self.x, Noise(self.config.train.seed, epoch))
        rows = self.rows["train"]
        loss = loss_sum(gather_rows(logits, rows, distinct=True), self.labels["train"]) / rows.numel()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Accuracy (micro-F1 for several labels) of each split, and the validation loss."""
        self.model.eval()
        logits = self.model(self.A, self.x)
        out = {}
        for split in SPLITS:
            picked = logits[self.rows[split]]
            out[f"{split}_accuracy"] = score(hits(picked, self.labels[split]), self.multilabel)
            if split == "val":
                count = self.rows[split].numel()
                total = float(loss_sum(picked, self.labels[split]))
                out["val_loss"] = total / count if count else float("nan")
        return out

    def fit(
        self, folder: RunFolder | None = None, on_epoch: Callable[[dict[str, Any]], None] | None = None
    ) -> Result:
        """Train to the end, to early stopping, or to Ctrl-C: each keeps what was learned."""
        options, result = self.config.train, Result()
        seconds: list[float] = []
        best: tuple[float, float] = (-math.inf, -math.inf)
        best_weights: dict[str, Tensor] | None = None
        waited = 0
        try:
            for epoch in range(1, options.epochs + 1):
                started = time.perf_counter()
                loss = self.step(epoch)
                seconds.append(time.perf_counter() - started)
                result.loss.append(loss)
                if not math.isfinite(loss):
                    raise UserError(f"the loss became {loss} in epoch {epoch}. Lower --lr, now {options.lr}.")
                record = {"epoch": epoch, "loss": loss, "seconds": seconds[-1]}
                watched = None
                if epoch % options.evaluate_every == 0 or epoch == options.epochs:
                    metrics = self.evaluate()
                    record |= metrics
                    watched = metrics["val_loss"] if self.rows["val"].numel() else loss
                    # A better validation result; on equal accuracy the lower loss wins.
                    rank = (metrics["val_accuracy"], -metrics["val_loss"])
                    waited += 1
                    if rank > best:
                        best, result.best_epoch, waited = rank, epoch, 0
                        if options.keep == "best":
                            best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
                if folder is not None:
                    folder.record(record)
                if on_epoch is not None:
                    on_epoch(record)
                self.schedule.step(watched)
                if options.patience and waited >= options.patience:
                    break
        except KeyboardInterrupt:
            result.interrupted = True
        if best_weights is not None:
            self.model.load_state_dict(best_weights)
        else:
            result.best_epoch = len(result.loss)
        result.epoch_seconds = statistics.median(seconds[1:] or seconds or [float("nan")])
        try:
            metrics = self.evaluate()
            result.accuracy = {split: metrics[f"{split}_accuracy"] for split in SPLITS}
        except KeyboardInterrupt:  # an impatient one: the weights matter more than their score
            result.interrupted = True
        return result


def prepare_features(x: Tensor, how: str) -> Tensor:
    """Features scaled to row sum 1 (`row`), as they are (`none`), or `auto`: row for sparse counts.

    >>> prepare_features(torch.tensor([[1., 3.], [0., 0.]]), "row").tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    if how not in ("auto", "row", "none"):
        raise unknown("feature_norm", how, ["auto", "row", "none"])
    if how == "auto":
        # Bags of words: nothing negative, most entries 0.
        counts = bool((x >= 0).all()) and float((x == 0).float().mean()) > 0.5 if x.numel() else False
        how = "row" if counts else "none"
    if how == "none":
        return x
    total = x.sum(1, keepdim=True)
    return x / torch.where(total == 0, 1.0, total)


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _check(graph: Graph, config: RunConfig) -> None:
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

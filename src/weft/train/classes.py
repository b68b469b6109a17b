"""Classes of vertices: cross-entropy of the training vertices, accuracy of every split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..graph import Graph, Store
from ..kernels import Stream
from ..kernels.draw import shuffled
from ..minibatch.subgraph import rows_of
from ..nn import Model, Noise, build
from ..parallel import ByBlocks, Rows
from ..parallel.source import row_starts
from .config import RunConfig
from .metrics import confusion, hits, loss_sum, score
from .task import Step, Task

SPLITS = ("train", "val", "test")
MOST_CLASSES = 256
"""Of more classes no table of every class by every class is kept."""
_ORDER = 999
"""The stream of the order of seeds; hops are numbered from 1000."""


class Classes(Task):
    """Which class each vertex is of: one label a vertex, or several.

    Whole graph: one step an epoch, over all training vertices. In batches: an epoch passes once over them, in
    an order that follows from the seed; a seed's row is wanted by its vertex's owner. In subgraphs of random
    vertices: an epoch passes once over all vertices, and those of them that train count. Of random edges:
    once over all arcs, and training vertices that one of a step's arcs goes into count.
    """

    draws = True

    def make_model(self, source: Graph | Store) -> Model:
        return build(self.config.model, source.num_features, source.num_classes, self.config.train.seed)

    def read(self, source: Graph | Store, layout: Rows) -> None:
        self.comm = comm = layout.comm
        labels = layout.read(source, "labels")
        assert labels is not None
        self.multilabel, self.num_classes = labels.dim() == 2, source.num_classes
        self.rows: dict[str, Tensor] = {}
        for split in SPLITS:
            mask = layout.read(source, f"{split}_mask")
            none = torch.empty(0, dtype=torch.int64, device=labels.device)
            self.rows[split] = none if mask is None else mask.nonzero().ravel()
        self.labels = {split: labels[rows] for split, rows in self.rows.items()}
        # Losses and metrics are divided by the global count, so that every grid gives the serial number.
        own = torch.tensor([self.rows[split].numel() for split in SPLITS], device="cpu")
        self.counts = dict(zip(SPLITS, comm.all_reduce(own, phase="plan").tolist(), strict=True))
        if isinstance(source, Store):  # nobody has looked at its values yet
            self._check_values(source, labels)
        self.train_ids = layout.ids[self.rows["train"]]
        self.batch_size = 0
        if self.config.batch.batch_size:
            self._take_seeds(source, layout)

    def _check_values(self, source: Store, labels: Tensor) -> None:
        """What `check_classes` says of a graph in memory: every rank looks at its own, all raise alike."""
        if self.multilabel:
            bare, wild = torch.zeros(len(SPLITS), dtype=torch.int64, device="cpu"), 0
        else:
            bare = torch.stack([(y < 0).sum() for y in self.labels.values()]).cpu()
            wild = int(((labels < -1) | (labels >= self.num_classes)).sum())
        *unlabelled, odd = self.comm.all_reduce(
            torch.cat([bare, torch.tensor([wild], device="cpu")]), phase="plan"
        ).tolist()
        if odd:
            raise UserError(
                f"{odd} labels of {source.name} are outside its {self.num_classes} classes. Mend them."
            )
        for split, count in zip(SPLITS, unlabelled, strict=True):
            if count:
                raise UserError(
                    f"{count} vertices of {source.name} are in {split}_mask but have no label. Mend one."
                )
        if not self.counts["train"]:
            raise _untrained(source.name)
        if self.config.train.patience and not self.counts["val"]:
            raise _impatient(self.config.train.patience, source.name)

    def _take_seeds(self, source: Graph | Store, layout: Rows) -> None:
        """Everybody knows the training vertices and their order; a seed belongs to its vertex's owner."""
        own, comm = self.train_ids, self.comm
        sizes = [0] * comm.size
        sizes[comm.rank] = own.numel()
        sizes = comm.all_reduce(torch.tensor(sizes, device="cpu"), phase="plan").tolist()
        self.train_ids = comm.all_gather(own, sizes, phase="plan").sort().values
        is_own = ByBlocks(layout.blocks).find(self.train_ids)[0] == comm.rank
        # Of each training vertex its place among this rank's; −1 of others.
        self._own_place = torch.where(is_own, is_own.cumsum(0) - 1, -1)
        self._own_ids, order = own.sort()
        self._own_labels = self.labels["train"][order]
        self._order: tuple[int, Tensor] | None = None
        batch = self.config.batch
        self.vertices = layout.count
        self._all = batch.batching == "subgraph" and batch.subgraph == "vertices"
        self._starts: Tensor | None = None
        if batch.batching == "subgraph" and batch.subgraph == "edges":
            self._starts = row_starts(source)
            self._into = int(self._starts.diff()[self.train_ids].sum())
            if not self._into:
                raise UserError(f"no arc of {source.name} goes into a training vertex. Use --subgraph seeds.")
        self.batch_size = min(batch.batch_size, self._passed_over)

    @property
    def _passed_over(self) -> int:
        """What an epoch is cut of."""
        if self._starts is not None:
            return int(self._starts[-1])
        return self.vertices if self._all else self.train_ids.numel()

    @property
    def steps(self) -> int:
        return -(-self._passed_over // self.batch_size) if self.batch_size else 1

    def order(self, epoch: int) -> Tensor:
        """The training vertices of an epoch, shuffled; the same on every rank."""
        if self._order is None or self._order[0] != epoch:
            generator = torch.Generator().manual_seed(Stream(self.config.train.seed, epoch, _ORDER).key >> 1)
            shuffled = torch.randperm(self.train_ids.numel(), generator=generator, device="cpu")
            self._order = epoch, shuffled
        return self._order[1]

    def step(self, epoch: int, number: int) -> Step:
        seed = self.config.train.seed
        if not self.batch_size:
            rows, y = self.rows["train"], self.labels["train"]
            # `rows` are picked out of all rows for this loss alone.
            objective = _cross_entropy(y, self.counts["train"], over=True)
            return Step(self.train_ids, objective, Noise(seed, epoch), 1.0, rows)
        part, drawn, share = self._part(epoch, number)
        own = self._own_place[part]
        own = own[own >= 0]
        seeds, y = self._own_ids[own], self._own_labels[own]
        noise = Noise(seed, (epoch - 1) * self.steps + number)
        return Step(seeds, _cross_entropy(y, max(1, part.numel())), noise, share, drawn=drawn)

    def _part(self, epoch: int, number: int) -> tuple[Tensor, Tensor, float]:
        """(which of the training vertices a step is for, what it is drawn from, what it counts)."""
        first = number * self.batch_size
        if not self._all and self._starts is None:
            part = self.order(epoch)[first : first + self.batch_size]
            return part, self.train_ids[part], part.numel() / self.train_ids.numel()
        count = self._passed_over
        places = torch.arange(first, min(first + self.batch_size, count), device="cpu")
        key = Stream(self.config.train.seed, epoch, _ORDER).key
        drawn = shuffled(places, count, key).sort().values
        rows = drawn if self._starts is None else rows_of(drawn, self._starts)
        at = torch.searchsorted(self.train_ids, rows).clamp(max=self.train_ids.numel() - 1)
        at = at[self.train_ids[at] == rows]
        if self._starts is None:
            return at, drawn, at.numel() / self.train_ids.numel()
        # A vertex trains once in a step; every arc into it counts in the epoch.
        return torch.unique(at), drawn, at.numel() / self._into

    def evaluate(self, encode: Callable[[], Tensor], model: Model) -> dict[str, float]:
        """Accuracy (micro-F1 for several labels) of each split, and the validation loss."""
        logits = encode()
        picked = {split: logits[self.rows[split]] for split in SPLITS}
        labels = {split: self.labels[split].to(logits.device) for split in SPLITS}
        counts = torch.stack([hits(picked[split], labels[split]) for split in SPLITS])
        counts = self.comm.all_reduce(counts, phase="metrics")
        val_loss = self.comm.all_reduce(loss_sum(picked["val"], labels["val"]).view(1), phase="metrics")
        out = {
            f"{split}_accuracy": score(row, self.multilabel)
            for split, row in zip(SPLITS, counts, strict=True)
        }
        out["val_loss"] = float(val_loss) / self.counts["val"] if self.counts["val"] else float("nan")
        return out

    def details(self, encode: Callable[[], Tensor], model: Model) -> dict[str, Any]:
        """What the test vertices (or whichever there are) were taken for.

        confusion [c, c]: vertices of class i that were taken for class j; of many classes its sums alone:
        `true`, `guessed` and `right` [c] each, which vertices of several labels have too.
        """
        split = next((s for s in ("test", "val", "train") if self.counts[s]), "train")
        logits = encode()[self.rows[split]]
        labels = self.labels[split].to(logits.device)
        found: dict[str, Any] = {"kind": "classes", "split": split, "multilabel": self.multilabel}
        if self.multilabel or self.num_classes > MOST_CLASSES:
            guess = logits > 0 if self.multilabel else _one_hot(logits.argmax(1), self.num_classes)
            truth = labels if self.multilabel else _one_hot(labels, self.num_classes)
            sums = torch.stack([truth.sum(0), guess.sum(0), (truth & guess).sum(0)])
            rows = self.comm.all_reduce(sums, phase="metrics").tolist()
            return found | dict(zip(("true", "guessed", "right"), rows, strict=True))
        counts = confusion(logits, labels, self.num_classes)
        return found | {"confusion": self.comm.all_reduce(counts, phase="metrics").tolist()}

    def predictions(self, rows: Tensor, source: Graph | Store, layout: Rows) -> dict[str, Tensor]:
        """`classes.npy`: [n] int64, or [n, c] bool where vertices have several labels."""
        labels = layout.read(source, "labels")
        several = labels is not None and labels.dim() == 2
        return {"classes.npy": rows > 0 if several else rows.argmax(1)}

    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        """Validation accuracy; on equal accuracy the lower loss wins."""
        return metrics["val_accuracy"], -metrics["val_loss"]

    @property
    def judges(self) -> bool:
        return self.counts["val"] > 0

    @property
    def watched(self) -> str:
        return "val_accuracy"

    def heading(self, source: Graph | Store) -> str:
        return f"{source.num_features:,} features, {source.num_classes:,} classes"

    def batches(self) -> str:
        line = f"{self.steps:,} batches of {self.batch_size:,}"
        asked = self.config.batch.batch_size
        if self.batch_size < asked:
            what = "" if self._all else "training "
            line += f" (--batch-size {asked:,} is more than the {self.batch_size:,} {what}vertices)"
        return line

    def outcome(self, scores: dict[str, float]) -> list[str]:
        name = "micro-F1" if self.multilabel else "accuracy"
        shown = {split: scores[f"{split}_accuracy"] for split in SPLITS if f"{split}_accuracy" in scores}
        chance = "" if self.multilabel else f"   (chance {1 / self.num_classes:.3f})"
        return [f"{name}  {'   '.join(f'{split} {value:.4f}' for split, value in shown.items())}{chance}"]

    def facts(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "batches": self.steps} if self.batch_size else {}


def _one_hot(classes: Tensor, count: int) -> Tensor:
    return torch.nn.functional.one_hot(classes, count).bool()


def _cross_entropy(
    labels: Tensor, count: int, over: bool = False
) -> Callable[..., tuple[Tensor, Callable[[], None]]]:
    def objective(z: Tensor, model: Model) -> tuple[Tensor, Callable[[], None]]:
        loss = loss_sum(z, labels.to(z.device), count, over)
        return loss.detach(), loss.backward

    return objective


def check_classes(graph: Graph | Store, config: RunConfig) -> None:
    """Refuse what classes cannot be learned from, before anything is computed or written.

    Of a store the header is read; the ranks look at the values (`Classes.read`).
    """
    if not graph.num_features:
        raise UserError(
            f"{graph.name} has no features to train on. Add some: weft convert --features X.npy, "
            "or a generator's features=64."
        )
    labelled = graph.has("labels") if isinstance(graph, Store) else graph.labels is not None
    if not labelled or graph.num_classes < 1:
        raise UserError(f"{graph.name} has no labels to train on. Add some: weft convert --labels Y.npy.")
    if isinstance(graph, Store):
        return
    assert graph.labels is not None
    if graph.train_mask is None or not bool(graph.train_mask.any()):
        raise _untrained(graph.name)
    if not graph.multilabel:
        for split in SPLITS:
            mask = getattr(graph, f"{split}_mask")
            if mask is not None and bool((bare := mask & (graph.labels < 0)).any()):
                vertex = int(bare.nonzero()[0])
                raise UserError(
                    f"vertex {vertex} of {graph.name} is in {split}_mask but has no label. Mend one."
                )
    if config.train.patience and (graph.val_mask is None or not bool(graph.val_mask.any())):
        raise _impatient(config.train.patience, graph.name)


def _untrained(name: str) -> UserError:
    return UserError(f"{name} has no training vertices. Give a train mask, or a larger --train-share.")


def _impatient(patience: int, name: str) -> UserError:
    return UserError(
        f"patience={patience} needs validation vertices, {name} has none. "
        "Use --patience 0, or a split that has some."
    )

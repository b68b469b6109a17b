"""A new task: a number for each vertex, learned by least squares. Here: the mean feature of its neighbours.

    python examples/new_task.py

    y_v  = the mean of all features of v's in-neighbours (its own where it has none)
    loss = mean over the batch of max(|z_v − y_v| − margin, 0)²

A task says which vertices' rows a step wants on this rank, and what loss they give. How rows are made (the
whole graph on any grid, sampled blocks by pull or push-pull), how gradients are summed, how words are
foretold, the loop, the run folder and `weft train --task number --margin 0.1` are the library's: the line
with `TASKS` is all that it has to be told.

The same on every number of ranks means: every rank knows the order of the training vertices, takes those of a
batch that it owns, and divides by the size of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, Store, load
from weft.nn import Model, Noise, build
from weft.parallel import Operator, Rows
from weft.train import TASKS, RunConfig, Section, Step, Task, TaskEntry, Trainer
from weft.train.result import agrees


@dataclass
class NumberOptions(Section):
    """What only this task reads: `--margin`, [number] in TOML, `config.number` here."""

    margin: float = 0.0
    """Differences up to this cost nothing."""


class Numbers(Task):
    def make_model(self, source: Graph | Store) -> Model:
        return build(self.config.model, source.num_features, 1, self.config.train.seed)

    def read(self, source: Graph | Store, layout: Rows) -> None:
        self.comm = layout.comm
        x = layout.read(source, "features")
        train = layout.read(source, "train_mask")
        assert x is not None
        assert train is not None
        # One product with the graph as it lies gives y of the own vertices.
        own = x.double().mean(1, keepdim=True)
        blocks = layout.blocks
        A = Operator.build(source, self.comm, blocks.grid, "mean", blocks=blocks, dtype=own.dtype)
        self.y = torch.where(A.degrees > 0, A @ own, own).ravel()
        # Everybody knows who is trained on; the others are judged by.
        self.trained = layout.collect(train).nonzero().ravel()
        self.held_out = (~train).nonzero().ravel()
        held = torch.tensor([self.held_out.numel()])
        self.held_out_of_all = int(self.comm.all_reduce(held, phase="plan"))
        self.place_of = torch.full((layout.count,), -1)  # where a vertex stands among the own rows
        self.place_of[layout.ids] = torch.arange(layout.ids.numel())
        self.size = self.config.batch.batch_size or self.trained.numel()

    @property
    def steps(self) -> int:
        return -(-self.trained.numel() // self.size)

    def step(self, epoch: int, number: int) -> Step:
        seed = self.config.train.seed
        generator = torch.Generator().manual_seed(1000 * seed + epoch)
        order = torch.randperm(self.trained.numel(), generator=generator)
        batch = self.trained[order[number * self.size : (number + 1) * self.size]]
        mine = batch[self.place_of[batch] >= 0]
        places = self.place_of[mine]
        y = self.y[places]

        def objective(z: Tensor, model: Model) -> tuple[Tensor, Callable[[], None]]:
            excess = ((z.ravel() - y.to(z)).abs() - self.options.margin).clamp(min=0)
            loss = excess.square().sum() / batch.numel()
            return loss.detach(), loss.backward

        noise = Noise(seed, (epoch - 1) * self.steps + number)
        return Step(mine, objective, noise, batch.numel() / self.trained.numel(), places)

    def evaluate(self, encode: Callable[[], Tensor], model: Model) -> dict[str, float]:
        error = (encode().ravel() - self.y).double()[self.held_out]
        total = self.comm.all_reduce(error.square().sum().view(1), phase="metrics")
        mse = float(total) / max(1, self.held_out_of_all)
        return {"val_mse": mse, "val_loss": mse}

    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        return -metrics["val_mse"], 0.0

    @property
    def judges(self) -> bool:
        return self.held_out_of_all > 0

    @property
    def watched(self) -> str:
        return "val_mse"


def check(graph: Graph, config: RunConfig) -> None:
    if not graph.num_features or graph.train_mask is None:
        raise UserError(f"{graph.name} has no features or no training vertices. Use a graph that has both.")


def check_options(config: RunConfig) -> None:
    margin = config.tasks["number"].margin
    if margin < 0:
        raise UserError(f"margin must not be negative, as {margin:g} is. Use 0 for none.")


TASKS["number"] = TaskEntry(Numbers, check, check_options, NumberOptions)


def train(comm: Communicator, way: str = "1d", epochs: int = 5) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold); `way`: a strategy, or a feed."""
    config = RunConfig()
    config.train.task, config.train.dtype = "number", "float64"
    config.model.name, config.model.hidden = "sage", 16
    if way in ("pull", "push-pull"):
        config.batch.batch_size, config.batch.fanouts, config.batch.feed = 50, "10,5", way
    else:
        config.parallel.strategy = way
    trainer = Trainer(load("sbm:nodes=501,features=20"), config, comm)
    losses = [trainer.step(epoch) for epoch in range(1, epochs)]
    foretold = trainer.predict(epochs).words
    with Ledger(comm) as books:
        losses.append(trainer.step(epochs))
    moved = {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}
    return losses, agrees(moved, foretold)


def main() -> None:
    for p, way in ((1, "1d"), (3, "halo"), (4, "2d"), (1, "pull"), (3, "pull"), (3, "push-pull")):
        losses, foretold = run_ranks(train, p, "threads", way)[0]
        print(f"{p} ranks, {way:<10} loss {losses[0]:.9f} to {losses[-1]:.9f}, words as foretold: {foretold}")


if __name__ == "__main__":
    main()

"""Widest paths: a sum over arcs in which the strongest path counts, and its weakest arc. No library has it.

    python examples/widest_paths.py

An arc (i, j) of weight a_ij carries at most so much, like a pipe. Over the semiring (max, min)

    y_i = max_j min(a_ij, h_j)

is how much reaches i from its neighbours. With h = ∞ at a landmark and −∞ elsewhere, k products give how much
gets from the landmark to every vertex in k steps: a feature that neither distances nor random walks have. And
as a layer

    h' = h W + (max_j min(a_ij, c_j)) W_near + b          c = h, never above the pipe that it comes through

it is learned through: the gradient goes to the neighbour whose flow got through, or, where the pipe was too
narrow, to nobody. torch.maximum and torch.minimum are all that weft is told; on any grid, in batches, with
push-pull, words foretold.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.graph import Graph, load
from weft.kernels import Semiring, linear
from weft.nn import Adjacency, Layer, register
from weft.parallel import Operator
from weft.train import RunConfig, Trainer
from weft.train.result import agrees

WIDEST = Semiring(torch.maximum, torch.minimum, -torch.inf)


def capacities(A: Operator, landmarks: Tensor, steps: int) -> Tensor:
    """How much gets from each landmark to each vertex at hand in `steps` steps. [n_own, landmarks]"""
    h = torch.where(A.rows[:, None] == landmarks, torch.inf, -torch.inf)
    for _ in range(steps):
        h = torch.maximum(h, A.aggregate(h, WIDEST))
    return h


class WidestLayer(Layer):
    cut = ("weight", "weight_near")  # their rows go with the columns of h
    entrywise = True  # the second half adds a bias, and that is all
    direct = True  # h is read through A alone
    scaled = False  # a pipe of a sample is as wide as it is

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.weight_near = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        near = A.aggregate(h, WIDEST)
        near = torch.where(near == -torch.inf, 0.0, near)  # a vertex without arcs: nothing gets through
        return linear(A.own(h), self.weight) + linear(near, self.weight_near)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return t + self.bias


register("widest", lambda config, own, widths: ([WidestLayer(a, b) for a, b in pairwise(widths)], "none"))


def pipes() -> Graph:
    """Vertices in groups, with pipes of random width between them."""
    graph = load("sbm:nodes=501,features=20")
    width = torch.rand(graph.num_arcs, generator=torch.Generator().manual_seed(0)) + 0.1
    return graph.replace(weights=width)


def train(comm: Communicator, way: str = "1d", epochs: int = 5) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold); `way`: a strategy, or a feed."""
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.dtype = "widest", 16, "float64"
    if way in ("pull", "push-pull"):
        config.batch.batch_size, config.batch.fanouts, config.batch.feed = 50, "10,5", way
    else:
        config.parallel.strategy = way
    trainer = Trainer(pipes(), config, comm)
    losses = [trainer.step(epoch) for epoch in range(1, epochs)]
    foretold = trainer.predict(epochs).words
    with Ledger(comm) as books:
        losses.append(trainer.step(epochs))
    moved = {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}
    return losses, agrees(moved, foretold)


def main() -> None:
    for p, way in ((1, "1d"), (4, "halo"), (4, "2d"), (1, "pull"), (3, "pull"), (3, "push-pull")):
        losses, foretold = run_ranks(train, p, "threads", way)[0]
        print(f"{p} ranks, {way:<10} loss {losses[0]:.9f} to {losses[-1]:.9f}, words as foretold: {foretold}")


if __name__ == "__main__":
    main()

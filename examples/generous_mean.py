"""A new aggregation: the mean of the neighbours, and a learned share of the largest of them.

    python examples/generous_mean.py

    m_i = mean_j h_j + γ max_j h_j,  column by column           γ learned
    h'  = m W + h W_self + b

A mean forgets what one neighbour alone has, a maximum forgets how many have it. `partial` is everything up to
the sum over columns: a rank with some columns of h, and those rows of W and W_self, gets a share of it. The
maximum is no obstacle, for each column is on one rank. `apply` adds the bias, once.

The same class trains on the whole graph on any grid, on sampled blocks fed by pull, and by push-pull; the
losses are those of one rank, and words are foretold.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.graph import load
from weft.kernels import linear
from weft.nn import Adjacency, Layer, register
from weft.train import RunConfig, Trainer
from weft.train.result import agrees


class GenerousLayer(Layer):
    cut = ("weight", "weight_self")  # their rows go with the columns of h
    entrywise = True  # the second half adds a bias, and that is all
    direct = True  # h is read through A alone: its rows need not be copied out
    scaled = False  # a mean and a maximum of a sample stand for themselves

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.weight_self = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.gamma = nn.Parameter(torch.tensor(0.5))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        m = A.aggregate(h, "mean") + self.gamma * A.aggregate(h, "max")
        return linear(m, self.weight) + linear(A.own(h), self.weight_self)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return t + self.bias


register("generous", lambda config, own, widths: ([GenerousLayer(a, b) for a, b in pairwise(widths)], "none"))


def train(comm: Communicator, way: str = "1d", epochs: int = 5) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold); `way`: a strategy, or a feed."""
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.dtype = "generous", 16, "float64"
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
    for p, way in ((1, "1d"), (4, "halo"), (4, "2d"), (1, "pull"), (3, "pull"), (3, "push-pull")):
        losses, foretold = run_ranks(train, p, "threads", way)[0]
        print(f"{p} ranks, {way:<10} loss {losses[0]:.9f} to {losses[-1]:.9f}, words as foretold: {foretold}")


if __name__ == "__main__":
    main()

"""An attention that is in no library: sharp cosines that shy away from the loud, beside the loudest one.

    python examples/shy_attention.py                        # one rank, then several virtual ones
    weft run --ranks 4 examples/shy_attention.py            # the same on four processes

    Ψ    = softmax(t cos(h, h) − s log(1 + |h|)ᵀ)  at A's entries     t, s learned
    g    = σ(h a 1ᵀ + 1 (h b)ᵀ)                    at A's entries
    h'   = (Ψ h + max_j g_ij h_j) W + b

t says how sharply a vertex tells its neighbours apart; s how much it discounts those that shout. What is rare
and strong would drown in any average: the maximum keeps it, column by column.

Nothing here knows of ranks or batches, and nothing of size n×n, or arcs × width, is made. `partial` may run
where a rank has some columns of h: dot products and lengths are added up by A, the sides of g by `A.sync`;
the maximum needs one column at a time. The line with `register` is all that weft has to be told: `build`,
`Trainer`, `run_ranks`, both feeds, and the prediction of the words that move know the model then. In a script
of your own, `weft.cli.main(["train", "cora", "--model", "shy", "--sharpness", "4"])` trains it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, connect, in_job, run_ranks
from weft.graph import load
from weft.kernels import linear
from weft.nn import Adjacency, Layer, ModelConfig, register
from weft.nn.algebra import aggregate, dropout, outer, rep, softmax, tall
from weft.train import RunConfig, Trainer
from weft.train.result import agrees


class ShyLayer(Layer):
    cut = ("weight", "gate")  # their rows go with the columns of h
    entrywise = True  # the second half adds a bias, and that is all

    def __init__(self, inputs: int, outputs: int, sharpness: float = 1.0, drop: float = 0.0):
        super().__init__()
        self.drop = drop
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.gate = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, 2)))
        self.sharpness = nn.Parameter(torch.tensor(sharpness))
        self.shyness = nn.Parameter(torch.tensor(0.1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        H, norms = tall(h), A.norms(h).clamp(min=1e-12)
        S = self.sharpness * (A * (H @ H.T) / outer(norms, norms)) - self.shyness * rep(torch.log1p(norms)).T
        u, v = A.sync(linear(h, self.gate)).split(1, dim=1)
        loudest = aggregate(A * torch.sigmoid(rep(u) + rep(v).T), h, "max")
        return linear(dropout(softmax(S), self.drop, self.stream) @ h + loudest, self.weight)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return t + self.bias


@dataclass(frozen=True)
class ShyOptions:
    """What only this model reads; `--sharpness` and `--attention-dropout` on the command line."""

    sharpness: float = 1.0
    """What t starts from."""
    attention_dropout: float = 0.0
    """Share of arcs dropped from the attention while training, in [0, 1)."""


def layers(config: ModelConfig, own: ShyOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    """The layers, and which A they want: here the pattern with self-loops."""
    return [ShyLayer(a, b, own.sharpness, own.attention_dropout) for a, b in pairwise(widths)], "loops"


register("shy", layers, ShyOptions)


def train(comm: Communicator, way: str = "1d", epochs: int = 20) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold); `way`: a strategy, or a feed."""
    config = RunConfig()
    config.model.name, config.model.hidden, config.model.sharpness = "shy", 8, 2.0
    config.model.attention_dropout, config.train.dtype = 0.2, "float64"
    if way in ("pull", "push-pull"):
        config.batch.batch_size, config.batch.fanouts, config.batch.feed = 30, "5,4", way
    else:
        config.parallel.strategy = way
    trainer = Trainer(load("sbm:nodes=211,features=12"), config, comm)
    losses = [trainer.step(epoch) for epoch in range(1, epochs)]
    foretold = trainer.predict(epochs).words
    with Ledger(comm) as books:
        losses.append(trainer.step(epochs))
    moved = {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}
    return losses, agrees(moved, foretold)


def main() -> None:
    if in_job():
        comm = connect()
        found = {f"{comm.size} processes, 2d": train(comm, "2d")}
        if comm.rank:
            return
    else:
        ways = (
            (1, "1d"),
            (4, "halo"),
            (4, "2d"),
            (4, "a-stationary"),
            (1, "pull"),
            (3, "pull"),
            (3, "push-pull"),
        )
        found = {f"{p} ranks, {way}": run_ranks(train, p, "threads", way)[0] for p, way in ways}
    for way, (losses, foretold) in found.items():
        print(f"{way:<24} loss {losses[0]:.9f} to {losses[-1]:.9f}, words as foretold: {foretold}")


if __name__ == "__main__":
    main()

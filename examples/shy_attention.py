"""An attention that is in no library: sharp cosines that shy away from hubs, beside the loudest neighbour.

    python examples/shy_attention.py                        # one rank, then four virtual ones
    weft run --ranks 4 examples/shy_attention.py            # the same on four processes

    z    = h W                                                          [n, heads · d]
    Ψ    = softmax(t cos(z, z) − s log(1 + degree)ᵀ)  at A's entries    t, s learned, one a head
    g    = σ(z a 1ᵀ + 1 (z b)ᵀ)                       at A's entries
    h'   = Ψ z + max_j g_ij z_j + b

t says how sharply a head tells neighbours apart; s how much it discounts those that everybody knows, as a
search engine does with frequent words. What is rare and strong would drown in any average: the maximum
keeps it, column by column.

Nothing here knows of ranks, and nothing of size n×n, or arcs × width, is made. The line with `MODELS` is all
that weft has to be told: `build`, `Trainer`, `run_ranks`, and the prediction of the words that move know the
model then. In a script of your own, `weft.cli.main(["train", "cora", "--model", "shy"])` trains it too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, connect, in_job, run_ranks
from weft.graph import load
from weft.kernels import Stream, linear
from weft.nn import MODELS, Adjacency, ModelConfig
from weft.nn.algebra import aggregate, dropout, outer, rep, softmax, sum, tall
from weft.train import RunConfig, make_trainer


class ShyLayer(nn.Module):
    noisy = True  # it draws random numbers: forward gets their stream

    def __init__(self, inputs: int, outputs: int, heads: int, drop: float):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.gate = nn.Parameter(nn.init.xavier_uniform_(torch.empty(outputs, 2)))
        self.sharpness = nn.Parameter(torch.ones(heads))
        self.shyness = nn.Parameter(torch.full((heads,), 0.1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, A: Adjacency, h: Tensor, fixed: bool = False, stream: Stream | None = None) -> Tensor:
        z = linear(h, self.weight)
        Z = tall(z, self.heads)
        norms = Z.norms.clamp(min=1e-12)
        known = torch.log1p(sum(A * rep(torch.ones_like(z[:, 0]))))
        S = self.sharpness * (A * (Z @ Z.T) / outer(norms, norms)) - self.shyness * rep(known).T
        u, v = linear(z, self.gate).split(1, dim=1)
        loudest = aggregate(A * torch.sigmoid(rep(u) + rep(v).T), z, "max")
        return dropout(softmax(S), self.drop, stream) @ z + loudest + self.bias


def layers(config: ModelConfig, widths: list[int]) -> tuple[list[nn.Module], str]:
    """The layers, and which A they want: here the pattern with self-loops."""
    heads = [config.heads] * (len(widths) - 2) + [1]
    made = zip(widths, widths[1:], heads, strict=False)
    return [ShyLayer(a, b, k, config.attention_dropout) for a, b, k in made], "loops"


MODELS["shy"] = layers


def train(comm: Communicator, strategy: str = "1d", epochs: int = 20) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold)."""
    config = RunConfig()
    config.model.name, config.model.hidden, config.model.heads = "shy", 8, 2
    config.model.attention_dropout, config.train.dtype = 0.2, "float64"
    config.parallel.strategy = strategy
    trainer = make_trainer(load("sbm:nodes=211,features=12"), config, comm)
    losses = []
    for epoch in range(epochs):
        with Ledger(comm) as books:
            losses.append(trainer.step(epoch + 1))
    moved = {phase: line["words"] for phase, line in books.as_dict().items() if line["words"]}
    return losses, moved == trainer.predict().words


def main() -> None:
    if in_job():
        comm = connect()
        found = {f"{comm.size} processes, 2d": train(comm, "2d")}
        if comm.rank:
            return
    else:
        ways = ((1, "1d"), (4, "halo"), (4, "2d"), (4, "a-stationary"))
        found = {f"{p} ranks, {how}": run_ranks(train, p, "threads", how)[0] for p, how in ways}
    for way, (losses, foretold) in found.items():
        print(f"{way:<24} loss {losses[0]:.9f} to {losses[-1]:.9f}, words as foretold: {foretold}")


if __name__ == "__main__":
    main()

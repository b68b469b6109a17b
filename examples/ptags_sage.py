"""GraphSAGE as P³'s paper writes it: Listing 1 of Gandhi and Iyer (OSDI '21), in P-TAGS.

    python examples/ptags_sage.py

The paper's names and lines; its `forward` is the base class's:

    graph['m']   = scatter(graph, feat, scatter_udf)
    graph['n_p'] = gather(graph['m'], gather_udf)
    graph['n_p'] = transform(feat, graph['n_p'])
    return apply(feat, sync(graph['n_p'], op='sum'))

What is added to it: `partition` in one line, the names of the weights that are cut with the features, and a
last layer without ReLU, whose rows are logits.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.graph import load
from weft.nn import Messages, PTagsLayer, register
from weft.train import RunConfig, Trainer
from weft.train.result import agrees


class GraphSAGE(PTagsLayer):
    cut = ("fc_self", "fc_neigh")  # partition
    sync = "sum"

    def __init__(self, in_ft: int, out_ft: int):
        super().__init__()
        self.fc_self = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_ft, out_ft)))
        self.fc_neigh = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_ft, out_ft)))

    # Generates message
    def scatter(self, s_ft: Tensor, e_ft: Tensor | None, d_ft: Tensor | None) -> Tensor:
        return s_ft

    # Aggregates messages
    def gather(self, msg: Messages) -> Tensor:
        return msg.mean()

    # Computes partial activation; requires sync.
    def transform(self, v_ft: Tensor, a_ft: Tensor) -> Tensor:
        return v_ft @ self.fc_self + a_ft @ self.fc_neigh

    # Computes vertex representation
    def apply(self, v_ft: Tensor | None, t_ft: Tensor) -> Tensor:  # type: ignore[override]
        return torch.relu(t_ft)


class Logits(GraphSAGE):
    def apply(self, v_ft: Tensor | None, t_ft: Tensor) -> Tensor:  # type: ignore[override]
        return t_ft


def layers(config: object, own: object, widths: list[int]) -> tuple[list[nn.Module], str]:
    *hidden, last = pairwise(widths)
    return [*(GraphSAGE(a, b) for a, b in hidden), Logits(*last)], "none"


register("listing1", layers)


def train(comm: Communicator, way: str = "1d", epochs: int = 5) -> tuple[list[float], bool]:
    """(losses, whether the words of the last epoch were those foretold); `way`: a strategy, or a feed."""
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.dtype = "listing1", 16, "float64"
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

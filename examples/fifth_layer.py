"""A fifth model for mini-batches: GIN in P-TAGS form, fed by pull and by push-pull, with the same losses.

    python examples/fifth_layer.py

weft.nn has the layer and its parameters; here it is told how to run on sampled blocks whose features may lie
in columns on many ranks:

    h' = relu(((1 + ε) h_i + Σ_j h_j) W₁ + b₁) W₂ + b₂

Everything up to the product with W₁ is linear in h, so a rank with some columns of h and those rows of W₁
gets a part of the sum: that is `transform`. `sync` adds the parts up. ReLU and W₂ need the whole: `apply`.
"""

from __future__ import annotations

from torch import Tensor, relu

from weft.comm import Communicator, run_ranks
from weft.graph import load
from weft.kernels import linear
from weft.minibatch import Hop, Reads, Tags, register
from weft.train import RunConfig, make_trainer


class GINTags(Tags):
    cut = ("weight1",)  # partition: these rows go with the columns of the features

    def reads(self, adjacency: str) -> Reads:
        return Reads("none")  # a plain sum; sampled rows are scaled by degree / picks

    def gather(self, hop: Hop, m: Tensor) -> Tensor:
        return hop.sum(m)

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return linear((1 + self.layer.epsilon) * v + a, self.layer.weight1)

    def apply(self, t: Tensor) -> Tensor:
        return linear(relu(t + self.layer.bias1), self.layer.weight2, self.layer.bias2)


register("GINLayer", lambda layer: [GINTags(layer)])


def losses(comm: Communicator, feed: str) -> list[float]:
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.dtype = "gin", 16, "float64"
    config.batch.batch_size, config.batch.fanouts, config.batch.feed = 50, "10,5", feed
    trainer = make_trainer(load("sbm:nodes=1000,features=20"), config, comm)
    return [trainer.step(epoch) for epoch in (1, 2, 3)]


def main() -> None:
    for feed in ("pull", "push-pull"):
        print(f"{feed:<10}", run_ranks(losses, 3, "threads", feed)[0])


if __name__ == "__main__":
    main()

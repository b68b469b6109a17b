"""Links from sampled neighbourhoods: the ends of a step's pairs are the seeds. Evaluation is full-graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..graph import Graph, Store
from ..minibatch import Batch, Sampler, Stack, Topology, fanouts_for, parse_fanouts
from ..minibatch.tags import Hop
from ..minibatch.topology import part_bytes
from ..nn import Noise
from ..parallel import Fetch, Volume
from .config import RunConfig
from .link import LinkTrainer


class SampledLinkTrainer(LinkTrainer):
    """Encodes the ends of `batch_size` true pairs and of their false ones a step, from sampled neighbours.

    Samples and dropout belong to (seed, step, vertex): a vertex that two ranks encode has one embedding, and
    losses do not depend on the number of ranks. Features, learned ones too, are pulled from their owners, and
    the gradients of the learned ones go back.

    >>> from weft.graph import hold_out, load
    >>> config = RunConfig()
    >>> config.train.task, config.train.epochs, config.link.hits, config.model.name = "link", 20, 3, "sage"
    >>> config.batch.batch_size, config.batch.fanouts = 30, "5,5"
    >>> result = SampledLinkTrainer(hold_out(load("karate")), config).fit()
    >>> result.loss[-1] < result.loss[0]
    True
    """

    def __init__(self, source: Graph | Store, config: RunConfig, comm: Communicator | None = None):
        super().__init__(source, config, comm)
        options = config.batch
        self.stack = Stack(self.model)
        fanouts = fanouts_for(len(self.stack.tags), parse_fanouts(options.fanouts))
        # Arcs: all of them on every rank where that takes a quarter of the memory at most, else a part each.
        part = self._largest(part_bytes(source, self.A.rows, self.stack.reads, self.x.dtype))
        parts = None if self.comm.size**2 * part <= self._spare() else [self.comm.rank]
        topology = Topology.read(source, self.stack.reads, self.comm, self.A.blocks, parts, self.x.dtype)
        self.sampler = Sampler(topology, fanouts, config.train.seed, options.replace, self.owners, self.comm)
        self._fetched = self._foretold = Volume()

    def _pair_batch(self) -> int:
        return self.config.batch.batch_size

    def embed_ends(self, ids: Tensor, noise: Noise) -> Tensor:
        """H of these vertices, each from a sample of its neighbourhood. [m] → [m, hidden]"""
        blocks = self.sampler.blocks(ids, noise.epoch)
        plan = Fetch(self.comm, self.owners, blocks[0].sources, distinct=True)
        x = self.inputs()
        self._fetched = self._fetched + plan.predict(x.shape[1], backward=x.requires_grad)
        first = self.stack.partial(Hop.compact(blocks[0]), plan.rows(x), 0, lambda t: t)
        return self.stack.rest(first, Batch(noise.epoch, ids, ids.numel(), blocks), noise.seed)

    def step(self, epoch: int) -> float:
        self._fetched, self.sampler.moved = Volume(), Volume()
        loss = super().step(epoch)
        if epoch <= 2:
            self._foretold = self._foretell()
        return loss

    def _foretell(self) -> Volume:
        """What this rank received in the epoch that was run, by formulas over the sizes of its blocks."""
        total = self.sampler.moved + self._fetched + self._summed("loss", 2)
        for _ in range(self.pairs.steps):
            total = total + self._summed("grad", self._gradient_words())
        return total

    def predict(self, epoch: int | None = None) -> Volume:
        """What this rank received in its second epoch (the first, where there was one), by formula."""
        return self._foretold

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "batch_size": self.pairs.size,
            "fanouts": self.sampler.fanouts,
            "feed": "pull",
        }

    def notes(self) -> list[str]:
        fanouts = ",".join("all" if f < 0 else str(f) for f in self.sampler.fanouts)
        asked, used = self.config.batch.batch_size, self.pairs.size
        line = f"sampling  {self.pairs.steps:,} batches of {used:,} pairs, fan-outs {fanouts}, pull feed"
        if used < asked:
            line += f"; --batch-size {asked:,} is more than the {used:,} training pairs"
        return [line]


def check_sampled_links(config: RunConfig) -> None:
    """Refuse settings of mini-batches that links don't have."""
    options = config.batch
    if options.feed == "push-pull":
        raise UserError("links are fed by pull, push-pull is for --task node. Use --feed pull.")
    if options.pipeline:
        raise UserError("links have no pipeline. Use --no-pipeline.")
    if options.memory_budget:
        raise UserError(
            f"links hold no copies, memory_budget={options.memory_budget} was given. Leave it out."
        )

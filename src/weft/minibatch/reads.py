"""Which rows of the input each seed of a batch reads: what pull moves, as pins of a hypergraph.

    seeds' rows = f(B_k f(… f(B_1 X)))      B_1 reads the input; a layer reads its own row as well
    pattern     (I + B_k) … (I + B_1)       [seeds, sources]

A seed's owner computes all its hops. So with a net for each vertex of the input, whose pins are the seeds
that read it and itself, Σ (λ − 1) is the number of rows that the owners pull, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..graph.guard import check_fits
from .block import Block
from .sampler import Sampler

_BITS = 64
"""Seeds that are followed at once: each is a bit of a word that every vertex of a hop has."""


def seed_reads(blocks: Sequence[Block]) -> tuple[np.ndarray, np.ndarray]:
    """(seeds, vertices) of all pairs, none twice: this seed's row depends on that vertex's row of the input.

    The blocks are those of a batch, that of the input first. A seed reads itself.

    >>> place = torch.zeros(10, dtype=torch.int64)
    >>> near = Block(torch.tensor([4, 2]), torch.tensor([0, 1, 1]), torch.tensor([2]), None, False, place)
    >>> far = Block(near.sources, torch.tensor([0, 0, 1]), torch.tensor([7]), None, False, place)
    >>> seeds, vertices = seed_reads([far, near])
    >>> sorted(zip(seeds.tolist(), vertices.tolist()))
    [(2, 2), (2, 7), (4, 2), (4, 4), (4, 7)]
    """
    ids, sources = blocks[-1].targets.long().numpy(), blocks[0].sources.long().numpy()
    hops = [_by_source(block) for block in reversed(blocks)]
    seeds: list[np.ndarray] = []
    vertices: list[np.ndarray] = []
    pairs = 0
    for begin in range(0, ids.size, _BITS):
        here = ids[begin : begin + _BITS]
        bits = np.zeros(ids.size, dtype=np.uint64)
        bits[begin : begin + here.size] = np.uint64(1) << np.arange(here.size, dtype=np.uint64)
        for count, readers, read, starts in hops:
            reached = np.zeros(count, dtype=np.uint64)
            reached[: bits.size] = bits  # the targets are the first sources
            if read.size:
                reached[read] |= np.bitwise_or.reduceat(bits[readers], starts)
            bits = reached
        for bit, seed in enumerate(here):
            found = sources[(bits >> np.uint64(bit)) & np.uint64(1) > 0]
            pairs += found.size
            seeds.append(np.full(found.size, seed))
            vertices.append(found)
        check_fits(32 * pairs, f"{pairs:,} rows that {begin + here.size:,} seeds read")
    none = [np.zeros(0, dtype=np.int64)]
    return np.concatenate(seeds or none), np.concatenate(vertices or none)


def _by_source(block: Block) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(sources, the targets of all arcs by source, the sources that are read, where their arcs begin)."""
    by_source = block.matrix.T
    counts = by_source.counts.numpy()
    read = counts.nonzero()[0]
    return counts.size, by_source.indices.long().numpy(), read, by_source.indptr.numpy()[read]


def sampled_reads(
    sampler: Sampler, vertices: Tensor, size: int
) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """A function number → `seed_reads` of one random batch of `size` of these vertices.

    It is what `weft.partition.PartitionOptions.sampler` takes for the stochastic hypergraph: its volume is
    then that of batches of neighbours, as `pull` fetches their rows.

    >>> from weft.graph import karate
    >>> from .topology import Reads, Topology
    >>> sampler = Sampler(Topology.read(karate(), Reads("mean")), [2], seed=0)
    >>> seeds, read = sampled_reads(sampler, torch.tensor([5]), size=1)(7)
    >>> seeds.tolist(), read.size                # itself and two neighbours
    ([5, 5, 5], 3)
    """

    def reads_of(number: int) -> tuple[np.ndarray, np.ndarray]:
        generator = torch.Generator().manual_seed(number)
        order = torch.randperm(vertices.numel(), generator=generator, device="cpu")
        return seed_reads(sampler.blocks(vertices[order[:size]], step=number))

    return reads_of

"""Which input rows the seeds of a batch read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.graph import Graph
from weft.minibatch import Block, Reads, Sampler, Topology, parse_fanouts, sampled_reads, seed_reads
from weft.partition import PartitionOptions, batch_volume, partition_graph

N = 61


def directed() -> Graph:
    made = torch.Generator().manual_seed(3)
    return Graph.from_arcs(*torch.randint(N, (2, 400), generator=made), num_nodes=N)


def sampler(fanouts: str, replace: bool = False) -> Sampler:
    return Sampler(Topology.read(directed(), Reads("mean")), parse_fanouts(fanouts), 0, replace)


def dense(blocks: list[Block]) -> torch.Tensor:
    """(I + B_k) … (I + B_1), [seeds, n]: how many ways lead from a seed to an input vertex."""
    ways = torch.eye(blocks[-1].targets.numel(), dtype=torch.float64)
    for block in reversed(blocks):
        hop = torch.eye(*block.matrix.shape, dtype=torch.float64)
        for target, (a, b) in enumerate(zip(block.indptr[:-1], block.indptr[1:], strict=True)):
            hop[target, block.local[a:b].long()] += 1
        ways = ways @ hop
    found = torch.zeros(ways.shape[0], N, dtype=torch.float64)
    found[:, blocks[0].sources.long()] = ways
    return found


@pytest.mark.parametrize("size", [1, 9, N])
@pytest.mark.parametrize("fanouts", ["all", "3,2", "all,all", "2,1,3"])
def test_a_seed_reads_what_a_way_through_the_blocks_leads_to(fanouts, size):
    drawn = sampler(fanouts, replace=size == 9)
    seeds = torch.randperm(N, generator=torch.Generator().manual_seed(size))[:size]
    blocks = drawn.blocks(seeds, step=4)
    found = torch.zeros(N, N, dtype=torch.float64)
    who, what = seed_reads(blocks)
    found.index_put_((torch.from_numpy(who), torch.from_numpy(what)), torch.ones(len(who)).double(), True)
    assert torch.equal(found[seeds], (dense(blocks) > 0).double())  # each pair once
    assert found.sum() == len(who)


def test_more_seeds_than_bits_of_a_word_are_told_apart():
    made = torch.Generator().manual_seed(1)
    graph = Graph.from_arcs(*torch.randint(200, (2, 500), generator=made), num_nodes=200)
    drawn = Sampler(Topology.read(graph, Reads("mean")), [2, 2], 0)
    many, alone = seed_reads(drawn.blocks(torch.arange(130), 5)), []
    for seed in range(130):  # picks follow from the vertex: a seed alone reads what it reads among others
        who, what = seed_reads(drawn.blocks(torch.tensor([seed]), 5))
        alone += list(zip(who.tolist(), what.tolist(), strict=True))
    assert sorted(zip(many[0].tolist(), many[1].tolist(), strict=True)) == sorted(alone)


def test_no_seed_reads_nothing():
    who, what = seed_reads(sampler("2,2").blocks(torch.arange(0), 0))
    assert who.size == what.size == 0


def test_batches_of_reads_make_a_partition_that_moves_less_for_such_batches_than_random():
    pytest.importorskip("mtkahypar")
    # Two halves that read each other alone.
    made = torch.Generator().manual_seed(2)
    source, target = torch.randint(100, (2, 600), generator=made)
    other = source + 100, target + 100
    graph = Graph.from_arcs(torch.cat([source, other[0]]), torch.cat([target, other[1]]), num_nodes=200)
    drawn = Sampler(Topology.read(graph, Reads("none", values=False)), [3, 2], 0)
    batches = sampled_reads(drawn, torch.arange(200), 40)
    who, what = batches(7)
    assert np.array_equal(what, seed_reads(drawn.blocks(torch.from_numpy(_distinct(who)), 7))[1])
    volumes = {}
    for method in ("random", "stochastic"):
        options = PartitionOptions(sampler=batches, batches=12) if method == "stochastic" else None
        parts = partition_graph(graph, 2, method, options or PartitionOptions()).numpy()
        volumes[method] = sum(batch_volume(*batches(1000 + b), parts, 2) for b in range(10))
    assert volumes["stochastic"] < 0.2 * volumes["random"]


def _distinct(who: np.ndarray) -> np.ndarray:
    """Each seed once, in the order of its bits."""
    return who[np.sort(np.unique(who, return_index=True)[1])]

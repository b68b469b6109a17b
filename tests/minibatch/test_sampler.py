"""Blocks above seeds, alone and over parts."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, normalise
from weft.minibatch import Block, Reads, Sampler, Topology, parse_fanouts
from weft.minibatch.cache import held_parts
from weft.minibatch.topology import RowsOf, part_bytes
from weft.parallel import Blocks, ByBlocks, Cyclic, Grid, Volume, counted

N = 61
EVERY = {
    "gcn": Reads("gcn", loops=True),
    "mean": Reads("mean"),
    "max": Reads("none", scaled=False),
    "sum": Reads("none"),
    "attention": Reads("none", loops=True, scaled=False, values=False),
}


def directed(weighted: bool = False, seed: int = 0) -> Graph:
    """Rows of 0 to about 40 arcs, some loops, a hub."""
    g = torch.Generator().manual_seed(seed)
    source, target = torch.randint(N, (2, 9 * N), generator=g)
    target = torch.where(torch.rand(9 * N, generator=g) < 0.1, 1, target)
    keep = target % 7 != 3
    weights = torch.rand(9 * N, generator=g, dtype=torch.float64) + 0.5 if weighted else None
    return Graph.from_arcs(
        source[keep], target[keep], N, None if weights is None else weights[keep], name="directed"
    )


def dense(graph: Graph, reads: Reads) -> Tensor:
    """The matrix that full neighbourhoods must give."""
    made = (
        graph.with_self_loops()
        if reads.loops and reads.how != "gcn"
        else normalise(graph, reads.how, torch.float64)
    )
    a = torch.zeros(N, N, dtype=torch.float64)
    values = made.weights if made.weights is not None and reads.values else torch.ones(made.num_arcs)
    a[made.rows, made.indices.long()] = values.double()
    return a


def matrix_of(block: Block) -> Tensor:
    """The block as a matrix over all vertices, repeats added up."""
    out = torch.zeros(block.targets.numel(), N, dtype=torch.float64)
    row = torch.repeat_interleave(torch.arange(block.targets.numel()), block.indptr.diff())
    values = torch.ones(block.arcs) if block.values is None else block.values
    out.index_put_((row, block.neighbours.long()), values.double(), accumulate=True)
    return out / block.indptr.diff().clamp(min=1)[:, None] if block.mean else out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reads", EVERY)
def test_full_neighbourhoods_are_rows_of_the_matrix(reads, weighted):
    graph = directed(weighted)
    topology = Topology.read(graph, EVERY[reads], dtype=torch.float64)
    seeds = torch.tensor([5, 1, 60, 17])
    near, far = reversed(Sampler(topology, [-1, -1], seed=0).blocks(seeds, step=3))
    want = dense(graph, EVERY[reads])
    assert (matrix_of(near) - want[seeds]).abs().max() < 1e-12
    assert (matrix_of(far) - want[near.sources.long()]).abs().max() < 1e-12
    # Two blocks one after the other are two hops.
    assert torch.equal(far.targets, near.sources)


@pytest.mark.parametrize("reads", ["gcn", "sum"])
def test_a_sampled_row_is_right_on_average(reads):
    """Over many steps the mean of the scaled rows is the row; the loop is always there, unscaled."""
    graph = directed()
    topology = Topology.read(graph, EVERY[reads], dtype=torch.float64)
    sampler, hub = Sampler(topology, [6], seed=1), torch.tensor([1])
    want = dense(graph, EVERY[reads])[1]
    rows = torch.stack([matrix_of(sampler.blocks(hub, step)[0])[0] for step in range(3000)])
    if reads == "gcn":
        assert bool((rows[:, 1] - want[1]).abs().max() < 1e-12)
    # The spread of a mean of 3000 is about 2 % of the largest entry here; 10 % is five of them.
    assert (rows.mean(0) - want).abs().max() < 0.1 * want.max()


def test_blocks_follow_from_the_seed_the_step_and_the_vertex():
    topology = Topology.read(directed(), EVERY["mean"])
    one, two = Sampler(topology, [4, 3], seed=0), Sampler(topology, [4, 3], seed=0)
    seeds = torch.tensor([1, 2, 8])
    for a, b in zip(one.blocks(seeds, 5), two.blocks(seeds, 5), strict=True):
        assert torch.equal(a.neighbours, b.neighbours)
    assert not torch.equal(one.blocks(seeds, 5)[1].neighbours, one.blocks(seeds, 6)[1].neighbours)
    other = Sampler(topology, [4, 3], seed=1)
    assert not torch.equal(one.blocks(seeds, 5)[1].neighbours, other.blocks(seeds, 5)[1].neighbours)
    alone = one.blocks(torch.tensor([8]), 5)[-1].neighbours
    assert torch.equal(one.blocks(seeds, 5)[-1].neighbours[-alone.numel() :], alone)


def over_parts(comm: Communicator, kind: str, copies: int, weighted: bool, owners: str) -> None:
    graph, grid = directed(weighted), Grid(comm.size)
    lumps = (torch.arange(N) ** 2 + 2) % 7 * comm.size // 8
    blocks = Blocks.of_parts(lumps, grid) if owners == "lumps" else Blocks.even(N, grid, seed=2)
    parts = held_parts(comm.rank, comm.size, copies)
    share = Topology.read(graph, EVERY[kind], comm, blocks, parts, torch.float64)
    whole = Topology.read(graph, EVERY[kind], dtype=torch.float64)
    ours = Sampler(share, [5, 3], 0, kind == "sum", ByBlocks(blocks), comm)
    theirs = Sampler(whole, [5, 3], 0, kind == "sum")
    seeds = torch.arange(N)[torch.arange(N) % (comm.size + 1) == comm.rank]  # some ranks have few
    for step in range(3):
        foretold = counted(comm, lambda wrap, step=step: lambda: ours.dry(wrap).blocks(seeds, step))
        with Ledger(comm) as books:
            got = ours.blocks(seeds, step)
        for a, b in zip(got, theirs.blocks(seeds, step), strict=True):
            assert torch.equal(a.targets, b.targets)
            assert torch.equal(a.indptr, b.indptr)
            assert torch.equal(a.neighbours, b.neighbours)
            assert (a.values is None) == (b.values is None)
            if a.values is not None and b.values is not None:
                assert torch.allclose(a.values, b.values, rtol=1e-12)
        assert Volume.of(books) == foretold
        assert foretold.words.keys() <= {"frontier", "sample", "weights"}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (2, 1), (3, 2), (8, 1), (8, 5)])
def test_over_parts_the_same_samples_come_with_the_predicted_words(ranks, copies, kind):
    run_ranks(over_parts, ranks, "threads", kind, copies, kind == "max", "random")
    run_ranks(over_parts, ranks, "threads", kind, copies, kind == "mean", "lumps")


def test_words_of_a_hop_are_those_that_the_frontiers_say():
    """Counted here from everybody's seeds, without the sampler's own books."""
    graph, ranks = directed(), 3
    blocks = Blocks.even(N, Grid(ranks), seed=4)
    owner = ByBlocks(blocks).find(torch.arange(N))[0]
    degree = graph.indptr.diff()

    def seeds_of(rank: int) -> Tensor:
        return torch.arange(rank, N, 4)

    def work(comm: Communicator) -> tuple[int, int]:
        topology = Topology.read(graph, EVERY["mean"], comm, blocks, [comm.rank])
        sampler = Sampler(topology, [4], 0, False, ByBlocks(blocks), comm)
        with Ledger(comm) as books:
            sampler.blocks(seeds_of(comm.rank), 0)
        return books.words("frontier"), books.words("sample")

    for rank, (frontier, sample) in enumerate(run_ranks(work, ranks, "threads")):
        others = [p for p in range(ranks) if p != rank]
        assert frontier == sum(1 + int((owner[seeds_of(p)] == rank).sum()) for p in others)
        abroad = seeds_of(rank)[owner[seeds_of(rank)] != rank]
        assert sample == abroad.numel() + int(degree[abroad].clamp(max=4).sum())


@pytest.mark.parametrize("text", ["", "25,", "25,0", "ten", "5,-3", "2.5"])
def test_wrong_fanouts_are_refused_in_one_line(text):
    with pytest.raises(UserError, match=r"is not a number from 1, nor all. Write --fanouts 25,10."):
        parse_fanouts(text)


def test_a_share_without_owners_is_refused():
    topology = Topology.read(directed(), EVERY["mean"])
    share = Topology(**{**vars(topology), "row_of": RowsOf(Cyclic(N, 1), [0], [N])})
    with pytest.raises(ValueError, match="needs the owners of the rest"):
        Sampler(share, [2], 0)


def test_a_batch_whose_input_somebody_else_picks_ends_with_targets_alone():
    sampler = Sampler(Topology.read(directed(), EVERY["mean"]), [4, 3, 2], seed=5)
    seeds = torch.tensor([2, 50, 7])
    whole, bare = (sampler.blocks(seeds, 3, upto) for upto in ("labels", "targets"))
    for ours, theirs in zip(bare[1:], whole[1:], strict=True):
        assert torch.equal(ours.neighbours, theirs.neighbours)
    assert whole[0].arcs > 0 == bare[0].arcs
    assert torch.equal(bare[0].targets, whole[0].targets)
    assert torch.equal(bare[0].sources, whole[0].targets)
    picked = sampler.hop(bare[0].targets, 3, 2)  # whoever picks gets the same
    assert torch.equal(picked.neighbours, whole[0].neighbours)


# What arcs carry


def carrying() -> Graph:
    graph = directed()
    g = torch.Generator().manual_seed(8)
    arcs = graph.num_arcs
    return graph.replace(
        arc_data={
            "x": torch.randn(arcs, 3, generator=g), "time": torch.rand(arcs, generator=g),
            "type": torch.randint(4, (arcs,), generator=g),
        }
    )  # fmt: skip


NAMES = ("type", "x")


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("fanout", [-1, 3])
@pytest.mark.parametrize("label", [True, False])
def test_picks_carry_what_their_arcs_do_and_loops_that_of_the_whole_row(kind, fanout, label):
    """The truth of loops is the mean over the vertex's row of the graph, whatever was picked of it."""
    reads = dataclasses.replace(EVERY[kind], data=NAMES)
    graph = carrying()
    full = graph.with_self_loops() if reads.loops else graph
    at = {pair: k for k, pair in enumerate(zip(full.rows.tolist(), full.indices.tolist(), strict=True))}
    sampler = Sampler(Topology.read(graph, reads, dtype=torch.float64), [fanout], seed=0)
    (block,) = sampler.blocks(torch.tensor([5, 1, 60, 3]), 2, "labels" if label else "picks")
    row = torch.repeat_interleave(block.targets.long(), block.indptr.diff())
    place = [at[pair] for pair in zip(row.tolist(), block.neighbours.tolist(), strict=True)]
    a = block.matrix
    assert list(a.data) == list(NAMES)
    assert torch.equal(a.data["type"], full.arc_data["type"][place])
    assert a.data["x"].dtype == torch.float64
    assert torch.allclose(a.data["x"], full.arc_data["x"][place].double(), rtol=1e-6)
    assert a.data["x"] is block.over(N).data["x"]


def data_over_parts(comm: Communicator, kind: str, copies: int) -> None:
    graph, grid = carrying(), Grid(comm.size)
    blocks = Blocks.of_parts((torch.arange(N) ** 2 + 2) % 7 * comm.size // 8, grid)
    reads = dataclasses.replace(EVERY[kind], data=NAMES)
    parts = held_parts(comm.rank, comm.size, copies)
    share = Topology.read(graph, reads, comm, blocks, parts, torch.float64)
    ours = Sampler(share, [5, 3], 0, kind == "sum", ByBlocks(blocks), comm)
    theirs = Sampler(Topology.read(graph, reads, dtype=torch.float64), [5, 3], 0, kind == "sum")
    seeds = torch.arange(N)[torch.arange(N) % (comm.size + 1) == comm.rank]
    foretold = counted(comm, lambda wrap: lambda: ours.dry(wrap).blocks(seeds, 1))
    with Ledger(comm) as books:
        got = ours.blocks(seeds, 1)
    for a, b in zip(got, theirs.blocks(seeds, 1), strict=True):
        assert torch.equal(a.neighbours, b.neighbours)
        assert torch.equal(a.data["type"], b.data["type"])
        assert torch.allclose(a.data["x"], b.data["x"], rtol=1e-12)
    assert Volume.of(books) == foretold
    assert books.words("arc data") == 3 * books.words("arc types")
    assert (books.words("arc types") > 0) == (books.words("sample") > 0)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (3, 2), (8, 1)])
def test_over_parts_the_data_travel_with_the_sample(ranks, copies, kind):
    run_ranks(data_over_parts, ranks, "threads", kind, copies)


def test_what_a_part_takes_counts_what_its_arcs_carry():
    graph, reads = carrying(), dataclasses.replace(EVERY["attention"], data=("time", "type", "x"))
    for dtype in (torch.float32, torch.float64):
        topology = Topology.read(graph, reads, dtype=dtype)
        bare = Topology.read(graph, EVERY["attention"], dtype=dtype)
        held = topology.indices.numel() + N  # the loops carry theirs apart
        assert topology.bytes - bare.bytes == held * (4 * dtype.itemsize + 8)
        assert part_bytes(graph, torch.arange(N), reads, dtype) >= topology.bytes

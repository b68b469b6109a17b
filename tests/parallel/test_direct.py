"""A plan read in two passes, against the one that is cut from a list of arcs."""

from __future__ import annotations

import itertools

import pytest
import torch

from weft.comm import Communicator, run_ranks
from weft.comm.threads import single
from weft.errors import UserError
from weft.graph import Graph, open_store, write_store
from weft.kernels import native
from weft.parallel import Blocks, Grid, Operator, direct

from .cases import directed

pytestmark = pytest.mark.skipif(native.extension is None, reason="no C++ kernels")
GRIDS = [(1, 1, 1), (3, 1, 1), (2, 2, 1), (1, 3, 1), (2, 1, 2), (1, 1, 2), (2, 2, 2)]
HOWS = ("gcn", "mean", "none", "loops")
BLOCKS = ("order", "dealt", "listed", "lopsided")
WEIGHTS = (None, torch.float32, torch.float64)


def graph_of(weights: torch.dtype | None) -> Graph:
    graph = directed(37, weighted=weights is not None)
    if weights is None:
        return graph
    assert graph.weights is not None
    return Graph(graph.indptr, graph.indices, graph.weights.to(weights))


def blocks_of(n: int, grid: Grid, kind: str) -> Blocks:
    if kind in ("order", "dealt"):
        return Blocks.even(n, grid, 3 if kind == "dealt" else None)
    drawn = torch.randint(grid.size, (n,), generator=torch.Generator().manual_seed(5))
    return Blocks.of_parts(drawn if kind == "listed" else drawn.clamp(max=max(0, grid.size - 2)), grid)


def cases() -> list[tuple]:
    """Every pair of grid and blocks; the rest in rotation, so that each value meets many."""
    rest = itertools.cycle(itertools.product(HOWS, WEIGHTS, (True, False), (torch.float32, torch.float64)))
    skips = itertools.cycle((5, 7, 11))
    return [
        (*pair, *next(itertools.islice(rest, next(skips), None)))
        for pair in itertools.product(GRIDS, BLOCKS, range(3))
    ]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_both_ways_give_the_same_plan_to_the_bit(tmp_path, monkeypatch, case):
    shape, kind, _, how, weights, sparse, dtype = case
    monkeypatch.setattr(direct, "SOME_ARCS", 9)  # a hub is longer
    graph, grid = graph_of(weights), Grid(*shape)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    blocks = blocks_of(graph.num_nodes, grid, kind)

    def work(comm: Communicator) -> None:
        arguments = (comm, grid, how, "sparse" if sparse else "dense", blocks, dtype)
        with native.use("torch"):
            wanted = Operator.build(graph, *arguments).plan
        for source in (graph, store):
            assert direct.serves(source, blocks, ())
            found = Operator.build(source, *arguments).plan
            assert torch.equal(found.row_names, wanted.row_names)
            for side in ("row", "inner"):
                ours, theirs = getattr(found, side), getattr(wanted, side)
                assert (ours.sizes, ours.need_sizes, ours.give_sizes) == (
                    theirs.sizes, theirs.need_sizes, theirs.give_sizes
                )  # fmt: skip
                assert (ours.give is None) == (theirs.give is None)
                assert all(map(torch.equal, ours.give or (), theirs.give or ()))
            assert len(found.matrices) == len(wanted.matrices)
            for j, (a, b) in enumerate(zip(found.blocks(), wanted.blocks(), strict=True)):
                assert a.shape == b.shape
                assert torch.equal(a.indptr, b.indptr)
                assert torch.equal(a.indices, b.indices)
                assert a.indices.dtype == b.indices.dtype
                assert (a.values is None) == (b.values is None)
                if a.values is not None and b.values is not None:
                    assert a.values.dtype == dtype
                    assert torch.equal(a.values, b.values)
                assert torch.equal(found.names_of(j), wanted.names_of(j))

    run_ranks(work, grid.size, "threads")


def test_two_threads_count_and_fill_what_one_does():
    graph = directed(3000, weighted=True)

    def matrix(threads: int) -> list[torch.Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            a = Operator.build(graph, comm, Grid(1), exchange="sparse").plan.matrix(0)
        finally:
            torch.set_num_threads(before)
        assert a.values is not None
        return [a.indptr, a.indices, a.values]

    comm = single()
    assert all(map(torch.equal, matrix(2), matrix(1)))


def test_arcs_that_carry_data_and_torch_kernels_go_the_other_way():
    graph, blocks = directed(7), Blocks.even(7, Grid(1))
    assert not direct.serves(graph, blocks, ("time",))
    with native.use("torch"):
        assert not direct.serves(graph, blocks, ())


def test_a_value_is_rounded_once():
    """Weights of 64 bits in a matrix of 32: the product is of 64."""
    graph = Graph.from_arcs([0, 1], [1, 0], 2, weights=torch.tensor([1 / 3, 1e-3], dtype=torch.float64))
    a = Operator.build(graph, single(), Grid(1), "gcn").plan.matrix(0).dense()
    w = torch.eye(2, dtype=torch.float64)
    w[1, 0], w[0, 1] = 1 / 3, 1e-3
    scale = w.sum(1).rsqrt()
    assert torch.equal(a, (scale[:, None] * scale * w).float())


def test_a_share_for_which_there_is_no_memory_is_one_line(monkeypatch):
    graph = directed(37)
    room = 8 * Operator.build(graph, single(), Grid(1)).arcs
    monkeypatch.setattr("weft.graph.guard.free_bytes", lambda: room)
    Operator.build(graph, single(), Grid(1))
    monkeypatch.setattr("weft.graph.guard.free_bytes", lambda: room - 1)
    with pytest.raises(UserError, match=r"arcs of .* on rank 0: .* needed, .* Use more ranks"):
        Operator.build(graph, single(), Grid(1))

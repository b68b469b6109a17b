"""Subgraphs drawn by counter: what they hold, and that ranks together draw what one draws alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from weft.comm import Communicator, run_ranks
from weft.comm.threads import single
from weft.errors import UserError
from weft.graph import Graph, normalise
from weft.kernels.sampling import ALL
from weft.minibatch import KINDS, Reads, Subgraphs, Topology
from weft.parallel import Blocks, ByBlocks, Cyclic, Grid

N = 40


def graph(weighted: bool = False) -> Graph:
    g = torch.Generator().manual_seed(3)
    ends = torch.randint(N, (2, 200), generator=g)
    weights = 0.5 + torch.rand(200, generator=g, dtype=torch.float64) if weighted else None
    return Graph.from_arcs(ends[0], ends[1], N, weights=weights)


def alone(kind: str, reads: Reads, fanouts: tuple[int, ...] = (), **more: Any) -> Subgraphs:
    topology = Topology.read(graph(), reads, dtype=torch.float64)
    return Subgraphs(topology, kind, fanouts, 5, Cyclic(N, 1), single(), starts=graph().indptr, **more)


def listed(draws: Subgraphs, drawn: torch.Tensor, step: int) -> tuple[set[int], dict[tuple[int, int], float]]:
    """V′ ∩ V(p), and the entry of every arc (row, column) of E′ into it."""
    share = draws.draw(drawn, step)
    own = draws.vertices[share.places]
    arcs = share.arcs
    value = torch.ones(arcs.row.numel()) if arcs.value is None else arcs.value
    found = {
        (r, c): v
        for r, c, v in zip(own[arcs.row].tolist(), arcs.vertex.tolist(), value.tolist(), strict=True)
    }
    assert len(found) == arcs.row.numel()  # none twice
    key = arcs.row.long() * N + arcs.vertex.long()
    assert bool((key.diff() > 0).all())  # by row, within a row by vertex
    return set(own.tolist()), found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", [Reads("gcn", loops=True), Reads("mean"), Reads("none", scaled=False)])
def test_ranks_together_draw_what_one_process_draws(kind, reads):
    parts = torch.randint(3, (N,), generator=torch.Generator().manual_seed(1))
    drawn, more = torch.tensor([3, 8, 21, 30, 31]), {"fanouts": (3, 2)} if kind == "seeds" else {}
    if kind == "edges":
        drawn = torch.arange(5, graph().num_arcs, 7)
    vertices, arcs = listed(alone(kind, reads, length=3, **more), drawn, 7)

    def work(comm: Communicator) -> tuple[set[int], dict[tuple[int, int], float]]:
        blocks = Blocks.of_parts(parts, Grid(3))
        topology = Topology.read(graph(), reads, comm, blocks, [comm.rank], torch.float64)
        starts = graph().indptr
        draws = Subgraphs(topology, kind, more.get("fanouts", ()), 5, ByBlocks(blocks), comm, 3, starts)
        return listed(draws, drawn, 7)

    found = run_ranks(work, 3, "threads")
    assert set().union(*(v for v, _ in found)) == vertices
    together = {arc: value for _, some in found for arc, value in some.items()}
    assert together.keys() == arcs.keys()
    assert all(together[arc] == pytest.approx(arcs[arc], rel=1e-12) for arc in arcs)
    assert len(arcs) > 2  # something was drawn


def test_vertices_give_the_induced_subgraph_with_rows_that_stand_for_whole_ones():
    drawn = torch.tensor([1, 2, 5, 6, 9, 11, 12, 20, 33, 39])
    vertices, arcs = listed(alone("vertices", Reads("none")), drawn, 0)
    assert vertices == set(drawn.tolist())
    whole = graph()
    rows, columns = whole.rows.tolist(), whole.indices.tolist()
    wanted = {(r, c) for r, c in zip(rows, columns, strict=True) if r in vertices and c in vertices}
    assert arcs.keys() == wanted
    for row, column in arcs:
        left = sum(r == row for r, _ in wanted)
        assert arcs[row, column] == pytest.approx(rows.count(row) / left)


def test_all_neighbours_of_seeds_give_whole_rows_of_the_normalised_matrix():
    drawn = torch.tensor([4, 17])
    vertices, arcs = listed(alone("seeds", Reads("gcn", loops=True), (ALL, ALL)), drawn, 0)
    whole = normalise(graph(), "gcn")
    dense = {(r, c): v for r, c, v in zip(whole.rows.tolist(), whole.indices.tolist(),
                                          whole.weights.tolist(), strict=True)}  # fmt: skip
    reached, frontier = set(drawn.tolist()), set(drawn.tolist())
    wanted = {}
    for _ in range(2):
        wanted |= {arc: value for arc, value in dense.items() if arc[0] in frontier}
        frontier = {c for r, c in wanted if r in frontier} - reached
        reached |= frontier
    wanted |= {(v, v): dense[v, v] for v in frontier}  # who is reached last reads itself alone
    assert vertices == reached
    assert arcs.keys() == wanted.keys()
    assert all(arcs[arc] == pytest.approx(wanted[arc], rel=1e-6) for arc in arcs)


def test_sampled_neighbours_are_at_most_so_many_and_follow_the_step():
    draws = alone("seeds", Reads("mean"), (2, 1))
    seen = [listed(draws, torch.tensor([4, 17, 30]), step) for step in (0, 0, 1)]
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]
    for _, arcs in seen:
        rows = [row for row, _ in arcs]
        assert max(map(rows.count, rows)) <= 2
        assert all(value == pytest.approx(1 / rows.count(row)) for (row, _), value in arcs.items())


def test_walks_pass_along_arcs_and_keep_all_arcs_between_what_they_passed():
    whole = graph()
    reads = {(r, c) for r, c in zip(whole.rows.tolist(), whole.indices.tolist(), strict=True)}
    for step in range(5):
        vertices, arcs = listed(
            alone("walks", Reads("none", scaled=False), length=4), torch.tensor([7]), step
        )
        assert 7 in vertices
        assert len(vertices) <= 5  # one walk of four arcs
        assert all(v == 7 or any((u, v) in reads for u in vertices) for v in vertices)
        assert arcs.keys() == {(r, c) for r, c in reads if r in vertices and c in vertices}


def test_edges_are_the_drawn_ones_with_their_ends_and_loops_always_stay():
    whole = graph()
    assert bool((whole.rows == whole.indices).any())  # a stored loop is no arc of a matrix with all loops
    drawn = torch.arange(0, whole.num_arcs, 3)
    wanted = {(int(whole.rows[e]), int(whole.indices[e])) for e in drawn}
    vertices, arcs = listed(alone("edges", Reads("none")), drawn, 0)
    assert arcs.keys() == wanted
    assert vertices == {v for arc in wanted for v in arc}
    for (row, _), value in arcs.items():
        left = sum(r == row for r, _ in wanted)
        assert value == pytest.approx(int((whole.rows == row).sum()) / left)
    vertices, arcs = listed(alone("edges", Reads("gcn", loops=True)), torch.arange(whole.num_arcs), 0)
    dense = normalise(whole, "gcn")  # all arcs: the whole matrix
    assert len(arcs) == dense.num_arcs - (N - len(vertices))
    for r, c, v in zip(dense.rows.tolist(), dense.indices.tolist(), dense.weights.tolist(), strict=True):
        assert r not in vertices or arcs[r, c] == pytest.approx(v, rel=1e-6)


def test_a_kind_that_is_not_known_is_refused():
    with pytest.raises(UserError, match="unknown subgraph 'edge'"):
        alone("edge", Reads("none"))

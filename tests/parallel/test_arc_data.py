"""What arcs carry, at the entries of A: of a graph or a store, on every grid, loops as PyG fills them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, Store, open_store, write_store
from weft.parallel import Blocks, Grid, Operator
from weft.parallel.source import read_arcs

from .cases import directed, owners, received

N = 17
NAMES = ("features", "time", "type")


def carrying(n: int = N) -> Graph:
    """The directed graph of the grid's tests, with loops and empty rows, whose arcs carry three arrays."""
    graph = directed(n)
    g = torch.Generator().manual_seed(5)
    arcs = graph.num_arcs
    return graph.replace(
        arc_data={
            "features": torch.randn(arcs, 3, generator=g),
            "time": torch.rand(arcs, generator=g, dtype=torch.float64),
            "type": torch.randint(4, (arcs,), generator=g, dtype=torch.uint8),
        }
    )


def truth(graph: Graph, how: str) -> dict[tuple[int, int], tuple[Tensor, Tensor, int]]:
    """(target, source) → what that entry of A carries, one by one."""
    found = {}
    features, times, types = (graph.arc_data[name] for name in NAMES)
    pairs = list(zip(graph.rows.tolist(), graph.indices.tolist(), strict=True))
    for k, pair in enumerate(pairs):
        found[pair] = features[k].double(), times[k].reshape(1), int(types[k])
    if how in ("gcn", "loops"):
        for v in range(graph.num_nodes):
            others = [k for k, (row, column) in enumerate(pairs) if row == v != column]
            x, time = torch.zeros(3, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
            if others:
                x, time = features[others].double().mean(0), times[others].mean().reshape(1)
            found[v, v] = x, time, int(types.max()) + 1
    return found


def source_of(graph: Graph, kind: str, folder) -> Graph | Store:
    return graph if kind == "graph" else open_store(write_store(graph, folder / "g.weft"), verify=False)


def entries(A: Operator) -> dict[tuple[int, int], tuple[Tensor, Tensor, int]]:
    """The same, as this rank's matrices have it."""
    found = {}
    for j, a in enumerate(A.plan.blocks()):
        assert list(a.data) == list(NAMES)
        assert [x.dtype for x in a.data.values()] == [torch.float64, torch.float64, torch.int64]
        rows, columns = A.plan.row_names[a.row_of].tolist(), A.plan.names_of(j)[a.indices.long()].tolist()
        for k, pair in enumerate(zip(rows, columns, strict=True)):
            found[pair] = a.data["features"][k], a.data["time"][k], int(a.data["type"][k])
    return found


GRIDS = [((1, 1, 1), False), ((3, 1, 1), False), ((2, 2, 1), False), ((1, 2, 2), True), ((2, 1, 2), True),
         ((1, 1, 3), False)]  # fmt: skip


@pytest.mark.parametrize("kind", ["graph", "store"])
@pytest.mark.parametrize("how", ["gcn", "mean", "none", "loops"])
@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize(("shape", "moves"), GRIDS)
def test_every_entry_carries_what_its_arc_does(tmp_path, kind, how, exchange, shape, moves):
    graph = carrying()
    source, want, grid = source_of(graph, kind, tmp_path), truth(graph, how), Grid(*shape)

    def work(comm: Communicator) -> set[tuple[int, int]]:
        A = Operator.build(
            source, comm, grid, how, exchange, owners("random", N, grid), torch.float64,
            move_adjacency=moves, data=NAMES,
        )  # fmt: skip
        found = entries(A)
        for pair, (features, time, kind) in found.items():
            # A mean of float64 numbers: the order of the sum may differ.
            torch.testing.assert_close(features, want[pair][0], rtol=1e-14, atol=1e-15)
            torch.testing.assert_close(time, want[pair][1], rtol=1e-14, atol=1e-15)
            assert kind == want[pair][2]
        return set(found)

    assert set().union(*run_ranks(work, grid.size, "threads")) == set(want)


def test_a_whole_graph_without_loops_shares_the_graphs_own_memory():
    graph = carrying().replace(weights=None)
    (A,) = run_ranks(lambda comm: Operator.build(graph, comm, Grid(1), "none", data=("features",)), 1)
    assert A.plan.matrix(0).data["features"].data_ptr() == graph.arc_data["features"].data_ptr()


def test_nothing_is_read_that_nobody_asked_for():
    (A,) = run_ranks(lambda comm: Operator.build(carrying(), comm, Grid(1), "loops"), 1)
    assert A.plan.matrix(0).data == {}


def test_a_store_reads_the_data_of_the_wanted_rows_and_names_alone(tmp_path, monkeypatch):
    graph = carrying()
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    taken: dict[str, list[int]] = {}
    honest = Store._take

    def take(self, key, places):
        taken[key] = places.tolist()
        return honest(self, key, places)

    monkeypatch.setattr(Store, "_take", take)
    arcs = read_arcs(store, torch.tensor([6, 1]), ("time",))
    places = [k for v in (6, 1) for k in range(int(graph.indptr[v]), int(graph.indptr[v + 1]))]
    assert taken["arc_time"] == places
    assert not {"arc_features", "arc_type"} & set(taken)
    assert torch.equal(arcs.data["time"].ravel(), graph.arc_data["time"][places].float())


@pytest.mark.parametrize("kind", ["graph", "store"])
def test_a_name_that_the_graph_does_not_have_is_told_with_those_it_has(tmp_path, kind):
    source = source_of(carrying(), kind, tmp_path)
    with pytest.raises(UserError, match=r"carry no 'tyme'; what they carry: features, time, type\."):
        run_ranks(lambda comm: Operator.build(source, comm, Grid(1), data=("time", "tyme")), 1)
    bare = source_of(directed(N), "graph", tmp_path)
    with pytest.raises(UserError, match="what they carry: none"):
        run_ranks(lambda comm: Operator.build(bare, comm, Grid(1), data=("time",)), 1)


def test_slices_move_the_data_in_the_words_that_were_foretold():
    grid = Grid(2, 1, 2)

    def work(comm: Communicator) -> tuple[dict[str, int], dict[str, int], int, int]:
        A = Operator.build(
            carrying(), comm, grid, "none", dtype=torch.float64, move_adjacency=True, data=NAMES
        )
        with Ledger(comm) as books:
            whole = A.plan.matrix(1)
        foretold = A.foretell(lambda dry: dry.plan.matrix(1)).words
        own = A.plan.matrices[1]
        return received(books)[0], foretold, whole.arcs - own.arcs, whole.shape[0] - own.counts.numel()

    for real, foretold, arcs, rows in run_ranks(work, 4, "threads"):
        assert real == foretold == {"adjacency": rows + arcs * (1 + 3 + 1 + 1)}


def test_a_dry_operator_has_the_shapes_and_no_numbers():
    def work(comm: Communicator) -> list[tuple[int, ...]]:
        A = Operator.build(carrying(), comm, Grid(2), "loops", data=NAMES)
        shapes: list[tuple[int, ...]] = []

        def look(dry: Operator) -> None:
            for a in dry.plan.blocks():
                assert all(x.is_meta for x in a.data.values())
                shapes.extend(tuple(x.shape) for x in a.data.values())

        A.foretell(look)
        assert shapes == [tuple(x.shape) for a in A.plan.blocks() for x in a.data.values()]
        return shapes

    assert all(run_ranks(work, 2, "threads"))


def test_a_rank_without_rows_has_empty_data():
    parts = torch.tensor([0, 0, 2])[torch.arange(N) % 3]
    blocks = Blocks.of_parts(parts, Grid(3))

    def work(comm: Communicator) -> list[int]:
        A = Operator.build(carrying(), comm, Grid(3), "loops", blocks=blocks, data=NAMES)
        return [len(x) for a in A.plan.blocks() for x in a.data.values()]

    assert set(run_ranks(work, 3, "threads")[1]) == {0}


@pytest.mark.parametrize("loops_there", [True, False])
def test_loops_are_filled_as_pyg_fills_them_for_attention(loops_there):
    """GATConv and GATv2Conv: loops are removed, then added with fill_value="mean"."""
    utils = pytest.importorskip("torch_geometric.utils")
    graph = carrying() if loops_there else carrying().without_self_loops()
    assert graph.has_self_loops == loops_there
    x = graph.arc_data["features"].double()
    edges, x = utils.remove_self_loops(torch.stack([graph.indices.long(), graph.rows]), x)
    edges, x = utils.add_self_loops(edges, x, fill_value="mean", num_nodes=N)
    (A,) = run_ranks(
        lambda comm: Operator.build(graph, comm, Grid(1), "loops", dtype=torch.float64, data=("features",)), 1
    )
    a = A.plan.matrix(0)
    order = torch.argsort(edges[1] * N + edges[0])
    assert torch.equal(a.row_of * N + a.indices, (edges[1] * N + edges[0])[order])
    torch.testing.assert_close(a.data["features"], x[order], rtol=1e-13, atol=1e-14)

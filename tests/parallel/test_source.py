"""Rows of the normalised matrix, from memory or from a store, and only those rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, run_ranks
from weft.graph import Graph, Store, normalise, open_store, sbm, write_store
from weft.kernels import native
from weft.parallel import Blocks, ByBlocks, Grid, Operator
from weft.parallel.cutting import reads_of
from weft.parallel.source import read_arcs, read_normalised, read_vertices

from .cases import directed

SOURCES = ("graph", "store")


def source_of(graph: Graph, kind: str, folder) -> Graph | Store:
    if kind == "graph":
        return graph
    return open_store(write_store(graph, folder / "g.weft"), verify=False)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("vertices", [[], [3], [0, 5, 6, 12], [12, 1, 7], list(range(13))])
def test_arcs_of_some_rows_are_those_of_the_graph(tmp_path, kind, weighted, vertices):
    graph = directed(13, weighted)
    arcs = read_arcs(source_of(graph, kind, tmp_path), torch.tensor(vertices, dtype=torch.int64))
    row, vertex, value = [], [], []
    for r, v in enumerate(vertices):
        here = slice(int(graph.indptr[v]), int(graph.indptr[v + 1]))
        row += [r] * (here.stop - here.start)
        vertex += graph.indices[here].tolist()
        value += graph.weights[here].tolist() if graph.weights is not None else []
    assert arcs.row.tolist() == row
    assert arcs.vertex.tolist() == vertex
    assert (arcs.value is None) == (not weighted)
    if arcs.value is not None:
        assert arcs.value.tolist() == value


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", ["gcn", "mean", "none"])
@pytest.mark.parametrize("parts", [[0, 0, 0], [0, 1, 2], [2, 2, 0]])
def test_normalised_rows_are_those_of_the_normalised_graph(tmp_path, kind, weighted, how, parts):
    """Ranks without rows too: [0, 0, 0] leaves two of three with none."""
    n = 17
    graph = directed(n, weighted)
    source = source_of(graph, kind, tmp_path)
    whole = normalise(graph, how, torch.float64)
    weights = torch.ones(whole.num_arcs) if whole.weights is None else whole.weights
    blocks = Blocks.of_parts(torch.tensor(parts)[torch.arange(n) % 3], Grid(3))

    def work(comm: Communicator) -> int:
        begin, end = blocks.own(comm.rank)
        mine = blocks.order[begin:end]
        arcs = read_normalised(source, mine, how, comm, (0, end - begin), ByBlocks(blocks))
        pairs = list(zip(mine[arcs.row].tolist(), arcs.vertex.tolist(), strict=True))
        here = torch.isin(whole.rows, mine)
        want = dict(
            zip(
                zip(whole.rows[here].tolist(), whole.indices[here].tolist(), strict=True),
                weights[here].tolist(),
                strict=True,
            )
        )
        assert set(pairs) == set(want)
        assert pairs == sorted(pairs, key=lambda pair: (blocks.place_of[pair[0]], pair[1]))
        ours = [1.0] * len(pairs) if arcs.value is None else arcs.value.tolist()
        assert ours == pytest.approx([want[pair] for pair in pairs], rel=1e-14)
        return len(pairs)

    assert sum(run_ranks(work, 3, "threads")) == whole.num_arcs


def test_a_slab_of_rows_without_arcs_gets_its_loops():
    """A weighted graph whose last rows are empty: there is no weight to copy a 1 from."""
    graph = Graph.from_arcs([0, 1], [1, 0], 4, weights=[2.0, 3.0])

    def work(comm: Communicator) -> list[float]:
        a = Operator.build(graph, comm, Grid(2), "gcn", dtype=torch.float64)
        return a.layout.collect(a @ torch.ones(2, 1, dtype=torch.float64))[2:].ravel().tolist()

    assert run_ranks(work, 2, "threads") == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("kind", SOURCES)
def test_vertices_bring_their_own_features_labels_and_masks(tmp_path, kind):
    graph = sbm(nodes=31, classes=3, degree=4, features=5, seed=1)
    source = source_of(graph, kind, tmp_path)
    some = torch.tensor([30, 2, 2, 17])
    for key in ("features", "labels", "train_mask"):
        whole = getattr(graph, key)
        for vertices in (some.unique(), torch.empty(0, dtype=torch.int64)):
            got = read_vertices(source, vertices, key)
            assert got is not None
            assert torch.equal(got, whole[vertices])
    folder = tmp_path / "bare"
    folder.mkdir()
    bare = source_of(directed(31), kind, folder)
    assert read_vertices(bare, some, "features") is None


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("grid", [Grid(6), Grid(3, 2, 1)])
def test_a_rank_asks_a_store_for_the_rows_of_its_slab_alone(tmp_path, grid, backend):
    """Without C++ and with an inner axis, for its columns of them alone, and its own rows for their sums."""
    graph = sbm(nodes=61, classes=3, degree=4, features=5, seed=1)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    blocks = Blocks.even(61, grid, seed=4)

    def work(comm: Communicator) -> list[tuple[str, list[int]]]:
        asked: list[tuple[str, list[int]]] = []

        class Watched(Store):
            def rows(self, vertices: Tensor, **options: object):
                asked.append(("rows", sorted(vertices.tolist())))
                return Store.rows(self, vertices, **options)

            def block(self, vertices: Tensor, *options: object):
                found = Store.block(self, vertices, *options)
                asked.append(("block", sorted(vertices.tolist())))
                asked.append(("columns", sorted(set(found.indices.tolist()))))
                return found

        watched = object.__new__(Watched)
        watched.__dict__.update(store.__dict__)
        with native.use(backend):
            a = Operator.build(watched, comm, grid, "gcn", "sparse", blocks)
        a.layout.read(watched, "features")
        return asked

    for rank, asked in enumerate(run_ranks(work, 6, "threads")):
        i, k, _ = grid.place(rank)
        slab = blocks.order[slice(*blocks.slab(i))].sort().values.tolist()
        own = blocks.order[slice(*blocks.own(rank))].tolist()
        if backend == "native":
            assert asked == [*[("rows", slab)] * 4, ("rows", own)]  # pointers and arcs, to count and to fill
            continue
        if grid.inner == 1:
            assert asked == [("rows", slab), ("rows", own)]
            continue
        mine = {v for j in range(grid.row) for v in blocks.order[slice(*blocks.union(j, k))].tolist()}
        assert [asked[0], *asked[2:]] == [("block", slab), ("rows", own), ("rows", own)]
        assert asked[1][0] == "columns"
        assert set(asked[1][1]) <= mine


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", ["gcn", "mean", "none", "loops"])
@pytest.mark.parametrize("many", [2, 20])
def test_some_columns_of_normalised_rows_are_those_of_all(tmp_path, kind, weighted, how, many):
    """Also where the graph has more arcs than ranks times vertices, and n numbers travel instead of some."""
    n, grid = 17, Grid(2, 2)
    graph = directed(n, weighted, degree=many)
    source = source_of(graph, kind, tmp_path)
    blocks = Blocks.even(n, grid, seed=3)

    def work(comm: Communicator) -> None:
        slab, own = blocks.slab(grid.place(comm.rank)[0]), blocks.own(comm.rank)
        vertices = blocks.span(*slab)
        place = (own[0] - slab[0], own[1] - slab[0])
        whole = read_normalised(source, vertices, how, comm, place, ByBlocks(blocks))
        keep = reads_of(blocks, comm.rank)
        assert keep is not None
        some = read_normalised(source, vertices, how, comm, place, ByBlocks(blocks), keep=keep)
        want = whole.pick(keep(whole.vertex))
        assert 0 < want.row.numel() < whole.row.numel()
        assert torch.equal(some.row, want.row)
        assert torch.equal(some.vertex, want.vertex)
        assert (some.value is None) == (want.value is None)
        if some.value is not None:
            assert torch.equal(some.value, want.value)

    run_ranks(work, 4, "threads")

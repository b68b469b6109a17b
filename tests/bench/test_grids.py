from __future__ import annotations

from weft.bench.grids import bench_grids, shapes
from weft.graph import Graph, sbm
from weft.partition import PartitionOptions


def test_every_grid_exchange_and_partition_has_a_row_and_the_least_is_first():
    graph = sbm(nodes=200, classes=4, degree=6)
    graph = Graph(graph.indptr, graph.indices)
    rows = bench_grids(graph, 8, ["random", "metis"], 16, PartitionOptions(), lambda line: None)
    assert len(rows) == len(shapes(8)) * 4
    assert [r["words_mean"] for r in rows] == sorted(r["words_mean"] for r in rows)
    by = {(r["grid"], r["exchange"], r["method"]): r for r in rows}
    # n·w·(P − 1)/P forward as backward, and a good partition moves less where it can
    assert by["8x1x1", "dense", "random"]["words_mean"] == 2 * 200 * 16 * 7 / 8
    assert by["8x1x1", "dense", "random"]["ratio"] == 1
    for grid in ("8x1x1", "4x2x1", "2x2x2"):
        assert by[grid, "sparse", "metis"]["words_mean"] < by[grid, "sparse", "random"]["words_mean"]
    assert by["8x1x1", "sparse", "metis"]["name"] == "halo"

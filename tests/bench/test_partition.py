from __future__ import annotations

from pathlib import Path

import pytest

from weft.bench.partition import bench_partition, draw_partition, snap_graphs
from weft.partition import PartitionOptions, methods


def test_ratios_are_to_the_random_partition_of_the_same_graph_and_parts(tmp_path):
    graphs, parts = ["sbm:nodes=300,classes=4,degree=6", "karate"], [2, 4]
    rows = bench_partition(graphs, parts, ["metis", "hypergraph"], PartitionOptions(), lambda _: "default")
    assert [(r["graph"], r["parts"], r["method"]) for r in rows] == [
        (graph, count, method)
        for graph in graphs
        for count in parts
        for method in ("random", "metis", "hypergraph")
    ]
    for at, row in enumerate(rows):
        base = rows[at - at % 3]
        assert row["volume_max_ratio"] == row["volume_max"] / base["volume_max"]
        assert row["volume_average_ratio"] == pytest.approx(row["volume_total"] / base["volume_total"])
    draw_partition(rows, str(tmp_path / "p.png"))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_best_begins_with_the_cuts_beside_it(monkeypatch):
    made = []
    plain = methods._cut
    monkeypatch.setattr(methods, "_cut", lambda *given: made.append(given[2]) or plain(*given))
    asked = ["metis", "hypergraph", "best"]
    rows = bench_partition(["karate"], [4], asked, PartitionOptions(), lambda _: "deterministic")
    assert [row["method"] for row in rows] == ["random", *asked]
    assert made == ["metis", "hypergraph"]
    assert rows[3]["volume_max"] <= min(row["volume_max"] for row in rows[:3])


def test_the_graphs_of_snap_are_found(tmp_path):
    for name in ("snap/a.txt", "snap/b.txt.gz", "cnr-2000/cnr-2000.csr.npz", "npz/c.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert snap_graphs(tmp_path) == ["a", "b", "cnr-2000"]


@pytest.mark.slow
def test_the_hypergraph_model_reaches_the_papers_figures_on_slashdot(data: Path):
    """Demirci et al., Table 2, soc-Slashdot0902 at 512 parts: 0.74, 0.69, 0.86 of random."""
    _, row = bench_partition(
        ["soc-slashdot0902"], [512], ["hypergraph"], PartitionOptions(epsilon=0.01), lambda _: "large-k",
        str(data),
    )  # fmt: skip
    assert row["volume_average_ratio"] <= 0.73
    assert row["volume_max_ratio"] <= 0.69
    assert row["messages_average_ratio"] <= 0.86

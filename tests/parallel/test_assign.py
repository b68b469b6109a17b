"""Whoever owns what, training is training in one process; and the words are the partition's volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.comm import Communicator
from weft.comm.threads import run_threads, single
from weft.errors import UserError
from weft.graph import Graph, load, open_store, write_store
from weft.parallel import Grid
from weft.parallel.assign import assign, bare, check_assignment
from weft.partition import METHODS, ORDERS, PartitionOptions, measure, partition_graph
from weft.train import RunConfig, Trainer
from weft.train.config import ParallelConfig
from weft.train.verify import compare, serial, trace

from ..train.graphs import config, small
from ..train.real_ranks import train_in_turn

SPARSE = {"2x2x1": 4, "2x1x2": 4, "1x3x1": 3, "3x2x1": 6, "2x2x2": 8}
"""Grids with more than one axis, and their ranks."""


def settings(**parallel: object) -> RunConfig:
    made = config(dtype="float64", epochs=4, model_layers=3, model_dropout=0.3)
    for name, value in parallel.items():
        assert hasattr(made.parallel, name), name
        setattr(made.parallel, name, value)
    return made


def verified(comm: Communicator, graph: Graph, made: RunConfig) -> float:
    """The largest relative difference to the serial run, of losses, gradients and embeddings."""
    ours = trace(graph, made, comm)
    return max(compare(ours, serial(graph, made)).values()) if comm.rank == 0 else 0.0


@pytest.mark.parametrize("method", METHODS)
def test_halo_equals_the_serial_run_for_every_partitioner(method):
    assert run_threads(verified, 5, small(), settings(strategy="halo", partition=method))[0] < 1e-9


@pytest.mark.parametrize("grid", SPARSE)
@pytest.mark.parametrize("method", ["metis", "hypergraph"])
def test_the_sparse_exchange_on_a_grid_equals_the_serial_run(grid, method):
    made = settings(strategy="grid", grid=grid, exchange="sparse", partition=method)
    assert run_threads(verified, SPARSE[grid], small(), made)[0] < 1e-9


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("partition", ["random", "hypergraph"])
def test_every_order_within_a_part_equals_the_serial_run(order, partition):
    made = settings(strategy="halo", partition=partition, order=order)
    assert run_threads(verified, 3, small(), made)[0] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "method"),
    # The bound asks for 275,000 nets at 64 parts: stochastic is left to fewer ranks.
    [
        *(("64x1x1", method) for method in METHODS if method != "stochastic"),
        ("8x8x1", "hypergraph"),
        ("4x4x4", "hypergraph"),
    ],
)
def test_sixty_four_virtual_ranks_equal_the_serial_run(grid, method):
    made = settings(strategy="grid", grid=grid, exchange="sparse", partition=method)
    made.train.epochs = 2
    assert run_threads(verified, 64, small(), made)[0] < 1e-9


def moved(comm: Communicator, graph: Graph, made: RunConfig) -> tuple[list[int], dict[str, int]]:
    trainer = Trainer(graph, made, comm)
    return trainer.A.rows.tolist(), trainer.fit().moved.words


@pytest.mark.parametrize("method", METHODS)
def test_the_words_of_halo_are_the_volume_of_the_partition_times_the_width(method):
    graph, ranks = small(), 6
    made = settings(strategy="halo", partition=method)
    seen = run_threads(moved, ranks, graph, made)
    parts = torch.empty(graph.num_nodes, dtype=torch.int64)
    for rank, (rows, _) in enumerate(seen):
        parts[rows] = rank
    found = measure(graph, parts, ranks)
    # Layers 8-8-8-4: A·X is kept; the second propagation is 8 wide, the third 4, each forward and back.
    for rank, (_, words) in enumerate(seen):
        assert words.get("gather", 0) == int(found.between[:, rank].sum()) * (8 + 4)
        assert words.get("reduce", 0) == int(found.volumes[rank]) * (8 + 4)
    assert sum(words.get("gather", 0) for _, words in seen) == found.volume_total * (8 + 4)


def test_only_rank_0_reads_the_whole_graph_of_a_store(tmp_path, monkeypatch):
    path = write_store(small(), tmp_path / "g.weft")
    asked: list[int] = []

    def spy(source: Any) -> Graph:
        asked.append(1)
        return bare(source)

    monkeypatch.setattr("weft.parallel.assign.bare", spy)

    def work(comm: Communicator) -> list[int]:
        options = ParallelConfig(partition="hypergraph")
        return assign(open_store(path, verify=False), Grid(4), options, 0, comm).order.tolist()

    orders = run_threads(work, 4)
    assert asked == [1]
    assert all(order == orders[0] for order in orders)
    wanted = assign(small(), Grid(4), ParallelConfig(partition="hypergraph"), 0, single())
    assert orders[0] == wanted.order.tolist()


@pytest.mark.parametrize("partition", ["stream", "hash"])
def test_parts_that_follow_from_rows_load_no_arcs_of_a_store(tmp_path, monkeypatch, partition):
    store = open_store(write_store(small(), tmp_path / "g.weft"), verify=False)
    monkeypatch.setattr("weft.parallel.assign.bare", None)
    for grid in (Grid(4), Grid(2, 2), Grid(1, 1, 3)):

        def work(comm: Communicator, grid: Grid = grid) -> list[int]:
            return assign(store, grid, ParallelConfig(partition=partition), 0, comm).order.tolist()

        orders = run_threads(work, grid.size)
        assert all(order == orders[0] for order in orders)
        assert sorted(orders[0]) == list(range(160))


def test_a_mistake_that_rank_0_finds_ends_every_rank(monkeypatch):
    def fail(*_: Any) -> Graph:
        raise UserError("no such luck. Try again.")

    monkeypatch.setattr("weft.parallel.assign.bare", fail)

    def work(comm: Communicator) -> str:
        with pytest.raises(UserError) as caught:
            assign(small(), Grid(3), ParallelConfig(partition="metis"), 0, comm)
        return str(caught.value)

    assert run_threads(work, 3) == ["no such luck. Try again."] * 3


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        ({"partition": "metsi"}, "unknown partition 'metsi'. Did you mean 'metis'?"),
        ({"partition": "metis", "epsilon": -1.0}, "epsilon must be 0 or more, not -1."),
        ({"partition": "hypergraph", "preset": "best"}, "unknown preset 'best'."),
        ({"order": "rmc"}, "unknown order 'rmc'. Did you mean 'rcm'?"),
    ],
)
def test_mistakes_are_found_before_anything_is_computed(parallel, message):
    with pytest.raises(UserError) as caught:
        check_assignment(160, Grid(3), ParallelConfig(**parallel))
    assert str(caught.value).startswith(message)


def test_a_damaged_file_of_parts_is_one_line(tmp_path):
    path = tmp_path / "parts.npy"
    np.save(path, np.arange(160) % 3)
    path.write_bytes(path.read_bytes().replace(b"(160,)", b"(9e9,)"))
    with pytest.raises(UserError, match=r"is not a .npy array"):
        check_assignment(160, Grid(3), ParallelConfig(partition=str(path)))


def real_ranks(mpi_ranks: Any, folder: Path, ranks: int, ways: list[dict[str, Any]]) -> None:
    path = str(write_store(small(), folder / "g.weft"))
    for alone, *losses in mpi_ranks(train_in_turn, ranks, path, ways):
        assert len(losses) == len(ways)
        for way, loss in zip(ways, losses, strict=True):
            assert loss == pytest.approx(alone, rel=1e-9), way


def test_two_real_ranks_train_on_a_hypergraph_partition(mpi_ranks, tmp_path):
    real_ranks(mpi_ranks, tmp_path, 2, [{"strategy": "halo", "partition": "hypergraph", "order": "rcm"}])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_real_ranks_train_with_every_partitioner(mpi_ranks, tmp_path, ranks):
    methods = METHODS if ranks < 8 else ("random", "metis", "hypergraph")
    ways: list[dict[str, Any]] = [{"strategy": "halo", "partition": method} for method in methods]
    for grid, needed in SPARSE.items():
        if needed == ranks:
            ways.append({"strategy": "grid", "grid": grid, "exchange": "sparse", "partition": "hypergraph"})
    real_ranks(mpi_ranks, tmp_path, ranks, ways)


@pytest.mark.slow
def test_halo_on_a_hypergraph_partition_of_com_dblp_moves_an_eighth_of_1d(data: Path):
    graph = load("com-dblp", data)
    parts = partition_graph(graph, 16, "hypergraph", PartitionOptions(preset="large-k"))
    assert 8 * measure(graph, parts, 16).volume_total <= graph.num_nodes * 15

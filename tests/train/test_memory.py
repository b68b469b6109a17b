"""Lean memory: L + 3 activation-sized buffers of n/P × w, asked for in the first epoch only."""

from __future__ import annotations

import gc

import pytest

from weft.comm import Communicator, run_ranks
from weft.graph import er, open_store, write_store
from weft.memory import pool
from weft.train import RunConfig, Trainer
from weft.train.result import peak_rss_bytes

NODES, WIDTH = 16_384, 64


def units_after_each_epoch(comm: Communicator | None, layers: int) -> list[float]:
    """Activation-sized buffers of the pool after each of four epochs, without A·X and the loss's rows."""
    graph = er(NODES, 8, seed=1, features=WIDTH, classes=WIDTH)
    config = RunConfig()
    config.model.layers, config.model.hidden = layers, WIDTH
    gc.collect()
    pool.trim()
    before = pool.bytes
    trainer = Trainer(graph, config, comm)
    own = trainer.task.rows["train"].numel() * WIDTH * 4
    unit = NODES // trainer.comm.size * WIDTH * 4
    out = []
    for epoch in range(1, 5):
        trainer.step(epoch)
        out.append((pool.bytes - before - unit - own) / unit)
    return out


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_one_process_needs_l_plus_3_buffers_and_asks_for_them_once(layers):
    units = units_after_each_epoch(None, layers)
    assert units[-1] <= layers + 3
    assert units[0] == units[-1]
    assert units[-1] > layers - 1  # the count does count: every layer keeps an activation


def all_depths(comm: Communicator) -> list[list[float]]:
    return [units_after_each_epoch(comm, layers) for layers in (2, 4, 8)]


def test_each_of_two_mpi_ranks_needs_l_plus_3_buffers_of_half_the_rows():
    pytest.importorskip("mpi4py", reason="the extra mpi is not installed")
    for rank in run_ranks(all_depths, 2, "mpi"):
        for layers, units in zip((2, 4, 8), rank, strict=True):
            assert layers - 1 < units[-1] <= layers + 3.01, (layers, units)
            assert units[1] == units[-1], "an epoch after the first asked for memory"


def growth(comm: Communicator, path: str) -> int:
    """How much the peak memory of a rank grows when it trains on its share of a store."""
    config = RunConfig()
    config.model.hidden = 8
    # What every rank loads on first use, whatever the graph, is not what is asked about.
    Trainer(er(100, 4, seed=0, features=8, classes=4), config, comm).step(1)
    before = peak_rss_bytes()
    trainer = Trainer(open_store(path, verify=False), config, comm)
    for epoch in (1, 2):
        trainer.step(epoch)
    return peak_rss_bytes() - before


@pytest.mark.slow
def test_no_rank_of_eight_holds_the_whole_graph_or_the_whole_h(tmp_path):
    pytest.importorskip("mpi4py", reason="the extra mpi is not installed")
    graph = er(20_000, 50, seed=1, features=1200, classes=4)
    path = write_store(graph, tmp_path / "g.weft")
    whole = path.stat().st_size
    # Its share of X and of A·X, and two blocks on their way, are half of X; scratch of reading comes on top.
    assert max(run_ranks(growth, 8, "mpi", str(path), stall_seconds=200)) < whole * 2 / 3
    (alone,) = run_ranks(growth, 1, "mpi", str(path), stall_seconds=200)
    assert alone > whole  # the measure does measure: one rank holds all of it

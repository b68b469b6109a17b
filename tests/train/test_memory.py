"""Lean memory: L + 3 activation-sized buffers of n/P × w, asked for in the first epoch only."""

from __future__ import annotations

import gc

import pytest

from weft.comm import Communicator, run_ranks
from weft.graph import er
from weft.kernels import pool
from weft.train import RunConfig, Trainer

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
    own = trainer.rows["train"].numel() * WIDTH * 4
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

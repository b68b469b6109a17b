from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from weft.graph import Graph
from weft.partition import Hypergraph, measure, partition_graph

from .cases import assigned, communities


@given(assigned())
def test_net_j_has_j_and_the_rows_with_an_entry_in_column_j(case):
    graph, _, _ = case
    nets = Hypergraph.column_net(graph)
    wanted: dict[int, set[int]] = {}
    for row, column in zip(graph.rows.tolist(), graph.indices.tolist(), strict=True):
        wanted.setdefault(column, {column}).add(row)
    got = [sorted(nets.pins[a:b].tolist()) for a, b in zip(nets.starts, nets.starts[1:], strict=False)]
    assert got == [sorted(pins) for _, pins in sorted(wanted.items()) if len(pins) > 1]


def test_weights_are_the_nonzeros_of_the_row_with_its_loop():
    assert Hypergraph.column_net(Graph.from_arcs([0, 1, 1], [1, 1, 2])).weights.tolist() == [1, 2, 2]


def test_columns_of_several_batches_are_nets_of_their_own():
    rows, columns = np.array([1, 2, 1]), np.array([0, 0, 3 + 0])  # vertex 0 in batch 0 and in batch 1
    nets = Hypergraph.of_arcs(rows, columns, np.ones(3, int))
    assert [nets.pins[a:b].tolist() for a, b in zip(nets.starts, nets.starts[1:], strict=False)] == [
        [0, 1, 2],
        [0, 1],
    ]


def test_ctrl_c_ends_a_long_cut_at_once_and_the_handler_is_back_after_it():
    before = signal.getsignal(signal.SIGINT)
    Hypergraph.column_net(Graph.from_arcs([0, 1, 2], [1, 2, 3])).cut(2, 0.1, "default", 0)
    assert signal.getsignal(signal.SIGINT) is before
    code = (
        "import os, signal\n"
        "from weft.partition.hypergraph import _ctrl_c_ends_the_process\n"
        "with _ctrl_c_ends_the_process():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGINT


def test_a_v_cycle_makes_parts_better_keeps_the_balance_and_repeats():
    pytest.importorskip("mtkahypar")
    graph = communities(classes=4, nodes=240).with_self_loops()
    hypergraph = Hypergraph.column_net(graph)
    start = partition_graph(graph, 4, "random").numpy()
    before = measure(graph, start, 4)
    made = [hypergraph.cycles(4, 0.05, "deterministic", 0, 1)(start) for _ in range(2)]
    after = measure(graph, made[0], 4)
    assert np.array_equal(*made)
    assert after.volume_total < before.volume_total
    assert after.loads.max() <= 1.05 * -(-after.loads.sum() // 4) + 1


def test_a_v_cycle_of_no_nets_leaves_the_parts():
    alone = Hypergraph.column_net(Graph.from_arcs([], [], 6))
    assert alone.cycles(3, 0.1, "deterministic", 0)(np.arange(6) % 3).tolist() == [0, 1, 2, 0, 1, 2]

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
from hypothesis import given

from weft.graph import Graph
from weft.partition import Hypergraph

from .cases import assigned


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

from __future__ import annotations

import torch

from weft.bench.order import _own_blocks, bench_order
from weft.graph import karate, normalise
from weft.parallel import Blocks, Grid
from weft.partition import ORDERS, PartitionOptions, order_within


def test_own_blocks_are_the_diagonal_of_the_matrix_in_the_blocks_order():
    graph = karate()
    parts = torch.arange(34) % 3
    blocks = Blocks.of_parts(parts, Grid(3), order_within(graph, parts, "rcm"))
    matrix = normalise(graph, "gcn")
    dense = torch.zeros(34, 34)
    dense[matrix.rows, matrix.indices.long()] = matrix.weights
    for part, own in enumerate(_own_blocks(matrix, blocks)):
        begin, end = blocks.own(part)
        at = blocks.order[begin:end]
        assert torch.equal(own.dense(), dense[at][:, at])


def test_every_order_has_a_row_a_width():
    rows = bench_order(karate(), 2, "metis", [1, 3], 1, PartitionOptions())
    assert [(r["order"], r["width"]) for r in rows] == [(h, w) for w in (1, 3) for h in (*ORDERS, "shuffled")]
    assert all(r["seconds"] > 0 for r in rows)

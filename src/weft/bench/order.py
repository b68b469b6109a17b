"""SpMM before and after the vertices of a part are put into another order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph import Graph, normalise
from ..kernels import CSR, spmm
from ..parallel import Blocks, Grid
from ..partition import ORDERS, PartitionOptions, order_within, partition_graph
from .timing import interleaved


def bench_order(
    graph: Graph, parts: int, method: str, widths: Sequence[int], rounds: int, options: PartitionOptions
) -> list[dict[str, Any]]:
    """A row per order and width: seconds to multiply every part's own block A[V_p, V_p], and how many times
    faster than in the graph's own order. `shuffled` is what an arbitrary numbering costs."""
    made = partition_graph(graph, parts, method, options)
    matrix = normalise(graph, "gcn")
    keys: dict[str, tuple[Tensor, float]] = {}
    for how in ORDERS:
        started = time.perf_counter()
        keys[how] = order_within(graph, made, how, options.seed), time.perf_counter() - started
    shuffle = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(options.seed))
    keys["shuffled"] = shuffle, 0.0
    blocks = {
        how: _own_blocks(matrix, Blocks.of_parts(made, Grid(parts), key)) for how, (key, _) in keys.items()
    }
    rows = []
    for width in widths:
        contenders = {how: _product(own, width) for how, own in blocks.items()}
        seconds = interleaved(contenders, rounds)
        rows += [
            {
                "order": how, "width": width, "seconds": seconds[how],
                "speedup": seconds["none"] / seconds[how], "order_seconds": keys[how][1],
            }
            for how in keys
        ]  # fmt: skip
    return rows


def _own_blocks(matrix: Graph, blocks: Blocks) -> list[CSR]:
    """A[V_p, V_p] of every part, rows and columns in the blocks' order."""
    place, owner = blocks.place_of, blocks.parts
    rows, columns = matrix.rows, matrix.indices.long()
    inside = owner[rows] == owner[columns]
    row, column = place[rows[inside]], place[columns[inside]]
    values = matrix.weights[inside].float() if matrix.weights is not None else None
    n = blocks.count
    sort = torch.argsort(row * n + column)
    row, column = row[sort], column[sort]
    values = None if values is None else values[sort]
    out = []
    for part in range(blocks.grid.size):
        begin, end = blocks.own(part)
        first, last = torch.searchsorted(row, torch.tensor([begin, end])).tolist()
        counts = torch.bincount(row[first:last] - begin, minlength=end - begin)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        picked = None if values is None else values[first:last]
        out.append(CSR(indptr, (column[first:last] - begin).int(), picked, (end - begin, end - begin)))
    return out


def _product(blocks: Sequence[CSR], width: int) -> Callable[[], None]:
    x = [torch.rand(a.shape[1], width) for a in blocks]

    def run() -> None:
        for a, h in zip(blocks, x, strict=True):
            spmm(a, h)

    return run

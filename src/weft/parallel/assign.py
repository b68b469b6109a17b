"""Who owns which vertex in a run: made once, known to every rank."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..graph.readers.files import map_array
from ..graph.rows import index_dtype
from ..partition import METHODS, ORDERS, PartitionOptions, check_method, order_within, partition_for_grid
from ..partition.methods import BY_ROWS, pick
from ..partition.stochastic import Sampler
from ..partition.stream import vertex_work
from .blocks import Blocks, count_parts
from .grid import Grid
from .numbering import InOrder, Listed


class Assignment(Protocol):
    """What a config says of it (`weft.train.config.ParallelConfig`)."""

    partition: str
    epsilon: float
    preset: str
    order: str


def assign(
    source: Graph | Store, grid: Grid, options: Assignment, seed: int, comm: Communicator,
    batches: Callable[[], Sampler | None] | None = None,
) -> Blocks:  # fmt: skip
    """The blocks that `--partition` and `--order` ask for, the same on every rank.

    What looks at arcs is made on rank 0, the one rank that then holds the whole graph for a while, and told
    to the others: n numbers. `batches` makes, there, what `stochastic` samples: (rows, columns) of a batch
    like the run's; by default vertices drawn uniformly with all their neighbours.

    >>> from weft.comm.threads import single
    >>> from weft.graph import karate
    >>> from weft.train.config import ParallelConfig
    >>> assign(karate(), Grid(1), ParallelConfig(partition="block"), 0, single()).sizes
    [34]
    """
    check_assignment(source.num_nodes, grid, options)
    n, partition = source.num_nodes, options.partition
    if options.order == "none" and (partition in ("block", "random") or partition.endswith(".npy")):
        return _without_arcs(source, grid, partition, seed)
    blocks: Blocks | None = None
    mistake = ""
    if comm.rank == 0:
        try:
            blocks = _make(source, grid, options, seed, batches)
        except UserError as error:
            mistake = str(error)
    _wait_for_rank_0(comm, failed=bool(mistake))
    mistake = comm.all_gather_json(mistake)[0]
    if mistake:
        raise UserError(mistake)
    told, sizes = (
        torch.empty(n, dtype=index_dtype(n), device="cpu"),
        torch.zeros(grid.size, device="cpu").long(),
    )
    if blocks is not None:
        told, sizes = blocks.order.to(told.dtype), torch.tensor(blocks.sizes, device="cpu")
    sizes = comm.broadcast(sizes, 0, phase="plan")
    return Blocks(grid, Listed(comm.broadcast(told, 0, phase="plan")), sizes.tolist())


def check_assignment(n: int, grid: Grid, options: Assignment) -> None:
    """Refuse what cannot be assigned, before anything is computed.

    >>> from weft.train.config import ParallelConfig
    >>> check_assignment(34, Grid(2), ParallelConfig(partition="metsi"))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown partition 'metsi'. Did you mean 'metis'? Known: block, random, ...
    """
    if grid.size > max(n, 1):
        raise UserError(
            f"{grid.size} ranks are more than the graph's {n} vertices. Use --ranks {max(n, 1)} or fewer."
        )
    if options.order not in ORDERS:
        raise unknown("order", options.order, ORDERS)
    check_partition(options.partition)
    if options.partition.endswith(".npy"):
        count_parts(read_parts(options.partition, n), grid.size)
    elif n:
        check_method(options.partition, grid.size, n, _options(options, 0))


def check_partition(name: str) -> None:
    """Refuse what is neither a method nor a file of parts."""
    if name not in METHODS and not name.endswith(".npy"):
        raise unknown("partition", name, [*METHODS, "a file such as parts.npy"])


def _options(options: Assignment, seed: int) -> PartitionOptions:
    def say(line: str) -> None:
        print(f"partition {line}", file=sys.stderr, flush=True)

    return PartitionOptions(seed=seed, epsilon=options.epsilon, preset=options.preset, say=say)


def _without_arcs(source: Graph | Store, grid: Grid, partition: str, seed: int) -> Blocks:
    n = source.num_nodes
    if partition.endswith(".npy"):
        return Blocks.of_parts(read_parts(partition, n), grid)
    sizes = source.parts if isinstance(source, Store) else None
    if partition == "block" and sizes is not None and len(sizes) == grid.size:
        return Blocks(grid, InOrder(n), sizes)  # the store lies part by part
    return Blocks.even(n, grid, seed if partition == "random" and grid.size > 1 else None)


def _make(
    source: Graph | Store, grid: Grid, options: Assignment, seed: int,
    batches: Callable[[], Sampler | None] | None,
) -> Blocks:  # fmt: skip
    asked = _options(options, seed)
    if batches is not None and options.partition == "stochastic":
        asked.sampler = batches()
    method = pick(source, grid.size) if options.partition == "auto" else options.partition
    asked.vertex_work = vertex_work(source.num_features)
    if method in BY_ROWS and options.order == "none":  # no arcs are loaded
        return Blocks.of_parts(partition_for_grid(source, grid.shape, method, asked), grid)
    graph = bare(source)
    if options.partition in ("block", "random") or options.partition.endswith(".npy"):
        blocks = _without_arcs(source, grid, options.partition, seed)
    else:
        blocks = Blocks.of_parts(partition_for_grid(graph, grid.shape, options.partition, asked), grid)
    if options.order == "none":
        return blocks
    parts = blocks.parts
    return Blocks.of_parts(parts, grid, order_within(graph, parts, options.order, seed, asked.say))


def bare(source: Graph | Store) -> Graph:
    """The arcs alone: no features are read for a partition."""
    if isinstance(source, Graph):
        return Graph(source.indptr, source.indices)
    rows = source.rows(0, source.num_nodes, only=("indices",))
    return Graph(rows.indptr, rows.indices)


def _wait_for_rank_0(comm: Communicator, failed: bool) -> None:
    """Partitions take minutes. To ask now and then leaves rank 0 the cores, and is no stall."""
    request = comm.ibroadcast(torch.tensor([int(failed)], device="cpu"), 0, phase="plan")
    while not request.test():
        time.sleep(0.01)


def read_parts(path: str, n: int) -> Tensor:
    """An assignment from a file: one part a vertex. [n] int32, or int64 where a number is larger."""
    parts = map_array(path, missing=f"Make one: weft partition GRAPH --parts P --out {path}.")
    if parts.dtype.kind not in "iu" or parts.ndim != 1:
        raise UserError(f"{path} does not hold one whole number a vertex. Make it with weft partition.")
    if len(parts) != n:
        raise UserError(f"{path} has {len(parts)} parts for {n} vertices. Make it for this graph.")
    wide = n and (parts.min() < -(2**31) or parts.max() >= 2**31)
    return torch.from_numpy(parts.astype(np.int64 if wide else np.int32))

"""A graph, shared out among ranks: the first step of a trainer, and of a loop of one's own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import torch
from torch import Tensor

from ..comm import Communicator
from ..graph import Graph, Store
from ..partition.stochastic import Sampler
from .assign import Assignment, assign
from .blocks import Blocks
from .by_host import check_by_host
from .fetch import ByBlocks
from .grid import choose
from .layout import Rows
from .operator import Operator


class Sharing(Assignment, Protocol):
    """What a config says of it (`weft.train.config.ParallelConfig`)."""

    strategy: str
    grid: str
    replication: int
    exchange: str
    overlap: bool
    by_host: str
    move_adjacency: bool


class Shared:
    """Who has which vertices of a graph, on which grid; A on that grid, and rows of what vertices have.

        grid, exchange   how the ranks lie, and whether whole blocks or only rows that are read move
        blocks           the vertices of each rank
        layout           this rank's rows of a tall matrix, and how those of all are collected
        owners           whose a vertex is

    Every rank makes it together. `Trainer` stands on it, and so does `weft.ranks().share`: what a loop of
    one's own has is what a trainer has.

        batches   makes what `--partition stochastic` samples      blocks   stand in for the partition

    >>> from weft.comm import run_ranks
    >>> from weft.graph import karate
    >>> from weft.train.config import ParallelConfig
    >>> def work(comm):
    ...     shared = Shared(karate(), comm, ParallelConfig(strategy="2d", grid="2x2"))
    ...     A = shared.operator("mean")
    ...     return shared.collect(A @ torch.ones(len(shared.layout.ids), 3))[0].tolist()
    >>> run_ranks(work, 4, "threads")[0]
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        source: Graph | Store,
        comm: Communicator,
        options: Sharing,
        seed: int = 0,
        batches: Callable[[], Sampler | None] | None = None,
        blocks: Blocks | None = None,
    ):
        self.source, self.comm, self.options = source, comm, options
        self.grid, self.exchange = choose(
            options.strategy, comm.size, options.grid, options.replication, options.exchange
        )
        check_by_host(options.by_host, comm.hosts)
        self.blocks = assign(source, self.grid, options, seed, comm, batches) if blocks is None else blocks
        self.layout, self.owners = Rows(comm, self.blocks), ByBlocks(self.blocks)

    @property
    def sparse(self) -> bool:
        """Whether only rows that are read travel."""
        return self.exchange == "sparse"

    def operator(
        self,
        how: str = "gcn",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        data: Collection[str] = (),
    ) -> Operator:
        """A on the grid, normalised (`gcn`, `mean`, `none`, `loops`); `data` names what its arcs carry."""
        return Operator.build(
            self.source, self.comm, self.grid, how, self.exchange, self.blocks, dtype, self.options.overlap,
            self.options.move_adjacency, device, data, self.options.by_host != "off",
        )  # fmt: skip

    def read(self, key: str) -> Tensor | None:
        """This rank's rows of what the graph has by that name; None where it has no such array. [n_own, …]"""
        return self.layout.read(self.source, key)

    def collect(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, in the graph's order, on every rank."""
        return self.layout.collect(rows)

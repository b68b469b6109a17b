"""A subgraph over all ranks: V′ at their owners, and the halo plan restricted to what E′ reads.

    whole graph   rank p has rows V(p) of A, and reads need(p → q), rows of q's block       made once
    subgraph      rank p has rows V′ ∩ V(p) of A′, and reads those of q's that E′ names     made for each step

Algorithms 1 and 2 of Demirci et al. run on it as on the whole graph: one propagation of width w moves

    Σ over u in V′ of (λ(u) − 1) · w        λ(u) = ranks that own u or a row of A′ that reads u

words forward, and as many backward. Making the plan moves vertex numbers: each rank tells the others which of
their rows it reads, one number a row and one a rank (phase `plan`).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..graph.rows import index_dtype
from ..kernels import CSR
from .cutting import matrix_of
from .exchange import Exchange
from .fetch import ByBlocks
from .grid import Grid
from .layout import Rows
from .operator import Operator
from .propagate import FeatureLine, Plan, Sliced, Wrap
from .source import Arcs


class Restriction:
    """Makes operators of subgraphs, of vertices that are owned as `layout` says.

    >>> from weft.comm import run_ranks
    >>> from .blocks import Blocks
    >>> def work(comm):                                     # vertices 0, 1 | 2, 3; of them 1 and 2; arc 2 → 1
    ...     some = Restriction(Rows(comm, Blocks.even(4, Grid(2))))
    ...     rows = [0] if comm.rank == 0 else []
    ...     arcs = Arcs(torch.tensor(rows, dtype=torch.int64), torch.tensor([2] * len(rows)), None)
    ...     A = some.operator(torch.tensor([1 - comm.rank]), arcs, torch.float32)
    ...     return A.rows.tolist(), (A @ torch.full((1, 1), comm.rank + 5.0)).tolist()
    >>> run_ranks(work, 2, "threads")
    [([1], [[6.0]]), ([2], [[0.0]])]
    """

    def __init__(self, layout: Rows, overlap: bool = True):
        self.layout, self.overlap, self.owners = layout, overlap, ByBlocks(layout.blocks)
        grid, comm = Grid(layout.comm.size), layout.comm
        self._lines = {axis: grid.along(comm, axis) for axis in ("row", "inner", "feature")}
        self._index = index_dtype(layout.count)
        self._at = torch.zeros(layout.ids.numel(), dtype=torch.int64, device="cpu")
        self._dry = False

    def places(self, ids: Tensor) -> Tensor:
        """Where these vertices of this rank stand among the rows of the last operator. [m] → [m]"""
        return self._at[self.owners.find(ids)[1]]

    def operator(self, places: Tensor, arcs: Arcs, dtype: torch.dtype) -> Operator:
        """A′ from this rank's rows of it; every rank calls it.

            places  [m]  where the rows' vertices stand among the own ones, none twice: V′ ∩ V(p)
            arcs    E′ into them, by row (0 … m − 1), within a row by vertex

        `layout` of the operator is that of the whole graph: who owns which vertex.
        """
        line, blocks = self._lines["row"], self.layout.blocks
        count, me = places.numel(), line.rank
        self._at[places] = torch.arange(count, device="cpu")
        names_here = self.layout.ids[places]
        owner, place = self.owners.find(arcs.vertex.long())
        matrices: list[CSR | Sliced] = []
        need: list[Tensor] = []
        names: list[Tensor] = []
        for rank in range(line.size):
            here: Tensor | slice = owner == rank if line.size > 1 else slice(None)
            own = arcs.pick(here) if isinstance(here, Tensor) else arcs
            column = place[here]
            if rank == me:
                read, column, named = places, self._at[column], names_here
            else:
                read, column = torch.unique(column, return_inverse=True)
                named = blocks.numbering.vertices(blocks.offsets[rank] + read)
            need.append(read)
            names.append(named.to(self._index))
            shape = count, read.numel()
            matrices.append(matrix_of(arcs.row[here], column.to(self._index), own, shape, dtype))
        sizes = [count if rank == me else 0 for rank in range(line.size)]  # a sparse plan asks for the own
        rows = Exchange(line, sizes, need, self.overlap).within(self._at)
        plan = Plan(
            FeatureLine(self._lines["feature"], [count]), rows, Exchange(self._lines["inner"], [count]),
            matrices, names, names_here,
        )  # fmt: skip
        if self._dry:  # on lines that count already
            plan = plan.dry(lambda counting: counting)
            names_here = names_here.to("meta")
        out = Operator(plan, names_here, layout=self.layout)
        if self._dry:
            # Both look at numbers; one rank's kernels move nothing either way.
            out.__dict__.update(_square=False, _symmetric=False)
        return out

    def dry(self, wrap: Wrap) -> Restriction:
        """The same on lines that count: operators without numbers. What plans tell does travel."""
        out = copy.copy(self)
        out._lines = {axis: wrap(line) for axis, line in self._lines.items()}
        out._at, out._dry = self._at.clone(), True
        return out


def in_order(row: Tensor, vertex: Tensor, count: int) -> Tensor:
    """The order of arcs by row, within a row by vertex, of `count` vertices. [arcs] → [arcs] int64

    >>> in_order(torch.tensor([0, 1, 1]), torch.tensor([2, 3, 0]), 4).tolist()
    [0, 2, 1]
    """
    return torch.argsort(row.long() * count + vertex.long())

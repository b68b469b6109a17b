"""Inference layer by layer: rows of all vertices of one layer, then of the next; memory that does not grow.

    h_0 = x on disk      rows of this rank's vertices
    for every layer      for some own vertices at a time: whom they read (`Sampler`, every neighbour),
                         their rows of h_{l-1} (`Fetch`, from their owners), the layer, rows of h_l to disk

How many vertices at a time follows from the memory that may be used. Every rank makes the same number of
steps, since rows travel in them; one that is done early has none to ask for.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..comm import Communicator
from ..errors import UserError
from ..nn import Model
from ..nn.models import hops_of
from ..paged import Paged
from ..parallel import Fetch, Owners
from .block import Block
from .sampler import Sampler

_ID = 16
"""Bytes of numbering for every vertex and arc of a step."""
_FILL = 1 << 24
"""Bytes of features that are copied to disk at a time."""


class Scroll:
    """[rows, width] numbers in a file without a name: what is not in use need not be in memory.

    >>> scroll = Scroll(3, 2, torch.float32)
    >>> scroll.rows[1] = torch.tensor([5.0, 6.0])
    >>> scroll.rest()
    >>> scroll.rows[1].tolist()
    [5.0, 6.0]
    """

    def __init__(self, rows: int, width: int, dtype: torch.dtype):
        self.width = width
        size = rows * width * dtype.itemsize
        kind = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
        self._map: Paged | None = None
        if not size:
            self.rows = torch.empty(rows, width, dtype=dtype, device="cpu")
            return
        self._map = Paged.make(size)
        self.rows = torch.from_numpy(np.frombuffer(self._map, dtype=kind).reshape(rows, width))

    def rest(self) -> None:
        """Give the memory of its pages back; their numbers stay in the file."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


Apply = Callable[[list[Block], Tensor], Tensor]
"""(blocks of some vertices, that of the input first; rows of all its sources) → the vertices' new rows."""


class Pages:
    """One pass over the own vertices, some at a time.

    sampler   with every neighbour, one fan-out a hop        owners, comm   who has whose rows
    memory    bytes that a step may take
    """

    def __init__(self, sampler: Sampler, owners: Owners, comm: Communicator, memory: int):
        self.sampler, self.owners, self.comm, self.memory = sampler, owners, comm, memory
        self.own = owners.own(comm.rank)

    def run(self, h: Scroll, out: Scroll, apply: Apply, wide: int) -> None:
        """out = apply(h), row by row. `wide`: columns that a step holds of every source, beside h's."""
        index = self.sampler.topology.indices.dtype
        pieces = self._pieces(h, out, wide)
        steps = max(self.comm.all_gather_json(len(pieces)))
        for step in range(steps):
            begin, end = pieces[step] if step < len(pieces) else (0, 0)
            blocks = self.sampler.blocks(self.own[begin:end].to(index), step=0)
            rows = Fetch(self.comm, self.owners, blocks[0].sources, distinct=True).rows(h.rows)
            out.rows[begin:end] = apply(blocks, rows)
            h.rest()
            out.rest()

    def _pieces(self, h: Scroll, out: Scroll, wide: int) -> list[tuple[int, int]]:
        """[begin, end) of own vertices whose step fits: each reads as many rows as it has arcs, at most."""
        size = h.rows.element_size()
        row = size * (h.width + wide) + _ID
        reads = self._reads()
        cost = (reads * row + size * (out.width + wide)).tolist()
        pieces, begin, taken = [], 0, 0.0
        for k, each in enumerate(cost):
            if each > self.memory:
                raise UserError(
                    f"vertex {int(self.own[k])} reads {int(reads[k]):,} rows, "
                    f"which take {int(each):,} bytes; {self.memory:,} may be used. Allow more."
                )
            if taken + each > self.memory:
                pieces.append((begin, k))
                begin, taken = k, 0.0
            taken += each
        return [*pieces, (begin, len(cost))] if cost else []

    def _reads(self) -> Tensor:
        """[n_own]: a bound of the rows that each own vertex reads, itself among them."""
        topology, n = self.sampler.topology, self.sampler.topology.num_nodes
        mine = self.own if topology.row_of is None else topology.row_of.find(self.own)
        near = (topology.indptr[mine + 1] - topology.indptr[mine] + 1).double()
        if len(self.sampler.fanouts) == 1:
            return near
        # Of several hops the average degree says what is behind a neighbour; a step cannot be above n rows.
        here = torch.tensor(
            [topology.indices.numel(), topology.indptr.numel() - 1], dtype=torch.float64, device="cpu"
        )
        arcs, rows = self.comm.all_reduce(here, phase="count").tolist()
        return (near * (1 + arcs / max(rows, 1)) ** (len(self.sampler.fanouts) - 1)).clamp(max=n)


def fill(rows: int, width: int, dtype: torch.dtype, read: Callable[[slice], Tensor]) -> Scroll:
    """A scroll of what `read` gives, some rows at a time."""
    out = Scroll(rows, width, dtype)
    step = max(1, _FILL // max(1, width * dtype.itemsize))
    for begin in range(0, rows, step):
        piece = slice(begin, min(begin + step, rows))
        out.rows[piece] = read(piece).to(dtype)
        out.rest()
    return out


def widest(layer: nn.Module) -> int:
    """Columns that a layer makes of a row at most, in all its products together."""
    return sum(p.shape[-1] for p in layer.parameters() if p.dim() == 2) or 0


def infer(
    model: Model, h: Scroll, make: Callable[[int], Sampler], owners: Owners, comm: Communicator, memory: int
) -> tuple[Scroll, Scroll]:
    """(embedding, result) of `model`, as `model.embed` gives them: [n_own, hidden] and [n_own, out].

        h      the input features of this rank's vertices; it is read, and then forgotten
        make   hops → a sampler with every neighbour of so many hops

    >>> from weft.comm.threads import single
    >>> from weft.graph import sbm
    >>> from weft.nn import ModelConfig, build
    >>> from weft.parallel import Blocks, ByBlocks, Grid
    >>> from .sampler import ALL
    >>> from .topology import Topology, reads_of
    >>> graph = sbm(nodes=30, classes=3, features=4)
    >>> model = build(ModelConfig("gcn", hidden=8), 4, 3)
    >>> arcs = Topology.read(graph, reads_of(model))
    >>> x = fill(30, 4, torch.float32, lambda piece: graph.features[piece])
    >>> owners = ByBlocks(Blocks.even(30, Grid(1)))
    >>> make = lambda hops: Sampler(arcs, [ALL] * hops, seed=0)
    >>> [tuple(s.rows.shape) for s in infer(model, x, make, owners, single(), memory=100_000)]
    [(30, 8), (30, 3)]
    """
    model.eval()
    embedding = h
    with torch.no_grad():
        for depth, layer in enumerate(model.layers):
            last = depth == len(model.layers) - 1
            embedding = h if last else embedding
            out = Scroll(h.rows.shape[0], model.widths[depth + 1], h.rows.dtype)
            pages = Pages(make(hops_of(layer)), owners, comm, memory)

            def apply(blocks: list[Block], rows: Tensor, depth: int = depth) -> Tensor:
                path: Any = [block.compact() for block in blocks]
                return model.one(depth, path, rows)

            pages.run(h, out, apply, widest(layer))
            h = out
    return embedding, h

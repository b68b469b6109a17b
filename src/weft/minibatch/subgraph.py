"""Subgraphs that all ranks draw alike (Demirci et al., mini-batch training): each rank draws its own rows.

    kind       V′                                         E′
    vertices   the drawn vertices                         arcs between them
    seeds      the drawn ones, and whom they reach        picked hop by hop, at most `fanout` a row
    walks      all that walks from the drawn ones pass    arcs between them
    edges      the ends of drawn arcs                     the drawn arcs

What is picked follows from (seed, step, hop, vertex), so (V′, E′) depends neither on ranks nor on partitions.
A row is picked by its owner. Of `vertices` everybody knows V′, and nothing travels; else who is reached is
told to the owners, hop by hop (phase `frontier`), and V′ of walks to everybody (phase `sample`). Arcs are
numbered by row: of a drawn one everybody knows the row, and its owner whom it reads. Walks go
against the arcs, as reading does; two that meet in one step go on together. Entries are those of sampled
blocks: a row that lost arcs stands for the whole one (`Reads.scaled`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import unknown
from ..kernels import Stream, sample_rows
from ..kernels.sampling import ALL, Picked
from ..parallel import Owners
from ..parallel.propagate import Wrap
from ..parallel.source import Arcs
from ..parallel.subgraph import in_order
from .sampler import HOPS, Carried, Sampler
from .topology import Topology

KINDS = ("vertices", "seeds", "walks", "edges")


@dataclass(frozen=True, eq=False)
class Share:
    """A rank's rows of (V′, E′)."""

    places: Tensor
    """[m] where its vertices of V′ stand among its own, none twice."""
    arcs: Arcs
    """E′ into them: by row, within a row by vertex."""


class Subgraphs:
    """(V′, E′) above drawn vertices.

        topology  the rows of the own vertices, or all of them where one rank draws alone
        kind      one of `KINDS`
        fanouts   of seeds: neighbours a row, the first next to the seeds;   length  of walks: arcs
        starts    [n + 1], of edges: the arcs into row v are starts[v]..starts[v + 1] - 1

    >>> from weft.comm.threads import single
    >>> from weft.graph import Graph
    >>> from weft.parallel import Cyclic
    >>> from .topology import Reads
    >>> topology = Topology.read(Graph.from_arcs([0, 1, 2], [1, 2, 3]), Reads("none", scaled=False))
    >>> both = Subgraphs(topology, "vertices", [], 0, Cyclic(4, 1), single())
    >>> share = both.draw(torch.tensor([1, 2]), step=0)
    >>> share.places.tolist(), share.arcs.row.tolist(), share.arcs.vertex.tolist()
    ([1, 2], [1], [1])
    """

    def __init__(
        self, topology: Topology, kind: str, fanouts: Sequence[int], seed: int, owners: Owners,
        comm: Communicator, length: int = 0, starts: Tensor | None = None,
    ):  # fmt: skip
        if kind not in KINDS:
            raise unknown("subgraph", kind, KINDS)
        if kind == "edges" and starts is None:
            raise ValueError("edges are drawn by number: give the number of each row's first, `starts`")
        self.kind, self.fanouts, self.length = kind, list(fanouts), length
        self.seed, self.owners, self.comm, self.starts = seed, owners, comm, starts
        self.sampler = Sampler(topology, self.fanouts, seed, owners=owners, comm=comm)
        self.vertices = owners.own(comm.rank)
        self._seen = torch.zeros(self.vertices.numel(), dtype=torch.bool, device="cpu")

    def dry(self, wrap: Wrap) -> Subgraphs:
        """The same draws on a line that counts: vertex numbers travel, nothing else is here."""
        out = copy.copy(self)
        out.comm, out.sampler, out._seen = wrap(self.comm), self.sampler.dry(wrap), self._seen.clone()
        return out

    def draw(self, drawn: Tensor, step: int) -> Share:
        """This rank's rows of the subgraph of these vertices (of edges: arcs), the same on every rank, none
        twice."""
        if self.kind == "edges":
            return self._share(self._between(drawn, step))
        owner, place = self.owners.find(drawn)
        mine = place[owner == self.comm.rank]
        if self.kind == "seeds":
            return self._share(self._spread(mine, step))
        known = drawn
        if self.kind == "walks":
            mine, known = self._walk(mine, step)
        known = known.sort().values
        return self._share([(mine, *self._pick(mine, ALL, step, 0, lambda ids: _among(ids, known)))])

    def _pick(
        self, places: Tensor, fanout: int, step: int, hop: int,
        among: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Picked, Carried]:  # fmt: skip
        key = Stream(self.seed, step, HOPS + hop).key
        return self.sampler.pick(places, self.vertices[places], fanout, key, among)

    def _spread(self, frontier: Tensor, step: int) -> list[tuple[Tensor, Picked, Carried]]:
        """Hop by hop; a row is picked when it is reached first, and those of the last hop read nobody."""
        rows = []
        self._seen.zero_()
        for hop, fanout in enumerate([*self.fanouts, 0]):
            self._seen[frontier] = True
            picked, carried = self._pick(frontier, fanout, step, hop)
            rows.append((frontier, picked, carried))
            if hop < len(self.fanouts):
                reached = self._tell(torch.unique(picked.neighbours))
                frontier = reached[~self._seen[reached]]
        return rows

    def _between(self, drawn: Tensor, step: int) -> list[tuple[Tensor, Picked, Carried]]:
        """The rows that drawn arcs go into, with these arcs; and whoever is only read, with none."""
        assert self.starts is not None
        own, loops = self.sampler.topology, int(self.sampler.topology.reads.loops)
        drawn = drawn.sort().values
        row = rows_of(drawn, self.starts)
        owner, place = self.owners.find(row)
        mine = owner == self.comm.rank
        place, nth = place[mine], (drawn - self.starts[row])[mine]
        rows, at = torch.unique(place, return_inverse=True)
        degree = own.indptr[rows + 1] - own.indptr[rows]
        begin = (degree + loops).cumsum(0) - degree - loops
        there = nth < degree[at]  # a stored loop is always read, and no arc of the topology: it stands last

        def chosen(ids: Tensor) -> Tensor:
            stays = torch.zeros(ids.numel(), dtype=torch.bool, device="cpu")
            stays[(begin[at] + nth)[there] + loops] = True
            if loops:
                stays[begin] = True
            return stays

        picked, carried = self._pick(rows, ALL, step, 0, chosen)
        reached = self._tell(torch.unique(picked.neighbours))
        self._seen.zero_()
        self._seen[rows] = True
        read = reached[~self._seen[reached]]
        return [(rows, picked, carried), (read, *self._pick(read, 0, step, 1))]

    def _walk(self, frontier: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """(V′ ∩ V(p) by its places, V′). *frontier: walkers to the owners; sample: V′ to everybody*"""
        comm, own = self.comm, self.sampler.topology
        self._seen.zero_()
        self._seen[frontier] = True
        for hop in range(self.length):
            key = Stream(self.seed, step, HOPS + hop).key
            picked = sample_rows(own.indptr, own.indices, frontier, self.vertices[frontier], 1, key)
            frontier = self._tell(torch.unique(picked.neighbours))
            self._seen[frontier] = True
        places = self._seen.nonzero().ravel()
        ids = self.vertices[places].to(own.indices.dtype)
        sizes = comm.all_gather(torch.tensor([ids.numel()], dtype=ids.dtype, device="cpu"), phase="sample")
        return places, comm.all_gather(ids, sizes.tolist(), phase="sample").long()

    def _tell(self, ids: Tensor) -> Tensor:
        """The own vertices that any rank reached, by their places, ascending. *frontier: to their owners*"""
        comm = self.comm
        owner, place = self.owners.find(ids.long())
        order = torch.argsort(owner, stable=True)
        give = torch.bincount(owner, minlength=comm.size)
        give[comm.rank] = 0
        others = order[owner[order] != comm.rank]
        one = [1] * comm.size
        take = comm.all_to_all(give.to(ids.dtype), one, one, phase="frontier").tolist()
        came = comm.all_to_all(place[others].to(ids.dtype), give.tolist(), take, phase="frontier")
        return torch.unique(torch.cat([place[owner == comm.rank], came.long()]))

    def _share(self, rows: list[tuple[Tensor, Picked, Carried]]) -> Share:
        places = torch.cat([at for at, _, _ in rows])
        counts = torch.cat([picked.indptr.diff() for _, picked, _ in rows])
        vertex = torch.cat([picked.neighbours for _, picked, _ in rows])
        row = torch.repeat_interleave(torch.arange(places.numel(), device="cpu"), counts)
        reads = self.sampler.topology.reads
        values = [values for _, _, (values, _) in rows]
        value: Tensor | None = None
        if values[0] is not None:
            value = torch.cat([v for v in values if v is not None])
        elif reads.how == "mean" and reads.values:
            value = 1 / counts.clamp(min=1).to(self.sampler.topology.dtype)[row]
        data = {name: torch.cat([found[name] for _, _, (_, found) in rows]) for name in rows[0][2][1]}
        order = in_order(row, vertex, self.sampler.topology.num_nodes)
        carried = {name: x if x.is_meta else x[order] for name, x in data.items()}
        return Share(places, Arcs(row, vertex[order], None if value is None else value[order], carried))

    def arcs(self, drawn: Tensor, step: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of E′ by the graph's vertices: the arcs into this rank's rows, without loops."""
        share = self.draw(drawn, step)
        rows, columns = self.vertices[share.places][share.arcs.row], share.arcs.vertex.long()
        apart = rows != columns
        return rows[apart].numpy(), columns[apart].numpy()


def rows_of(arcs: Tensor, starts: Tensor) -> Tensor:
    """The row that each arc goes into, where row v has the arcs starts[v]..starts[v + 1] - 1. [m] → [m]

    >>> rows_of(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 2, 4])).tolist()
    [0, 2, 2]
    """
    return torch.searchsorted(starts, arcs, right=True) - 1


def _among(ids: Tensor, known: Tensor) -> Tensor:
    """Which ids are among the known, ascending ones. [m] → [m] bool

    >>> _among(torch.tensor([3, 5]), torch.tensor([1, 5])).tolist()
    [False, True]
    """
    if not known.numel():
        return torch.zeros_like(ids, dtype=torch.bool)
    at = torch.searchsorted(known, ids.long()).clamp(max=known.numel() - 1)
    return known[at] == ids

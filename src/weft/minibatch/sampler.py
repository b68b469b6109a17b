"""k-hop neighbourhoods of seeds, all or sampled; over parts of the graph the frontier travels.

    hop of replicated arcs      pick neighbours of the frontier
    hop over parts   frontier   ids of the frontier to their owners
                     sample     picks per id, then the picked neighbours, back
                     weights    their entries of the matrix, where the layer needs them
                     arc data   what they carry, where the layer reads it; whole numbers: arc types

Features never travel here. The picks of a vertex follow from (seed, step, hop, vertex), so both ways give the
same blocks, on any number of ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError, unknown
from ..graph.guard import check_fits
from ..kernels import CSR, Stream, sample_block, sample_rows
from ..kernels.sampling import ALL, Picked
from ..parallel import Owners
from ..parallel.propagate import Wrap
from .block import Block
from .topology import Topology

Upto = Literal["targets", "picks", "labels"]
"""How much of a block is wanted: its targets; whom they read as well; and each of those once, as a source."""
HOPS = 1000
"""Streams of hops begin here: those of dropout are numbered by the few layers of a model."""
Carried = tuple[Tensor | None, dict[str, Tensor]]
"""(entries of the matrix or None, what arcs carry by name) of some picks."""
_MOST = 2**31 - 1
"""The largest fan-out: draws are numbered by 32 bits."""


def parse_fanouts(text: str) -> list[int]:
    """Fan-outs as people write them, the one next to the seeds first; `all` or -1 takes every neighbour.

    >>> parse_fanouts("25,10"), parse_fanouts("all, 5")
    ([25, 10], [-1, 5])
    """
    fanouts = []
    for word in text.split(","):
        word = word.strip().lower()
        try:
            number = ALL if word == "all" else int(word)
        except ValueError:
            number = 0
        if number < 1 and number != ALL:
            raise UserError(
                f"fan-out {word!r} in {text!r} is not a number from 1, nor all. Write --fanouts 25,10."
            )
        if number > _MOST:
            raise UserError(f"fan-out {word[:24]} is above {_MOST:,}. Write all for every neighbour.")
        fanouts.append(number)
    return fanouts


def fanouts_for(hops: int, fanouts: Sequence[int], layers: int | None = None) -> list[int]:
    """Check that there is a fan-out for every hop of a model of so many layers, by default one a hop.

    >>> fanouts_for(2, [25, 10])
    [25, 10]
    """
    if len(fanouts) != hops:
        told = ",".join("all" if f < 0 else str(f) for f in fanouts)
        wanted = ",".join(["25", *["10"] * (hops - 1)])
        fewer = f", or --layers {len(fanouts)}" if layers in (None, hops) else ""
        raise UserError(
            f"--fanouts {told} gives {len(fanouts)} of the {hops} hops that the model takes. "
            f"Use --fanouts {wanted}{fewer}."
        )
    return list(fanouts)


class Sampler:
    """Blocks above seeds.

        fanouts   neighbours a vertex, the first next to the seeds; ALL (-1): every one
        replace   whether a neighbour may be drawn twice
        owners, comm   where `topology` is a share: who has the rest

    >>> from weft.graph import karate
    >>> from .topology import Reads
    >>> sampler = Sampler(Topology.read(karate(), Reads("mean")), [3, 2], seed=0)
    >>> near, far = reversed(sampler.blocks(torch.tensor([0, 33]), step=0))
    >>> near.indptr.tolist(), near.sources[:2].tolist(), torch.equal(far.targets, near.sources)
    ([0, 3, 6], [0, 33], True)
    """

    def __init__(
        self,
        topology: Topology,
        fanouts: Sequence[int],
        seed: int,
        replace: bool = False,
        owners: Owners | None = None,
        comm: Communicator | None = None,
    ):
        if not topology.replicated and (owners is None or comm is None):
            raise ValueError("a share of the topology needs the owners of the rest, and a communicator")
        self.topology, self.fanouts, self.seed, self.replace = topology, list(fanouts), seed, replace
        self.owners, self.comm = owners, comm
        self._how = {
            "replace": replace,
            "loops": topology.reads.loops,
            "want_arcs": topology.values is not None or bool(topology.data),
        }
        self._moves = True
        self._lender: Sampler = self

    def beside(self) -> Sampler:
        """The same for another thread, with a scratch of its own.

        A block that finds its sources when asked does so in the thread of whoever asks: with this one's.
        """
        if not self.topology.replicated:
            raise ValueError("a sampler that asks others for arcs sends messages, in its rank's thread alone")
        _ = self._place  # made here, not by both threads at once
        out = copy.copy(self)
        out._lender = self
        del out.__dict__["_place"]
        return out

    @cached_property
    def _place(self) -> Tensor:
        """Scratch of the relabelling; who makes no blocks has none."""
        held = self.topology.indices
        return torch.zeros(self.topology.num_nodes + 1, dtype=held.dtype, device=held.device)

    def blocks(self, seeds: Tensor, step: int, upto: Upto = "labels") -> list[Block]:
        """The blocks of a batch, that of the input first, which is made up to what is wanted of it.

        One of picks finds its sources when asked; one of targets has no arcs.
        """
        if upto not in get_args(Upto):
            raise unknown("part of a block", upto, get_args(Upto))
        frontier = seeds.to(self.topology.indices.dtype)
        found: list[Block] = []
        for hop in range(len(self.fanouts) - 1):
            found.append(self.hop(frontier, step, hop, label=True))
            frontier = found[-1].sources
        if upto != "targets":
            found.append(self.hop(frontier, step, len(self.fanouts) - 1, label=upto == "labels"))
        else:
            none = torch.zeros(frontier.numel() + 1, dtype=torch.int64, device=frontier.device)
            empty = {name: x[:0] for name, x in self.topology.data.items()}
            found.append(self.block(frontier, none, frontier[:0], None, data=empty))
        return found[::-1]

    def dry(self, wrap: Wrap) -> Sampler:
        """The same, counting what it receives by a line that does; the same picks, which carry no numbers."""
        out = copy.copy(self)
        out._moves, out._lender = False, out
        out.comm = None if self.comm is None else wrap(self.comm)
        return out

    def hop(self, frontier: Tensor, step: int, hop: int, label: bool = False) -> Block:
        """One hop; `hop` 0 is next to the seeds. With `label` the sources are found in the same pass."""
        key = Stream(self.seed, step, HOPS + hop).key
        fanout, own, labels = self.fanouts[hop], self.topology, None
        if not own.replicated:
            picked, (values, data) = self._ask(frontier, fanout, key)
        elif label:
            self._check(frontier, fanout)
            picked, *labels = sample_block(
                own.indptr, own.indices, frontier, fanout, key, self._place, **self._how
            )
            values, data = self._carried(frontier, picked)
        else:
            picked, (values, data) = self.pick(frontier, frontier, fanout, key)
        return self.block(frontier, picked.indptr, picked.neighbours, values, labels, data)

    def block(
        self, targets: Tensor, indptr: Tensor, neighbours: Tensor, values: Tensor | None,
        labels: Sequence[Tensor] | None = None, data: dict[str, Tensor] | None = None,
    ) -> Block:  # fmt: skip
        """A block of arcs that somebody picked with a sampler like this one."""
        mean = self.topology.reads.how == "mean" and values is None
        return Block(targets, indptr, neighbours, values, mean, self._lender._place, labels, data or {})

    @property
    def with_values(self) -> bool:
        """Whether blocks carry entries of the matrix; every rank says the same."""
        reads = self.topology.reads
        unweighted_sum = reads.how in ("none", "loops") and reads.scaled
        return reads.values and (self.topology.values is not None or unweighted_sum)

    def pick(
        self, rows: Tensor, vertices: Tensor, fanout: int, key: int,
        among: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Picked, Carried]:  # fmt: skip
        """Sample rows that are at hand, with the entries of the matrix and what they carry.

        `among`: vertices → which of them may stay, [m] → [m] bool; a row stands for what is left of it.
        """
        self._check(rows, fanout)
        own = self.topology
        picked = sample_rows(own.indptr, own.indices, rows, vertices, fanout, key, **self._how)
        picked = picked if among is None else _only(picked, among(picked.neighbours))
        return picked, self._carried(rows, picked)

    def _carried(self, rows: Tensor, picked: Picked) -> Carried:
        return self._values(rows, picked), self._data(rows, picked) if self.topology.data else {}

    def _check(self, rows: Tensor, fanout: int) -> None:
        if self.replace and fanout > 0:  # else there are no more picks than arcs
            own = self.topology
            held = 3 * own.indices.element_size() + 8 + own.dtype.itemsize
            held += sum(x[:1].numel() * x.element_size() for x in own.data.values())
            check_fits(
                held * fanout * rows.numel(), f"{fanout:,} draws for each of {rows.numel():,} vertices"
            )

    def _values(self, rows: Tensor, picked: Picked) -> Tensor | None:
        """The entries of the matrix at what was picked from `rows`, where the layer reads them."""
        if not self.with_values:
            return None
        own, reads = self.topology, self.topology.reads
        rows, count = rows.long(), picked.indptr.diff()
        if own.values is None:
            values = torch.ones(picked.neighbours.numel(), dtype=own.dtype, device=own.indices.device)
        elif own.values.numel():
            assert picked.arcs is not None
            values = own.values[picked.arcs.clamp(min=0)]
        else:
            values = own.values.new_zeros(picked.neighbours.numel())
        if reads.scaled:
            degree = own.indptr[rows + 1] - own.indptr[rows]
            scale = degree.to(values.dtype) / (count - int(reads.loops)).clamp(min=1).to(values.dtype)
            values = values * torch.repeat_interleave(scale, count)
        if reads.loops and (own.loops is not None or reads.how == "loops"):
            values[picked.indptr[:-1]] = 1.0 if own.loops is None else own.loops[rows]
        return values

    def _data(self, rows: Tensor, picked: Picked) -> dict[str, Tensor]:
        """What the picks from `rows` carry."""
        own, count, found = self.topology, picked.neighbours.numel(), {}
        for name, x in own.data.items():
            if not self._moves:
                found[name] = x.new_empty(count, *x.shape[1:], device="meta")
                continue
            assert picked.arcs is not None
            if x.shape[0]:
                found[name] = x.index_select(0, picked.arcs.clamp(min=0))
            else:
                found[name] = x.new_zeros(count, *x.shape[1:])
            if own.reads.loops:
                found[name][picked.indptr[:-1]] = own.loop_data[name][rows.long()]
        return found

    def _ask(self, frontier: Tensor, fanout: int, key: int) -> tuple[Picked, Carried]:
        """*group the frontier by owner; frontier: ids go; sample there; sample, weights, arc data: picks come
        back*"""
        comm, owners, m = self.comm, self.owners, frontier.numel()
        assert comm is not None
        assert owners is not None
        owner, place = owners.find(frontier.long())
        row_of = self.topology.row_of
        assert row_of is not None
        at_hand = row_of.at(owner, place) >= 0
        owner = torch.where(at_hand, comm.rank, owner)  # a copy here saves the journey
        by_owner = CSR(torch.arange(m + 1, device=owner.device), owner, None, (m, comm.size)).T
        order, need = by_owner.indices, by_owner.counts.tolist()
        one = [1] * comm.size
        give = comm.all_to_all(by_owner.counts.to(frontier.dtype), one, one, phase="frontier").tolist()
        asked = comm.all_to_all(frontier[order], need, give, phase="frontier")

        picked, (values, data) = self.pick(row_of.find(asked).to(asked.dtype), asked, fanout, key)

        counts = picked.indptr.diff()
        told = comm.all_to_all(counts.to(frontier.dtype), give, need, phase="sample").long()
        out = [int(part.sum()) for part in counts.split(give)]
        back = [int(part.sum()) for part in told.split(need)]
        neighbours = comm.all_to_all(picked.neighbours, out, back, phase="sample")
        came = None if values is None else comm.all_to_all(values, out, back, phase="weights")
        with_it = {name: comm.all_to_all(x, out, back, phase=phase_of(x)) for name, x in data.items()}

        # What came stands in the order of owners: put each row where its vertex stands in the frontier.
        begin = torch.zeros(m, dtype=torch.int64, device=frontier.device)
        begin[order] = told.cumsum(0) - told
        count = torch.empty_like(begin)
        count[order] = told
        indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        at = torch.arange(int(indptr[-1]), device=indptr.device) + torch.repeat_interleave(
            begin - indptr[:-1], count
        )
        carried = {name: _at(x, at) for name, x in with_it.items()}
        return Picked(indptr, neighbours[at], None), (None if came is None else came[at], carried)


def phase_of(data: Tensor) -> str:
    """The phase in which what arcs carry travels: numbers of the model's type apart from whole ones.

    >>> phase_of(torch.ones(1)), phase_of(torch.ones(1).long())
    ('arc data', 'arc types')
    """
    return "arc data" if data.is_floating_point() else "arc types"


def _only(picked: Picked, stays: Tensor) -> Picked:
    ends = torch.cat([picked.indptr.new_zeros(1), stays.cumsum(0)])
    arcs = None if picked.arcs is None else picked.arcs[stays]
    return Picked(ends[picked.indptr], picked.neighbours[stays], arcs)


def _at(x: Tensor, places: Tensor) -> Tensor:
    return x.new_empty(places.numel(), *x.shape[1:]) if x.is_meta else x.index_select(0, places)

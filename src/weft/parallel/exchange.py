"""The exchange of rows along one axis: a plan built once, with `gather` and its dual `reduce`.

Every rank of a line holds a block of rows, and reads rows of the others' blocks:

    need[p]   the rows of p's block that this rank reads;   None: all of them (dense)
    give[p]   the rows of this rank's block that p reads:   p's need, told once

    gather(x)    sends x[give[p]] to every p; yields p's x[need[p]] as they come, own block first
    reduce(...)  sends a partial result for need[p] to every p; adds what comes at give[p] to the own block

Dense is the plan in which everybody reads everything: no lists, no packing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..comm import Communicator, Request
from ..kernels import add_rows_, pack_rows
from ..memory import empty


class Exchange:
    """Rows along one axis.

        comm   the line's communicator
        sizes  rows of each rank's block
        need   per rank of the line the rows that this rank reads, ascending; None: the dense plan

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     line = Exchange(comm, [2, 1])
    ...     x = torch.full(([2, 1][comm.rank], 1), comm.rank + 1.0)
    ...     return {peer: block.ravel().tolist() for peer, block in line.gather(x)}
    >>> run_ranks(work, 2, "threads")
    [{0: [1.0, 1.0], 1: [2.0]}, {1: [2.0], 0: [1.0, 1.0]}]
    """

    def __init__(
        self,
        comm: Communicator,
        sizes: Sequence[int],
        need: Sequence[Tensor] | None = None,
        overlap: bool = True,
    ):
        self.comm, self.sizes, self.overlap = comm, list(sizes), overlap
        self.need: list[Tensor] | None = None
        self.give: list[Tensor] | None = None
        self.need_sizes = list(sizes)
        self.give_sizes = [sizes[comm.rank]] * comm.size
        if need is not None and comm.size > 1:
            self._plan(need)
        # Stage s: give to the rank s to the right, take from the rank s to the left: all links are busy.
        me, size = comm.rank, comm.size
        self._stages = [((me + s) % size, (me - s) % size) for s in range(1, size)]

    def _plan(self, need: Sequence[Tensor]) -> None:
        """Tell everybody which of their rows this rank reads; the own block is always whole."""
        comm, me = self.comm, self.comm.rank
        counts = [0 if p == me else rows.numel() for p, rows in enumerate(need)]
        told = torch.tensor(counts, device=need[0].device)
        asked = comm.all_to_all(told, [1] * comm.size, [1] * comm.size, phase="plan").tolist()
        lists = torch.cat([rows.to(torch.int64) for p, rows in enumerate(need) if p != me] or [told[:0]])
        given = comm.all_to_all(lists, counts, asked, phase="plan").split(asked)
        self.need = [rows.to(torch.int64) for rows in need]
        self.give = [rows.contiguous() for rows in given]
        self.need_sizes = [self.sizes[me] if p == me else c for p, c in enumerate(counts)]
        self.give_sizes = [self.sizes[me] if p == me else c for p, c in enumerate(asked)]

    def gather(self, x: Tensor, phase: str = "gather", mirror: bool = False) -> Iterator[tuple[int, Tensor]]:
        """(p, rows of p's block that this rank reads), own block first; the next block travels meanwhile.

        x       [own rows, w]
        block   [need_sizes[p], w], valid until the next one is asked for
        mirror  blocks come in the order in which `merge` asks for parts: for both at once
        """
        for p, (block,) in gather_together(self, [x], mirror, phase):
            yield p, block

    def deal(self, part: Callable[[int], Tensor], phase: str = "gather") -> Iterator[tuple[int, Tensor]]:
        """`gather` where each rank gets rows of its own: (p, what p gave for the rows of it that are read).

        part(p)  [give_sizes[p], w], asked for once each;   block  [need_sizes[p], w]
        """
        yield self.comm.rank, part(self.comm.rank)
        for target, source in self._stages:
            own = part(target)
            room = empty(self.need_sizes[source], own.shape[1], like=own)
            yield source, self.comm.iswap([own], target, [room], source, phase=phase).wait()[0]

    def reduce(self, partial: Callable[[int], Tensor], phase: str = "reduce") -> Tensor:
        """The own block of the sum over the line of everybody's partial results.

        partial(p)  [need_sizes[p], w], this rank's contribution to p's block; asked for once each,
                    the own one may be written to
        result      [own rows, w]
        """

        return self.merge(lambda p: (partial(p),), add_up, phase)[0]

    def merge(
        self,
        partial: Callable[[int], tuple[Tensor, ...]],
        absorb: Callable[[tuple[Tensor, ...], Tensor | None, tuple[Tensor, ...]], None],
        phase: str = "reduce",
    ) -> tuple[Tensor, ...]:
        """`reduce` over anything: `absorb(own, at, incoming)` takes what came for own rows `at` (None: all).

        *make and send the first part, make the own part while it travels, take in what comes; then stage by
        stage: make and send, wait, take in*
        """

        def post(stage: int) -> Request:
            target, source = self._stages[stage]
            parts = partial(target)
            incoming = [empty(self.give_sizes[source], part.shape[1], like=part) for part in parts]
            return self.comm.iswap(parts, target, incoming, source, phase=phase)

        # One part under way at a time: two would overlap more, and cost two more buffers (docs/log.md).
        first = post(0) if self._stages and self.overlap else None
        own = partial(self.comm.rank)
        for stage, (_, source) in enumerate(self._stages):
            at = None if self.give is None else self.give[source]
            absorb(own, at, (first or post(stage)).wait())
            first = None  # its buffers may be used again
        return own

    def within(self, at: Tensor) -> Exchange:
        """The same plan where the own block has some of its rows: row r of it stands at[r] now."""
        out = copy.copy(self)
        out.give = None if self.give is None else [at[rows] for rows in self.give]
        return out

    def to(self, device: torch.device | str) -> Exchange:
        """The same plan, its lists of rows on another device."""
        out = copy.copy(self)
        out.give = None if self.give is None else [rows.to(device) for rows in self.give]
        return out

    def dry(self, wrap: Callable[[Communicator], Communicator]) -> Exchange:
        """The same sizes on a line that counts what would move."""
        out = copy.copy(self)
        out.comm = wrap(self.comm)
        out.give = None if self.give is None else [rows.to("meta") for rows in self.give]
        return out


def add_up(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
    """`absorb` of a sum: every part that came is added to the own one, at its rows."""
    for whole, part in zip(own, incoming, strict=True):
        if at is None:
            whole.add_(part)
        else:
            add_rows_(whole, at, part)


def gather_together(
    exchange: Exchange, tensors: Sequence[Tensor], mirror: bool = False, phase: str = "gather"
) -> Iterator[tuple[int, list[Tensor]]]:
    """`gather` of several tensors in step: (p, [p's rows of each]).

    *post the first two, hand out the own blocks, then: wait, post the next, hand out*
    """
    plan, comm = exchange, exchange.comm
    stages = [(source, target) for target, source in plan._stages] if mirror else plan._stages
    largest = max((plan.need_sizes[source] for _, source in stages), default=0)
    buffers = [[empty(largest, x.shape[1], like=x) for x in tensors] for _ in range(min(2, len(stages)))]
    under_way: list[Request] = []

    def post(stage: int) -> None:
        if stage == len(under_way) < len(stages):
            target, source = stages[stage]
            room = [buffer[: plan.need_sizes[source]] for buffer in buffers[stage % 2]]
            packed = tensors if plan.give is None else [pack_rows(x, plan.give[target]) for x in tensors]
            under_way.append(comm.iswap(packed, target, room, source, phase=phase))

    if plan.overlap:
        post(0)
        post(1)
    yield comm.rank, list(tensors)
    for stage, (_, source) in enumerate(stages):
        post(stage)
        yield source, list(under_way[stage].wait())
        if plan.overlap:  # the buffers just used are free: the blocks after the next may travel into them
            post(stage + 2)

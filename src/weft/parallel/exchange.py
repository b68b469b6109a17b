"""The exchange of rows along one axis: a plan built once, with `gather` and its dual `reduce`.

Every rank of a line holds a block of rows, and reads rows of the others' blocks:

    need[p]   the rows of p's block that this rank reads;   None: all of them (dense)
    give[p]   the rows of this rank's block that p reads:   p's need, told once

    gather(x)    sends x[give[p]] to every p; yields p's x[need[p]] as they come, own block first
    reduce(...)  sends a partial result for need[p] to every p; adds what comes at give[p] to the own block

Dense is the plan in which everybody reads everything: no lists, no packing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..comm import Communicator, Request
from ..kernels import add_rows_, pack_rows
from ..kernels.memory import empty


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

    def gather(
        self, x: Tensor, phase: str = "gather", mirror: bool = False, tag: int = 0
    ) -> Iterator[tuple[int, Tensor]]:
        """(p, rows of p's block that this rank reads), own block first; the next block travels meanwhile.

            x       [own rows, w]
            block   [need_sizes[p], w], valid until the next one is asked for
            mirror  blocks come in the order in which `merge` asks for parts: for both at once

        *post the first two, hand out the own block, then: wait, post the next, hand out*
        """
        stages = [(source, target) for target, source in self._stages] if mirror else self._stages
        width = x.shape[1]
        largest = max((self.need_sizes[source] for _, source in stages), default=0)
        buffers = [empty(largest, width, like=x) for _ in range(min(2, len(stages)))]
        under_way: list[tuple[Request, Request]] = []

        def post(stage: int) -> None:
            if stage == len(under_way) < len(stages):
                target, source = stages[stage]
                room = buffers[stage % 2][: self.need_sizes[source]]
                take = self.comm.irecv(room, source, tag=tag, phase=phase)
                packed = x if self.give is None else pack_rows(x, self.give[target])
                under_way.append((take, self.comm.isend(packed, target, tag=tag, phase=phase)))

        if self.overlap:
            post(0)
            post(1)
        yield self.comm.rank, x
        for stage, (_, source) in enumerate(stages):
            post(stage)
            take, give = under_way[stage]
            yield source, take.wait()
            give.wait()
            if self.overlap:  # the buffer just used is free: the block after the next may travel into it
                post(stage + 2)

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
        sends: list[tuple[list[Request], tuple[Tensor, ...]]] = []
        receives: list[tuple[int, list[Request]]] = []

        def post(stage: int) -> None:
            target, source = self._stages[stage]
            parts = partial(target)
            incoming = [empty(self.give_sizes[source], part.shape[1], like=part) for part in parts]
            receives.append(
                (source, [self.comm.irecv(x, source, tag=t, phase=phase) for t, x in enumerate(incoming)])
            )
            sends.append(
                ([self.comm.isend(x, target, tag=t, phase=phase) for t, x in enumerate(parts)], parts)
            )

        def take(stage: int) -> None:
            source, requests = receives[stage]
            incoming = tuple(request.wait() for request in requests)
            absorb(own, None if self.give is None else self.give[source], incoming)
            for request in sends[stage][0]:
                request.wait()
            # Both buffers may be used again.
            receives[stage], sends[stage] = (source, []), ([], ())

        # One part under way at a time: two would overlap more, and cost two more buffers (docs/log.md).
        if self._stages and self.overlap:
            post(0)
        own = partial(self.comm.rank)
        for stage in range(len(self._stages)):
            if stage or not self.overlap:
                post(stage)
            take(stage)
        return own


def add_up(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
    """`absorb` of a sum: every part that came is added to the own one, at its rows."""
    for whole, part in zip(own, incoming, strict=True):
        if at is None:
            whole.add_(part)
        else:
            add_rows_(whole, at, part)


def gather_together(
    exchange: Exchange, tensors: Sequence[Tensor], mirror: bool = False
) -> Iterator[tuple[int, list[Tensor]]]:
    """`gather` of several tensors in step: (p, [p's rows of each])."""
    streams = [exchange.gather(x, mirror=mirror, tag=8 + t) for t, x in enumerate(tensors)]
    for found in zip(*streams, strict=True):
        yield found[0][0], [block for _, block in found]

"""The exchange of rows along one axis: a plan built once, with `gather` and its dual `reduce`.

Every rank of a line holds a block of rows, and reads rows of the others' blocks:

    need[p]   the rows of p's block that this rank reads;   None: all of them (dense). Told, and not kept
    give[p]   the rows of this rank's block that p reads:   p's need, told once

    gather(x)    sends x[give[p]] to every p; yields p's x[need[p]] as they come, own block first
    reduce(...)  sends a partial result for need[p] to every p; adds what comes at give[p] to the own block
    sum_up(...)  `reduce` of products: each part travels while the next is made, the last one while the own is

Dense is the plan in which everybody reads everything: no lists, no packing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from ..comm import Communicator, Request
from ..kernels import add_rows_, pack_rows
from ..memory import empty

LARGE = 1 << 22
"""Bytes of a part from which on its two halves travel by themselves (`Exchange.sum_up`)."""


class Exchange:
    """Rows along one axis.

        comm   the line's communicator
        sizes  rows of each rank's block
        need   per rank of the line the rows that this rank reads, ascending; None: the dense plan. The own
               ones are not looked at: that block is whole

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
        self.give = [rows.contiguous() for rows in given]
        self.need_sizes = [self.sizes[me] if p == me else c for p, c in enumerate(counts)]
        self.give_sizes = [self.sizes[me] if p == me else c for p, c in enumerate(asked)]

    def gather(self, x: Tensor, phase: str = "gather", mirror: bool = False) -> Iterator[tuple[int, Tensor]]:
        """(p, rows of p's block that this rank reads), own block first; the next block travels meanwhile.

        x       [own rows, w]
        block   [need_sizes[p], w], valid until the next one is asked for
        mirror  blocks come in the order in which `merge` asks for parts: for both at once
        """
        for p, (block,) in self.gather_together([x], mirror, phase):
            yield p, block

    def gather_together(
        self, tensors: Sequence[Tensor], mirror: bool = False, phase: str = "gather"
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """`gather` of several tensors in step: (p, [p's rows of each]).

        *post the first two, or all where memory allows; hand out the own blocks; then: wait, post the next,
        hand out*
        """
        comm = self.comm
        stages = [(source, target) for target, source in self._stages] if mirror else self._stages
        sizes = [self.need_sizes[source] for _, source in stages]
        together = self.overlap and self.at_once(sum(x.shape[1] * x.element_size() for x in tensors))
        ahead = len(stages) if together else min(2, len(stages))
        room = sum(sizes) if together else max(sizes, default=0)
        buffers = [
            [empty(room, x.shape[1], like=x) for x in tensors] for _ in range(1 if together else ahead)
        ]
        under_way: list[Request] = []

        def post(stage: int) -> None:
            if stage == len(under_way) < len(stages):
                target, source = stages[stage]
                begin = sum(sizes[:stage]) if together else 0
                where = buffers[0 if together else stage % 2]
                rooms = [buffer[begin : begin + sizes[stage]] for buffer in where]
                packed = tensors if self.give is None else [pack_rows(x, self.give[target]) for x in tensors]
                under_way.append(comm.iswap(packed, target, rooms, source, phase=phase))

        if self.overlap:
            for stage in range(ahead):
                post(stage)
        yield comm.rank, list(tensors)
        for stage, (_, source) in enumerate(stages):
            post(stage)
            yield source, list(under_way[stage].wait())
            if self.overlap:  # the buffers just used are free: the blocks after the next may travel into them
                post(stage + 2)

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
        The first part alone travels while another is made; `sum_up` overlaps all of them, and only adds.

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

    def sum_up(
        self,
        part: Callable[[int, int, int], Tensor],
        own: Callable[[Tensor | None], Tensor],
        like: Tensor,
        halve: bool = True,
        phase: str = "reduce",
    ) -> Tensor:
        """`reduce` where parts can be made piece by piece: every transfer is under way while a product runs.

            part(p, begin, end)  [end − begin, w], rows of this rank's contribution to p's block
            own(out)             this rank's contribution to its own block, added to `out`; new where None
            like                 a tensor of w columns: width, type and device
            result               [own rows, w]

        A part of more than `LARGE` bytes goes in two halves (unless not `halve`): one travels while the other
        is made, so that with what comes 1.5 blocks are held. A smaller one goes whole: 3 small blocks, one
        message.

        *make the first piece; then: post it, make the next one, wait, take in; the own part is made while the
        last one travels.* Where all may be under way at once nobody waits before the own part is made.
        """
        width, size = like.shape[1], like.shape[1] * like.element_size()

        def cut(rows: int) -> list[tuple[int, int]]:
            """Both sides of a message cut its rows alike."""
            middle = -(-rows // 2)
            return [(0, middle), (middle, rows)] if halve and rows * size > LARGE else [(0, rows)]

        # Where one side of a stage has a half more than the other, that other side has nothing (None) then.
        pieces = [
            (target, give, source, take)
            for target, source in self._stages
            for give, take in zip_longest(cut(self.need_sizes[target]), cut(self.give_sizes[source]))
        ]
        if not pieces:
            return own(None)
        first = self._stages[0][1]  # dense: its rows are the first in the sum, so they come where they stay
        # Sparse: the own part begins the sum where it is made before anything is taken in.
        total = empty(self.sizes[self.comm.rank], width, like=like) if self.give is None else None

        def make(piece: int) -> Tensor:
            target, rows, _, _ = pieces[piece]
            return like.new_empty(0, width) if rows is None else part(target, *rows)

        def take_in(total: Tensor, source: int, begin: int, end: int, room: Tensor) -> None:
            if self.give is not None:
                add_rows_(total, self.give[source][begin:end], room)
            elif source != first:
                total[begin:end].add_(room)

        made: Tensor | None = make(0)
        together = self.at_once(size)  # without overlap as well: sums are then taken in one order
        posted: list[tuple[Request, int, int, int, Tensor]] = []
        for piece, (target, _, source, rows) in enumerate(pieces):
            begin, end = rows or (0, 0)
            stays, last = self.give is None and source == first, piece + 1 == len(pieces)
            room = total[begin:end] if stays and total is not None else empty(end - begin, width, like=like)
            assert made is not None
            request = self.comm.iswap([made], target, [room], source, phase=phase)
            if not self.overlap:
                request.wait()
            made = None if last else make(piece + 1)
            mine: Tensor | None = None
            if last:
                mine = own(None if stays else total)
                total = mine if total is None else total
            posted.append((request, source, begin, end, room))
            del request, room
            while posted and (last or not together):
                oldest, peer, start, stop, came = posted.pop(0)
                oldest.wait()
                if total is None:
                    total = empty(self.sizes[self.comm.rank], width, like=like).zero_()
                take_in(total, peer, start, stop, came)
                del oldest, came  # their memory serves the next piece
            if stays and mine is not None and total is not None:
                total.add_(mine)
        assert total is not None
        return total

    def at_once(self, size: int) -> bool:
        """Whether all of a sparse exchange may be under way together, `size` bytes a row: what comes and goes
        is little, or no more than two own blocks, which is what staged exchanges hold."""
        me = self.comm.rank
        rows = sum(self.need_sizes) + sum(self.give_sizes) - self.need_sizes[me] - self.give_sizes[me]
        return self.give is not None and rows * size <= max(LARGE, 2 * self.sizes[me] * size)

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

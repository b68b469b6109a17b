"""The exchange of rows where ranks share hosts: what several ranks of a host read crosses to it once.

    hosts    A, B, … of R ranks each on this line; rank j of a host is its j-th
    U(p, B)  the rows of p's block that any rank of host B reads:  ∪ over q in B of need_q[p]

    gather   p = A's j-th sends x[U(p, B)] to B's j-th, once;      that one passes on need_q[p] to each q of B
    reduce   every q of B hands its part for p to B's j-th;        that one adds them up, and sends p the sum

Between hosts travel Σ |U(p, B)| rows where the direct way has Σ Σ_q |need_q[p]|, in 1/R of the messages; what
is passed on stays within a host and is counted as phase `host`. Ranks of one host exchange directly. What is
no sum (`merge` of anything else, `deal`) goes the direct way, host by host.

Stages go by host: first the own one's, then the t-th to the right, each j-th rank to each j-th.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial as later
from typing import NamedTuple

import torch
from torch import Tensor

from ..comm import Communicator, Request
from ..errors import UserError, unknown
from ..kernels import add_rows_, pack_rows
from ..memory import empty
from .exchange import Exchange, add_up

BY_HOST = ("auto", "on", "off")
PHASE = "host"
"""What ranks of one host pass on to each other."""


def groups_of(hosts: Sequence[int]) -> list[list[int]] | None:
    """The ranks of each host, in the order of their first ones; None where there is nothing to share: of one
    host, hosts of one rank, or of different numbers of ranks.

    >>> groups_of([7, 7, 9, 9]), groups_of([0, 1, 0, 1])
    ([[0, 1], [2, 3]], [[0, 2], [1, 3]])
    >>> groups_of([0, 0]), groups_of([0, 1]), groups_of([0, 0, 1])
    (None, None, None)
    """
    found: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    groups = list(found.values())
    ranks = len(groups[0])
    return groups if len(groups) > 1 and ranks > 1 and all(len(g) == ranks for g in groups) else None


def check_by_host(asked: str, hosts: Sequence[int] | None = None) -> None:
    """Refuse `--by-host` where it is no choice, or where the hosts of these ranks share nothing.

    >>> check_by_host("auto", [0, 0])
    """
    if asked not in BY_HOST:
        raise unknown("value of --by-host", asked, BY_HOST)
    if asked == "on" and hosts is not None and groups_of(hosts) is None:
        found = Counter(hosts).values()
        raise UserError(
            f"--by-host on needs two hosts or more with as many ranks each, at least two; these have "
            f"{', '.join(map(str, found))}. Leave it out."
        )


def exchange_along(
    comm: Communicator, sizes: Sequence[int], need: Sequence[Tensor] | None, overlap: bool, by_host: bool
) -> Exchange:
    """The exchange of a line: by host where that is asked for and its hosts have ranks to share."""
    kind = ByHost if by_host and groups_of(comm.hosts) else Exchange
    return kind(comm, sizes, need, overlap)


class Crossing(NamedTuple):
    """How many rows a rank exchanges with another host, and which.

    out     |U(me, B)|, own rows that host B reads;           rows  which; None: all of them
    taken   |U(p, me)|, rows of p, the j-th of B, that come;  read  [R] where each rank of this host finds the
                                                                    rows that it reads among them; None: all
    """

    out: int
    rows: Tensor | None
    taken: int
    read: list[Tensor] | None

    def moved(self, change: Callable[[Tensor], Tensor]) -> Crossing:
        """The same with other tensors."""
        return Crossing(
            self.out,
            None if self.rows is None else change(self.rows),
            self.taken,
            None if self.read is None else [change(at) for at in self.read],
        )


class ByHost(Exchange):
    """Rows along a line whose ranks share hosts (`comm.hosts`).

    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     comm.hosts = [0, 0, 1, 1]
    ...     line = ByHost(comm, [1, 1, 1, 1])
    ...     x = torch.full((1, 1), comm.rank + 1.0)
    ...     return [peer for peer, _ in line.gather(x)], line.reduce(lambda p: x.clone()).item()
    >>> run_ranks(work, 4, "threads")[0]
    ([0, 1, 2, 3], 10.0)
    """

    def __init__(
        self,
        comm: Communicator,
        sizes: Sequence[int],
        need: Sequence[Tensor] | None = None,
        overlap: bool = True,
    ):
        super().__init__(comm, sizes, need, overlap)
        groups = groups_of(comm.hosts)
        if groups is None:
            raise ValueError(f"hosts {list(comm.hosts)} share nothing")
        here = next(h for h, group in enumerate(groups) if comm.rank in group)
        self._here, self._count = groups[here], len(groups)
        self._place, ranks = self._here.index(comm.rank), len(self._here)
        me = self._place
        self._near = [(self._here[(me + s) % ranks], self._here[(me - s) % ranks]) for s in range(1, ranks)]
        self._far = [
            (groups[(here + t) % self._count], groups[(here - t) % self._count])
            for t in range(1, self._count)
        ]
        self._stages = self._near + [
            (there[(me + i) % ranks], back[(me - i) % ranks])
            for there, back in self._far
            for i in range(ranks)
        ]
        own = self.sizes[comm.rank]
        self._crossings = {
            group[0]: Crossing(own, None, self.sizes[group[me]], None) for group, _ in self._far
        }
        if self.give is not None:
            assert need is not None
            self._unite(need, self.give)

    def _unite(self, need: Sequence[Tensor], give: Sequence[Tensor]) -> None:
        """Tell the ranks of this host what they are to pass on to this one; both ends find the unions."""
        comm = self.comm
        hosts = [there for there, _ in self._far]
        told = [0] * comm.size
        lists = []
        for i, peer in enumerate(self._here):
            read = [need[there[i]].to(torch.int64) for there in hosts]
            told[peer] = sum(rows.numel() for rows in read)
            lists += read
        like = need[0]
        counts = like.new_tensor([x.numel() for x in lists], dtype=torch.int64)
        each = [len(hosts) if p in self._here else 0 for p in range(comm.size)]
        came_counts = comm.all_to_all(counts, each, each, phase="plan").view(len(self._here), -1)
        sizes = [0] * comm.size
        for i, peer in enumerate(self._here):
            sizes[peer] = int(came_counts[i].sum())
        came = comm.all_to_all(torch.cat(lists), told, sizes, phase="plan").split(
            came_counts.ravel().tolist()
        )
        for h, there in enumerate(hosts):
            read = [came[i * len(hosts) + h] for i in range(len(self._here))]
            union = torch.unique(torch.cat(read))
            rows = torch.unique(torch.cat([give[p] for p in there]))
            at = [torch.searchsorted(union, x) for x in read]
            self._crossings[there[0]] = Crossing(rows.numel(), rows, union.numel(), at)

    @property
    def crossings(self) -> list[Crossing]:
        """Of each other host, the next one first."""
        return [self._crossings[there[0]] for there, _ in self._far]

    # One host to another.

    def _cross(
        self, give: Sequence[Tensor], to: list[int], take: Sequence[Tensor], back: list[int], phase: str
    ) -> Request:
        request = self.comm.iswap(give, to[self._place], take, back[self._place], phase=phase)
        if not self.overlap:
            request.wait()
        return request

    def gather_together(
        self, tensors: Sequence[Tensor], mirror: bool = False, phase: str = "gather"
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """*post what crosses to the next host; hand out the own blocks, then those of this host; then, host
        by host: wait, post the next, pass on and hand out*"""

        def pack(rows: Tensor | None) -> Sequence[Tensor]:
            return tensors if rows is None else [pack_rows(x, rows) for x in tensors]

        def room(rows: int) -> list[Tensor]:
            return [empty(rows, x.shape[1], like=x) for x in tensors]

        far = [(back, there) for there, back in self._far] if mirror else self._far
        near = [(source, target) for target, source in self._near] if mirror else self._near
        under_way: list[Request] = []

        def post(stage: int) -> None:
            if stage == len(under_way) < len(far):
                to, back = far[stage]
                out, take = self._crossings[to[0]], room(self._crossings[back[0]].taken)
                under_way.append(self._cross(pack(out.rows), to, take, back, phase))

        def direct(target: int, source: int) -> tuple[int, Request]:
            give = pack(None if self.give is None else self.give[target])
            return source, self.comm.iswap(give, target, room(self.need_sizes[source]), source, phase=phase)

        if self.overlap:
            post(0)
        yield self.comm.rank, list(tensors)
        yield from self._ahead([later(direct, *pair) for pair in near])
        for stage, (_, owners) in enumerate(far):
            post(stage)
            came: list[Tensor] = list(under_way[stage].wait())
            if self.overlap:
                post(stage + 1)
            yield from self._passed_on(came, owners, mirror)
            del came

    def _passed_on(
        self, came: Sequence[Tensor], owners: list[int], mirror: bool
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """Blocks of another host's ranks, of which each rank here has got one; `mirror` turns their order."""
        read, ranks, me = self._crossings[owners[0]].read, len(self._here), self._place

        def picked(place: int) -> list[Tensor]:
            return list(came) if read is None else [pack_rows(x, read[place]) for x in came]

        def swap(i: int) -> tuple[int, Request]:
            right, left = (me + i) % ranks, (me - i) % ranks
            to, back = (left, right) if mirror else (right, left)
            rows = self.need_sizes[owners[back]]
            take = [empty(rows, x.shape[1], like=x) for x in came]
            request = self.comm.iswap(picked(to), self._here[to], take, self._here[back], phase=PHASE)
            return owners[back], request

        yield owners[me], picked(me)
        yield from self._ahead([later(swap, i) for i in range(1, ranks)])

    def _ahead(
        self, swaps: Sequence[Callable[[], tuple[int, Request]]]
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """What swaps bring, each posted before the one before it is handed out, where that is wanted."""
        before: tuple[int, Request] | None = None
        for swap in swaps:
            now = swap()
            if not self.overlap:
                yield now[0], list(now[1].wait())
                continue
            if before is not None:
                yield before[0], list(before[1].wait())
            before = now
            del now
        if before is not None:
            yield before[0], list(before[1].wait())

    def _added_here(self, part: Callable[[int], tuple[Tensor, ...]], owners: list[int]) -> tuple[Tensor, ...]:
        """The sum of what the ranks of this host have for the block of one rank of another: each adds up one.

        part(p)  [need_sizes[p], w] each, asked for in the order of `_stages`;   sum  [|U(p, here)|, w]
        """
        read, ranks, me = self._crossings[owners[0]].read, len(self._here), self._place
        taken = self._crossings[owners[0]].taken

        def at(place: int) -> Tensor | None:
            return None if read is None else read[place]

        total: tuple[Tensor, ...] = ()
        for x in part(owners[me]):
            rows = empty(taken, x.shape[1], like=x)
            total += (rows.copy_(x) if read is None else rows.zero_(),)
            if read is not None:
                add_rows_(rows, read[me], x)
        before: tuple[int, Request] | None = None
        for i in range(1, ranks):
            right, left = (me + i) % ranks, (me - i) % ranks
            give = part(owners[right])
            rows_left = taken if read is None else read[left].numel()
            take = [empty(rows_left, x.shape[1], like=x) for x in give]
            request = self.comm.iswap(give, self._here[right], take, self._here[left], phase=PHASE)
            if not self.overlap:
                request.wait()
            if before is not None:
                add_up(total, at(before[0]), before[1].wait())
            before = left, request
            del give, take, request
        if before is not None:
            add_up(total, at(before[0]), before[1].wait())
        return total

    def merge(
        self,
        partial: Callable[[int], tuple[Tensor, ...]],
        absorb: Callable[[tuple[Tensor, ...], Tensor | None, tuple[Tensor, ...]], None],
        phase: str = "reduce",
    ) -> tuple[Tensor, ...]:
        """Sums by host: *the own host's directly; then, host by host: add up here, send, take in what came
        for the host before*. Anything else directly."""
        if absorb is not add_up:
            return super().merge(partial, absorb, phase)
        part = partial
        give = self.give

        def direct(target: int, source: int) -> tuple[int, Request]:
            parts = part(target)
            take = [empty(self.give_sizes[source], x.shape[1], like=x) for x in parts]
            return source, self.comm.iswap(parts, target, take, source, phase=phase)

        first = direct(*self._near[0]) if self.overlap else None
        own = part(self.comm.rank)
        for pair in self._near:
            source, request = first or direct(*pair)
            add_up(own, None if give is None else give[source], request.wait())
            first = None
            del request
        before: tuple[Crossing, Request] | None = None
        for to, back in self._far:
            added = self._added_here(part, to)
            crossing = self._crossings[back[0]]
            take = [empty(crossing.out, x.shape[1], like=x) for x in added]
            request = self._cross(added, to, take, back, phase)
            if before is not None:
                add_up(own, before[0].rows, before[1].wait())
            before = crossing, request
            del added, take, request
        if before is not None:
            add_up(own, before[0].rows, before[1].wait())
        return own

    def sum_up(
        self,
        part: Callable[[int, int, int], Tensor],
        own: Callable[[Tensor | None], Tensor],
        like: Tensor,
        halve: bool = True,
        phase: str = "reduce",
    ) -> Tensor:
        """Other hosts first, so that links are busy while this host's parts are made: *host by host: make and
        add up here, send, take in what came before; then this host's ranks; the own part is made while the
        last one travels.* Parts go whole."""
        width, me = like.shape[1], self.comm.rank
        total = empty(self.sizes[me], width, like=like).zero_()
        before: tuple[Tensor | None, Request] | None = None

        def take_in() -> None:
            nonlocal before
            if before is not None:
                add_up((total,), before[0], before[1].wait())
                before = None

        for to, back in self._far:
            added = self._added_here(lambda p: (part(p, 0, self.need_sizes[p]),), to)
            crossing = self._crossings[back[0]]
            take_in()
            room = empty(crossing.out, width, like=like)
            before = crossing.rows, self._cross(added, to, [room], back, phase)
            del added, room
        for target, source in self._near:
            made = part(target, 0, self.need_sizes[target])
            take_in()
            room = empty(self.give_sizes[source], width, like=like)
            request = self.comm.iswap([made], target, [room], source, phase=phase)
            if not self.overlap:
                request.wait()
            before = None if self.give is None else self.give[source], request
            del made, room, request
        own(total)
        take_in()
        return total

    def _moved(self, change: Callable[[Tensor], Tensor], out: Exchange) -> Exchange:
        assert isinstance(out, ByHost)
        out._crossings = {host: crossing.moved(change) for host, crossing in self._crossings.items()}
        return out

    def within(self, at: Tensor) -> Exchange:
        out = super().within(at)
        assert isinstance(out, ByHost)
        out._crossings = {
            host: crossing._replace(rows=None if crossing.rows is None else at[crossing.rows])
            for host, crossing in self._crossings.items()
        }
        return out

    def to(self, device: torch.device | str) -> Exchange:
        return self._moved(lambda x: x.to(device), super().to(device))

    def dry(self, wrap: Callable[[Communicator], Communicator]) -> Exchange:
        return self._moved(lambda x: x.to("meta"), super().dry(wrap))

    def blank(self, crossings: Sequence[Crossing]) -> None:
        """Be a line that need not exist: what crosses, host by host from the next one on."""
        self._crossings = {
            there[0]: crossing for (there, _), crossing in zip(self._far, crossings, strict=True)
        }

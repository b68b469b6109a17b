"""Seconds of what a rank does, from a machine profile: small functions without state.

    kernel    arcs · table(width, arcs / rows, bytes of x) · slow-down / speed-up
    product   rows · inputs · outputs · table(inputs, outputs), another where the inner dim is the long one
    dropout   numbers · table(width)
    pass      bytes / bandwidth
    message   link(bytes): within a host, or between two, whose ranks share their link

`timed` looks all of a rank's steps up; `clock` puts them on one clock: a message that was posted travels, as
far as the link hides it, while the rank computes; where the rank waits for it, the rest is waited for. What
each kind of step takes is multiplied by a factor, where the profile was proved (`proof.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..comm.ledger import Message
from .profile import FAR, Link, Profile
from .record import Draw, Kernel, Pass, Post, Product, Step, Wait

_BACK = ("attend_backward", "attend_self_backward", "sddmm", "sddmm_heads")
GUESSED = (5e-5, 1.25e9)
"""Seconds and bytes a second of a link between hosts that nobody measured: 10 Gbit/s."""
_WHOLE = 0.9
"""A core, as far as measurements tell."""
_GRAIN = 1 << 18
"""Bytes of a pass, read and written, from which on torch gives it to several threads."""
_FOLD = 3.0
"""One's own message function, over (+, ×): docs/log.md has 1.3 to 3.3."""
_CACHED = 16 << 20
"""Bytes that all ranks of a host touch in a step, up to which they are likely still in a cache."""
_SHORT = 64
"""Bytes of a message of which the link's latency is all that counts."""


@dataclass(frozen=True)
class Machine:
    """Ranks on hosts, and what they can do."""

    profile: Profile
    ranks: int
    hosts: int = 1
    threads: int = 1
    """Of a rank."""
    between: Link | None = None
    """In place of the profile's."""
    memory_bytes: int = 0
    """Of a host; 0: as the profile says."""
    told: tuple[int, ...] = ()
    """The host of each rank where that is known; empty: they are dealt out evenly, in their order."""

    @property
    def crowd(self) -> int:
        """Ranks of the fullest host."""
        if self.told:
            return max(self.told.count(host) for host in set(self.told))
        return -(-self.ranks // self.hosts)

    def host(self, rank: int) -> int:
        return self.told[rank] if self.told else rank // self.crowd

    @property
    def places(self) -> list[int]:
        """The host of each rank.

        >>> from weft.planner.default import default_profile
        >>> Machine(default_profile(), 4, hosts=2).places
        [0, 0, 1, 1]
        """
        return [self.host(rank) for rank in range(self.ranks)]

    @property
    def guessed(self) -> bool:
        """Whether nobody measured or named the link that its hosts have."""
        return self.hosts > 1 and not (self.between or self.profile.between)

    @property
    def link(self) -> Link:
        """Between hosts."""
        return self.between or self.profile.between or Link.of_bandwidth(*GUESSED)

    @property
    def slower(self) -> float:
        """How much more of its cores' time a walk takes than that of a rank alone with one thread."""
        return self.slower_at("walk", self.threads)

    def slower_at(self, kind: str, threads: int) -> float:
        """The same of some kind of work: a walk over a sparse matrix, attention, a dense product, a pass."""
        speedup, slowdown = self.profile.others.get(kind, (self.profile.speedup, self.profile.slowdown))
        return slowdown.at(min(self.crowd, slowdown.x[-1])) / speedup.at(min(threads, speedup.x[-1]))

    @property
    def share(self) -> float:
        """Of a core that a rank gets while all compute: ranks may be many, and hosts may share cores."""
        known = self.profile.share
        if known is None:
            return min(1.0, self.profile.cores / self.crowd)
        measured = known.at(min(self.crowd, known.x[-1]))
        if measured >= _WHOLE:
            measured = 1.0
        # More ranks than were measured divide what those had.
        cores = known.x[-1] * measured if measured < 1 else self.profile.cores
        return min(measured, min(cores, self.profile.cores) / self.crowd)

    @property
    def inside(self) -> Link:
        """Within a host."""
        crowded = self.profile.crowded if self.share < _WHOLE else None
        return crowded or self.profile.inside

    @property
    def factors(self) -> Mapping[str, float]:
        """Kind of step → how much longer it took than foretold, when the trainer's own step was measured."""
        return self.profile.factors(self.ranks, self.hosts, self.threads)

    @property
    def rank_bytes(self) -> int:
        """Memory that a rank may have."""
        return (self.memory_bytes or self.profile.memory_bytes) // self.crowd


def table_of(step: Kernel) -> str:
    """The table of a kernel.

    >>> table_of(Kernel("attend", "attend_backward", 9, 9, 30, 8))
    'attend_back'
    """
    if step.name.startswith("channel"):
        return "channel_back" if "backward" in step.name else "channel"
    if step.kind in ("attend", "sddmm"):
        return "attend_back" if step.name in _BACK else "attend"
    return "spmm"


def kernel_seconds(profile: Profile, step: Kernel) -> float:
    """A walk over a sparse matrix, on one thread of a machine that does nothing else."""
    table = profile.kernels[table_of(step)]
    widest, degrees = table.points[0][-1], table.points[1]
    scale = max(1.0, step.width / widest) * step.itemsize / 4
    degree = max(1.0, step.arcs / max(1, step.rows))

    def at(degree: float) -> float:
        size = max(1, step.columns * step.width * step.itemsize)
        return table.at(width=step.width, degree=degree, bytes=size)

    each = at(degree)
    if degree < degrees[0] and len(degrees) > 1:  # what a row costs is shared by fewer arcs still
        row = (at(degrees[0]) - at(degrees[1])) / (1 / degrees[0] - 1 / degrees[1])
        each += max(0.0, row) * (1 / degree - 1 / degrees[0])
    out = step.rows * step.width * step.itemsize / profile.bandwidth
    return step.arcs * each * scale * (_FOLD if step.kind == "fold" else 1) + (0 if step.arcs else out)


def product_seconds(profile: Profile, step: Product) -> float:
    """A dense product: h W with many rows, or hᵀ dy, which is long in its inner dim."""
    if step.inputs > step.rows:
        each = profile.kernels["outer"].at(inputs=max(1, step.rows), outputs=max(1, step.outputs))
    else:
        each = profile.kernels["dense"].at(inputs=max(1, step.inputs), outputs=max(1, step.outputs))
    return step.rows * step.inputs * step.outputs * each * step.itemsize / 4


def step_seconds(machine: Machine, step: Kernel | Product | Draw | Pass) -> tuple[str, float]:
    """(kind, seconds) of one rank of the machine; what an operation costs at least comes on top."""
    profile, threads = machine.profile, machine.threads
    if isinstance(step, Kernel):
        kind = "walk" if table_of(step) == "spmm" else "attend"
        touched = (step.columns + step.rows) * step.width * step.itemsize
        seconds = kernel_seconds(profile, step) * machine.slower_at(kind, threads)
    elif isinstance(step, Product):
        kind, touched = "dense", step.rows * (step.inputs + step.outputs) * step.itemsize
        seconds = product_seconds(profile, step) * machine.slower_at("dense", threads)
    elif isinstance(step, Draw):
        kind, touched = "pass", 2 * step.rows * step.width * step.itemsize
        each = profile.kernels["dropout"].at(width=max(1, step.width))
        seconds = step.rows * step.width * each * machine.slower_at("dense", threads)
    else:
        kind, touched = "pass", step.bytes
        alone = step.bytes < _GRAIN  # torch does not divide it
        seconds = step.bytes / profile.bandwidth * machine.slower_at("pass", 1 if alone else threads)
    return kind + ("_far" if touched * machine.crowd > _CACHED else ""), seconds


def message_seconds(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> float:
    """One call of a rank; `peers` are the ranks of its line.

    all_reduce   the better of log₂ g whole messages, near ones first, and 2 (g − 1) of a g-th
    iswap        the slower of what is given and what is taken
    others       all that goes to peers of one kind, near or far, at once
    """

    def far(p: int) -> bool:
        return machine.host(peers[p]) != machine.host(rank)

    def of(near: float, across: float, sharers: int) -> float:
        # Ranks of a host share what leads out of it.
        return (machine.inside.seconds.at(near) if near else 0.0) + (
            machine.link.seconds.at(across * sharers) if across else 0.0
        )

    if message.call == "all_reduce":
        if not message.sent:
            return 0.0
        size, g = message.sent[0][1], message.size
        here = g - sum(far(p) for p, _ in message.sent)
        link = machine.link if here < g else machine.inside
        rounds, near = (g - 1).bit_length(), (here - 1).bit_length()
        halves = near * machine.inside.seconds.at(size)  # who is beside each other meets first
        if rounds > near:
            halves += (rounds - near) * machine.link.seconds.at(size * here)
        return min(halves, 2 * (g - 1) * link.seconds.at(max(1.0, size / g)))

    def side(found: Sequence[tuple[int, int]]) -> float:
        near = sum(size for p, size in found if not far(p))
        across = sum(size for p, size in found if far(p))
        sharers = machine.crowd
        if message.call == "iswap" and across:
            sharers = link_sharers(machine, rank, peers, found[0][0] - list(peers).index(rank))
        return of(near, across, sharers)

    return max(side(message.sent), side(message.received))


def link_sharers(machine: Machine, rank: int, peers: Sequence[int], shift: int) -> int:
    """Ranks of a host whose messages leave it while everybody sends to the rank `shift` places on.

    Those of the same line are counted; those of other lines do as this rank does.

    >>> from weft.planner.default import default_profile
    >>> two = Machine(default_profile(), 4, hosts=2)
    >>> [link_sharers(two, 1, range(4), shift) for shift in (1, 2)], link_sharers(two, 0, [0, 2], 1)
    ([1, 2], 2)
    """
    own, size = machine.host(rank), len(peers)
    here = [place for place, peer in enumerate(peers) if machine.host(peer) == own]
    leave = sum(machine.host(peers[(place + shift) % size]) != own for place in here)
    return max(1, leave + machine.crowd - len(here))


def crosses(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> bool:
    """Whether a message leaves the host, or comes from another."""
    touched = {p for p, _ in (*message.sent, *message.received)}
    return any(machine.host(peers[p]) != machine.host(rank) for p in touched)


@dataclass(frozen=True)
class Seconds:
    """Of one rank's step."""

    total: float
    compute: float
    messages: float
    """What is waited for messages; `total` is the sum of both."""

    phases: tuple[tuple[float, float, float], ...] = ()
    """(total, compute, share) from each meeting with other ranks to the next: of a message that is waited
    for, `share` is what computing hides of it; 0 after a sum over all."""

    def scaled(self, times: int, more: float = 0.0) -> Seconds:
        """So many steps, each with `more` seconds of computing beside.

        >>> Seconds(3.0, 2.0, 1.0).scaled(2, 0.5)
        Seconds(total=7.0, compute=5.0, messages=2.0, phases=())
        """
        return Seconds(times * (self.total + more), times * (self.compute + more), times * self.messages)


def side_by_side(ranks: Sequence[Seconds], share: float) -> Seconds:
    """All ranks until the last is done. They meet at each exchange, so that one which is slow in one phase
    and one which is slow in the next both hold up all; as far as messages travel while ranks compute, less.

    >>> first = Seconds(4.0, 4.0, 0.0, ((3.0, 3.0, 0.0), (1.0, 1.0, 0.0)))
    >>> second = Seconds(4.0, 4.0, 0.0, ((1.0, 1.0, 0.0), (3.0, 3.0, 0.0)))
    >>> side_by_side([first, second], 1.0).total
    6.0
    """
    whole = _slowest(ranks, share)
    counts = {len(rank.phases) for rank in ranks}
    if len(ranks) == 1 or len(counts) > 1 or 0 in counts:
        return whole
    total = compute = 0.0
    begin, hidden = 0, list[float]()
    for at in range(counts.pop()):
        hidden.append(statistics.fmean(rank.phases[at][2] for rank in ranks))
        if hidden[-1] and at + 1 < len(ranks[0].phases):
            continue
        # Up to a sum over all ranks, or the end: each phase on its own, or all of them at once.
        part = [_taken(rank.phases[begin : at + 1]) for rank in ranks]
        apart = [_slowest([_taken([rank.phases[k]]) for rank in ranks], share) for k in range(begin, at + 1)]
        once, loose = _slowest(part, share), statistics.fmean([x for x in hidden if x] or [0.0])
        total += loose * once.total + (1 - loose) * sum(each.total for each in apart)
        compute += loose * once.compute + (1 - loose) * sum(each.compute for each in apart)
        begin, hidden = at + 1, []
    return Seconds(total, compute, total - compute)


def _taken(phases: Sequence[tuple[float, float, float]]) -> Seconds:
    total, compute = sum(phase[0] for phase in phases), sum(phase[1] for phase in phases)
    return Seconds(total, compute, total - compute)


def _slowest(ranks: Sequence[Seconds], share: float) -> Seconds:
    """The slowest of ranks that do not wait for each other, where each gets a share of a core while all
    compute, and a whole one when the others are done: it takes its own time alone at least, and a mean rank's
    at its share.

    >>> quick, slow = Seconds(2.0, 2.0, 0.0), Seconds(6.0, 6.0, 0.0)  # at half a core
    >>> _slowest([quick, slow], 0.5).total, _slowest([quick, quick, quick, slow], 0.5).total
    (4.0, 3.0)
    """
    if share < _WHOLE:
        mean = sum(rank.compute for rank in ranks) / len(ranks)
        computes = [max(rank.compute * share, mean) for rank in ranks]
        ranks = [
            Seconds(compute + r.messages, compute, r.messages)
            for r, compute in zip(ranks, computes, strict=True)
        ]
    return max(ranks, key=lambda rank: rank.total)


@dataclass(frozen=True)
class Timed:
    """A step with its seconds by kind."""

    what: str
    """work: the rank computes; call: it sends and waits; post: a message begins; wait: for its end."""
    seconds: Mapping[str, float]
    number: int = 0
    """Of a message."""
    overlap: float = 0.0
    """The share of a message that computation hides."""
    far: bool = False
    """Whether a message goes between hosts."""

    def scaled(self, factors: Mapping[str, float]) -> float:
        return sum(part * factors.get(kind, 1.0) for kind, part in self.seconds.items())


def timed(machine: Machine, steps: Sequence[Step], rank: int, lines: dict[str, Sequence[int]]) -> list[Timed]:
    """One rank's steps, looked up.

    lines   axis → the ranks of this rank's line along it
    """
    found = []
    for step in steps:
        if isinstance(step, Post):
            peers = lines[step.message.line]
            whole = message_seconds(machine, step.message, rank, peers)
            short = min(whole, latency(machine, step.message, rank, peers)) if whole else 0.0
            far = crosses(machine, step.message, rank, peers)
            hidden = (machine.link if far else machine.inside).overlap
            parts = {"short" + FAR * far: short, "long" + FAR * far: whole - short}
            found.append(Timed("call" if step.blocking else "post", parts, step.number, hidden, far))
        elif isinstance(step, Wait):
            found.append(Timed("wait", {}, step.number))
        else:
            kind, seconds = step_seconds(machine, step)
            parts = {kind: seconds / machine.share, "call": machine.profile.call_seconds / machine.share}
            found.append(Timed("work", parts))
    return found


def latency(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> float:
    """What a message would take if it said next to nothing."""

    def short(side: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((p, min(size, _SHORT)) for p, size in side)

    bare = message._replace(sent=short(message.sent), received=short(message.received))
    return message_seconds(machine, bare, rank, peers)


def clock(steps: Sequence[Timed], factors: Mapping[str, float]) -> Seconds:
    """A rank's seconds over its steps. Messages within a host and those between hosts have a link each.

    >>> steps = [Timed("post", {"long": 2.0}, 0, 0.5), Timed("work", {"walk": 3.0}), Timed("wait", {}, 0)]
    >>> clock(steps, {})
    Seconds(total=4.0, compute=3.0, messages=1.0, phases=((4.0, 3.0, 0.5), (0.0, 0.0, 0.0)))
    """
    now = compute = met = done = 0.0
    free = {False: 0.0, True: 0.0}  # when the rank's links are free again: within its host, and out of it
    phases: list[tuple[float, float, float]] = []
    overlaps: dict[int, float] = {}

    def meet(hidden: float) -> None:
        nonlocal met, done
        phases.append((now - met, compute - done, hidden))
        met, done = now, compute

    flying: dict[int, tuple[float, float]] = {}  # (the part that computation may hide: its end; the rest)
    for step in steps:
        seconds = step.scaled(factors)
        if step.what == "wait":
            end, rest = flying.pop(step.number)
            now = max(now, end) + rest
            meet(overlaps.pop(step.number))
        elif step.what == "work":
            compute += seconds
            now += seconds
        elif step.what == "call":
            now = max(now, free[step.far]) + seconds
            free[step.far] = now
            meet(0.0)
        else:
            hidden = step.overlap * seconds
            free[step.far] = max(now, free[step.far]) + hidden
            flying[step.number] = (free[step.far], seconds - hidden)
            overlaps[step.number] = step.overlap
    meet(0.0)
    return Seconds(now, compute, now - compute, tuple(phases))


def run(machine: Machine, steps: Sequence[Step], rank: int, lines: dict[str, Sequence[int]]) -> Seconds:
    """One rank's clock over its steps."""
    return clock(timed(machine, steps, rank, lines), machine.factors)

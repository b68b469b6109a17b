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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..comm.ledger import Message
from .profile import Link, Profile
from .record import Draw, Kernel, Pass, Post, Product, Step, Wait

_BACK = ("attend_backward", "attend_self_backward", "sddmm", "sddmm_heads")
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

    @property
    def crowd(self) -> int:
        """Ranks of the fullest host; they are dealt out in their order, as mpirun does."""
        return -(-self.ranks // self.hosts)

    def host(self, rank: int) -> int:
        return rank // self.crowd

    @property
    def link(self) -> Link:
        """Between hosts."""
        return self.between or self.profile.between or Link.of_bandwidth(5e-5, 1.25e9)

    @property
    def slower(self) -> float:
        """How much more of its cores' time a walk takes than that of a rank alone with one thread."""
        return self.slower_at("walk", self.threads)

    def slower_at(self, kind: str, threads: int) -> float:
        """The same of some kind of work: a walk over a sparse matrix, a dense product, a plain pass."""
        speedup, slowdown = self.profile.others.get(kind, (self.profile.speedup, self.profile.slowdown))
        return slowdown.at(min(self.crowd, slowdown.x[-1])) / speedup.at(min(threads, speedup.x[-1]))

    @property
    def share(self) -> float:
        """Of a core that a rank gets while all compute: ranks may be many, and hosts may share cores."""
        cores, known = float(self.profile.cores), self.profile.share
        if known is not None and known.y[-1] < _WHOLE:
            cores = min(cores, known.x[-1] * known.y[-1])
        return min(1.0, cores / self.crowd)

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
        seconds = kernel_seconds(profile, step) * machine.slower_at("walk", threads)
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

    all_reduce   the better of log₂ g whole messages and 2 (g − 1) of a g-th
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
        away = any(far(p) for p, _ in message.sent)
        link = machine.link if away else machine.inside
        rounds = (g - 1).bit_length()
        return min(rounds * link.seconds.at(size), 2 * (g - 1) * link.seconds.at(max(1.0, size / g)))

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


def overlap_of(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> float:
    """The share of a message that computation hides."""
    touched = {p for p, _ in (*message.sent, *message.received)}
    far = any(machine.host(peers[p]) != machine.host(rank) for p in touched)
    return machine.link.overlap if far else machine.inside.overlap


@dataclass(frozen=True)
class Seconds:
    """Of one rank's step."""

    total: float
    compute: float
    messages: float
    """What is waited for messages; `total` is the sum of both."""

    def scaled(self, times: int, more: float = 0.0) -> Seconds:
        """So many steps, each with `more` seconds of computing beside.

        >>> Seconds(3.0, 2.0, 1.0).scaled(2, 0.5)
        Seconds(total=7.0, compute=5.0, messages=2.0)
        """
        return Seconds(times * (self.total + more), times * (self.compute + more), times * self.messages)


def side_by_side(ranks: Sequence[Seconds], share: float) -> Seconds:
    """The slowest of all ranks, where each gets a share of a core while all compute, and a whole one when the
    others are done: it takes its own time alone at least, and a mean rank's at its share.

    >>> quick, slow = Seconds(2.0, 2.0, 0.0), Seconds(6.0, 6.0, 0.0)  # at half a core
    >>> side_by_side([quick, slow], 0.5).total, side_by_side([quick, quick, quick, slow], 0.5).total
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
            hidden = overlap_of(machine, step.message, rank, peers)
            parts = {"short": short, "long": whole - short}
            found.append(Timed("call" if step.blocking else "post", parts, step.number, hidden))
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
    """A rank's seconds over its steps.

    >>> steps = [Timed("post", {"long": 2.0}, 0, 0.5), Timed("work", {"walk": 3.0}), Timed("wait", {}, 0)]
    >>> clock(steps, {}), clock(steps, {"walk": 2.0}).total
    (Seconds(total=4.0, compute=3.0, messages=1.0), 7.0)
    """
    now = compute = 0.0
    free = 0.0  # when the rank's link is free again
    flying: dict[int, tuple[float, float]] = {}  # (the part that computation may hide: its end; the rest)
    for step in steps:
        seconds = step.scaled(factors)
        if step.what == "wait":
            end, rest = flying.pop(step.number)
            now = max(now, end) + rest
        elif step.what == "work":
            compute += seconds
            now += seconds
        elif step.what == "call":
            now = max(now, free) + seconds
            free = now
        else:
            hidden = step.overlap * seconds
            free = max(now, free) + hidden
            flying[step.number] = (free, seconds - hidden)
    return Seconds(now, compute, now - compute)


def run(machine: Machine, steps: Sequence[Step], rank: int, lines: dict[str, Sequence[int]]) -> Seconds:
    """One rank's clock over its steps."""
    return clock(timed(machine, steps, rank, lines), machine.factors)

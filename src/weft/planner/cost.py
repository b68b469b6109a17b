"""Seconds of what a rank does, from a machine profile: small functions without state.

    kernel    arcs · table(width, arcs / rows, bytes of x) · slow-down / speed-up
    product   rows · inputs · outputs · table(inputs, outputs), another where the inner dim is the long one
    dropout   numbers · table(width)
    pass      bytes / bandwidth
    message   link(bytes): within a host, or between two, whose ranks share their link

`run` puts them on one clock: a message that was posted travels, as far as the link hides it, while the rank
computes; where the rank waits for it, the rest is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..comm.ledger import Message
from .profile import Link, Profile
from .record import Draw, Kernel, Pass, Post, Product, Step, Wait

_BACK = ("attend_backward", "attend_self_backward", "sddmm", "sddmm_heads")
_FOLD = 3.0
"""One's own message function, over (+, ×): docs/log.md has 1.3 to 3.3."""


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
        """How much longer a rank takes here than one that has the machine and one thread."""
        return self.profile.slowdown.at(self.crowd) / self.profile.speedup.at(self.threads)

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
    widest = table.points[0][-1]
    scale = max(1.0, step.width / widest) * step.itemsize / 4
    each = table.at(
        width=step.width, degree=max(1.0, step.arcs / max(1, step.rows)),
        bytes=max(1, step.columns * step.width * step.itemsize),
    )  # fmt: skip
    out = step.rows * step.width * step.itemsize / profile.bandwidth
    return step.arcs * each * scale * (_FOLD if step.kind == "fold" else 1) + (0 if step.arcs else out)


def product_seconds(profile: Profile, step: Product) -> float:
    """A dense product: h W with many rows, or hᵀ dy, which is long in its inner dim."""
    if step.inputs > step.rows:
        each = profile.kernels["outer"].at(inputs=max(1, step.rows), outputs=max(1, step.outputs))
    else:
        each = profile.kernels["dense"].at(inputs=max(1, step.inputs), outputs=max(1, step.outputs))
    return step.rows * step.inputs * step.outputs * each * step.itemsize / 4


def step_seconds(machine: Machine, step: Kernel | Product | Draw | Pass) -> float:
    """Of one rank of the machine."""
    profile = machine.profile
    if isinstance(step, Kernel):
        work = kernel_seconds(profile, step)
    elif isinstance(step, Product):
        work = product_seconds(profile, step)
    elif isinstance(step, Draw):
        work = step.rows * step.width * profile.kernels["dropout"].at(width=max(1, step.width))
    else:
        work = step.bytes / profile.bandwidth
    return work * machine.slower + profile.call_seconds


def message_seconds(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> float:
    """One call of a rank; `peers` are the ranks of its line.

    all_reduce   the better of 2 log₂ g whole messages and 2 (g − 1) of a g-th
    iswap        the slower of what is given and what is taken
    others       a message a peer, one after the other
    """

    def far(p: int) -> bool:
        return machine.host(peers[p]) != machine.host(rank)

    def one(p: int, size: float) -> float:
        # Ranks of a host share what leads out of it.
        return (
            machine.link.seconds.at(size * machine.crowd)
            if far(p)
            else machine.profile.inside.seconds.at(size)
        )

    if message.call == "all_reduce":
        if not message.sent:
            return 0.0
        size, g = message.sent[0][1], message.size
        worst = next((p for p, _ in message.sent if far(p)), message.sent[0][0])
        link = machine.link if far(worst) else machine.profile.inside
        rounds = (g - 1).bit_length()
        return 2 * min(rounds * link.seconds.at(size), (g - 1) * link.seconds.at(max(1.0, size / g)))
    sent, received = ([one(p, size) for p, size in side] for side in (message.sent, message.received))
    if message.call == "iswap":
        return max([0.0, *sent, *received])
    return max(sum(sent), sum(received))


def overlap_of(machine: Machine, message: Message, rank: int, peers: Sequence[int]) -> float:
    """The share of a message that computation hides."""
    touched = {p for p, _ in (*message.sent, *message.received)}
    far = any(machine.host(peers[p]) != machine.host(rank) for p in touched)
    return machine.link.overlap if far else machine.profile.inside.overlap


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


def run(machine: Machine, steps: Sequence[Step], rank: int, lines: dict[str, Sequence[int]]) -> Seconds:
    """One rank's clock over its steps.

    lines   axis → the ranks of this rank's line along it
    """
    now = compute = 0.0
    free = 0.0  # when the rank's link is free again
    flying: dict[int, tuple[float, float]] = {}  # (the part that computation may hide: its end; the rest)
    for step in steps:
        if isinstance(step, Post):
            peers = lines[step.message.line]
            seconds = message_seconds(machine, step.message, rank, peers)
            if step.blocking:
                now = max(now, free) + seconds
                free = now
                continue
            hidden = overlap_of(machine, step.message, rank, peers) * seconds
            free = max(now, free) + hidden
            flying[step.number] = (free, seconds - hidden)
        elif isinstance(step, Wait):
            end, rest = flying.pop(step.number)
            now = max(now, end) + rest
        else:
            seconds = step_seconds(machine, step)
            compute += seconds
            now += seconds
    return Seconds(now, compute, now - compute)

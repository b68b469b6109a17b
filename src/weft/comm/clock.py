"""How far the clocks of ranks are apart, so that what happened on several hosts stands on one time line.

`time.perf_counter` counts from the start of a machine: ranks of one host share it, those of two hosts are
days apart. Rank 0 asks one rank of every other host for its time, a few rounds of ping and pong:

    rank 0   reads a, sends            reads b when the answer is there
    rank r          receives, reads t, answers
    offset   t − (a + b) / 2           wrong by at most (b − a) / 2: the fastest round is kept
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from weft.comm.communicator import Communicator

ROUNDS = 16
"""Rounds with each host; the first ones warm a connection up."""


@dataclass(frozen=True)
class Offset:
    """Of one rank's clock against rank 0's."""

    seconds: float = 0.0
    """What its clock is ahead: its time less this is rank 0's."""
    error: float = 0.0
    """It is wrong by at most so much: half of the fastest round."""


def this_host() -> str:
    """One name for all processes whose clocks are the same one."""
    try:  # a machine's start, which its containers share as they share the clock, unless theirs is another
        start = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{start} {os.readlink('/proc/self/ns/time')}"
    except (OSError, UnicodeDecodeError):
        import socket

        return socket.gethostname()


def align(
    comm: Communicator, clock: Callable[[], float] = time.perf_counter, host: str | None = None
) -> list[Offset]:
    """The offset of every rank's clock from rank 0's, the same list everywhere; every rank calls it.

    `host` names who shares a clock; by default the machine. Nothing is sent where all are on one.

    >>> import time
    >>> from weft.comm import run_ranks
    >>> def work(comm):  # the clock of rank 1 is an hour ahead
    ...     return align(comm, lambda: time.perf_counter() + 3600 * comm.rank, str(comm.rank))[1].seconds
    >>> [round(seconds) for seconds in run_ranks(work, 2, "threads")]
    [3600, 3600]
    """
    hosts = comm.all_gather_json(this_host() if host is None else host)
    found = {hosts[0]: Offset()}
    for r, name in enumerate(hosts):
        if name not in found:
            mine = _ask(comm, r, clock) if comm.rank in (0, r) else None
            told = comm.all_gather_json(None if mine is None else [mine.seconds, mine.error])[0]
            found[name] = Offset(*told)
    return [found[name] for name in hosts]


def _ask(comm: Communicator, other: int, clock: Callable[[], float]) -> Offset:
    """Rank 0 and `other` alone: what rank 0 learns of the other's clock. The other's answer says nothing."""
    room, best = torch.zeros(1, dtype=torch.float64, device="cpu"), Offset(0.0, float("inf"))
    for _ in range(ROUNDS):
        if comm.rank:
            comm.iswap([], 0, [room], 0, phase="clock").wait()
            told = torch.tensor([clock()], dtype=torch.float64, device="cpu")
            comm.iswap([told], 0, [], 0, phase="clock").wait()
            continue
        before = clock()
        comm.iswap([room.clone()], other, [], other, phase="clock").wait()
        comm.iswap([], other, [room], other, phase="clock").wait()
        after = clock()
        if (after - before) / 2 < best.error:
            best = Offset(float(room) - (before + after) / 2, (after - before) / 2)
    return best

"""Where every rank waits, written by the ranks and read by the launcher.

A job has one small file in its private directory, mapped by all: a slot a rank with the time at which it
began to wait and the phase it waits in. Writing it costs well under a microsecond, and it can still be read
when a rank hangs or is dead. Where there is no launcher (mpirun, srun, torchrun) each rank watches itself
from a thread.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_SLOT = struct.Struct("<d96s")
_NAME = 96
_GAP_SECONDS = 2.0
"""A watcher that looks later than this was suspended, and all that it watches with it, or is late itself."""


class MappedSlot:
    """One rank's slot in the file of the job, or in memory where there is none."""

    def __init__(self, memory: mmap.mmap | bytearray, rank: int) -> None:
        self._memory = memory
        self._offset = rank * _SLOT.size
        self._texts: dict[tuple[str, str], bytes] = {}

    def enter(self, phase: str, name: str) -> None:
        """This rank starts to wait."""
        text = self._texts.get((phase, name))
        if text is None:
            text = self._texts[phase, name] = f"phase '{phase}' ({name})".encode()[:_NAME]
        _SLOT.pack_into(self._memory, self._offset, time.monotonic(), text)

    def leave(self) -> None:
        """This rank goes on."""
        self._memory[self._offset : self._offset + 8] = b"\0\0\0\0\0\0\0\0"

    def read(self) -> tuple[float, str]:
        """Since when, on the machine's monotonic clock (0: not waiting), and where."""
        since, text = _SLOT.unpack_from(self._memory, self._offset)
        return since, text.rstrip(b"\0").decode(errors="replace")


def create(path: Path, ranks: int) -> list[MappedSlot]:
    """The launcher's side: make the file, and read all slots.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     slots = create(Path(folder) / "slots", 2)
    ...     join(Path(folder) / "slots", 1).enter("gather", "broadcast")
    ...     print([slot.read()[1] for slot in slots])
    ['', "phase 'gather' (broadcast)"]
    """
    path.write_bytes(bytes(ranks * _SLOT.size))
    memory = _map(path)
    return [MappedSlot(memory, rank) for rank in range(ranks)]


def join(path: Path, rank: int) -> MappedSlot:
    """A rank's side: its slot in the file."""
    return MappedSlot(_map(path), rank)


def _map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


class Awake:
    """Since when a watcher has looked without a gap.

    A scheduler may suspend a whole job for hours, the launcher too. Time in which nobody ran is no stall.
    """

    def __init__(self) -> None:
        self.since = self._last = time.monotonic()

    def look(self) -> float:
        """Called at every look; the beginning of the time in which the watcher ran."""
        now = time.monotonic()
        if now - self._last > _GAP_SECONDS:
            self.since = now
        self._last = now
        return self.since


def stalled(
    slots: list[MappedSlot], seconds: float, finished: frozenset[int] = frozenset(),
    halted: frozenset[int] = frozenset(), awake: float = 0.0,
) -> str | None:  # fmt: skip
    """One line about the ranks, where one of them has waited longer than `seconds`; else None.

    `halted` are those that somebody stopped: wherever they stand, they are what the others wait for.
    What they waited before `awake` does not count.

    >>> slots = [MappedSlot(bytearray(300), rank) for rank in range(2)]
    >>> slots[1].enter("gather", "broadcast")
    >>> print(stalled(slots, seconds=60))
    None
    >>> print(stalled(slots, seconds=-1))
    no progress for -1 s: rank 1 is waiting in phase 'gather' (broadcast); rank 0 is not in a message
    """
    now = time.monotonic()
    states = [slot.read() for slot in slots]
    if not any(since and now - max(since, awake) > seconds for since, _ in states):
        return None
    groups: dict[str, list[int]] = {}
    for rank, (since, where) in enumerate(states):
        if rank in finished:
            text = "ended"
        elif rank in halted:
            text = f"stopped by a signal, in {where}" if since else "stopped by a signal"
        else:
            text = f"waiting in {where}" if since else "not in a message"
        groups.setdefault(text, []).append(rank)
    # First the cause, where it is known; then those who wait, because the reader looks for the phase.
    order = sorted(groups, key=lambda text: (not text.startswith("stopped"), not text.startswith("waiting")))
    parts = [
        f"{name_ranks(groups[text])} {'is' if len(groups[text]) == 1 else 'are'} {text}" for text in order
    ]
    return f"no progress for {seconds:g} s: " + "; ".join(parts)


def name_ranks(ranks: list[int]) -> str:
    """
    >>> name_ranks([3]), name_ranks([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def watch_self(rank: int, seconds: float, end: Callable[[str], None] | None = None) -> MappedSlot:
    """Watch this rank from a thread: after `seconds` of waiting, say where, and end the process."""
    slot = MappedSlot(bytearray((rank + 1) * _SLOT.size), rank)

    def look() -> None:
        awake = Awake()
        while True:
            time.sleep(min(1.0, seconds / 4))
            since, where = slot.read()
            if since and time.monotonic() - max(since, awake.look()) > seconds:
                line = f"no progress for {seconds:g} s: waiting in {where}"
                print(f"[rank {rank}] {line}", file=sys.stderr, flush=True)
                if end is not None:
                    end(line)
                os._exit(1)

    threading.Thread(target=look, name="weft watchdog", daemon=True).start()
    return slot

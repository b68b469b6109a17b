"""How much is held at a time, and whether memory and disk will do: said before anything is read."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UserError
from weft.graph.guard import free_bytes
from weft.units import spell_bytes

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LEAST = 96 << 20
"""Bytes that a conversion needs beside what the process holds already."""
_SLACK = 48 << 20
"""For what allocators keep, pyarrow and the like."""


def parse_size(text: str, option: str = "--memory") -> int:
    """Bytes, as people write them.

    >>> parse_size("4GB"), parse_size("512MiB"), parse_size("1.5 g")
    (4000000000, 536870912, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)\s*", text.lower())
    if not found or not (size := int(float(found[1]) * (_BINARY if found[3] else _UNITS)[found[2]])):
        raise UserError(f"{option} takes a size such as 4GB, not {text!r}.")
    return size


def resident_bytes() -> int:
    """What this process holds now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 300 << 20


@dataclass(frozen=True)
class Plan:
    """What fits into the memory allowed.

    run      arcs of a run, which one thread sorts
    part     entries of a range, likewise
    bits     vertices that the set of those present may have room for
    segment  bytes of input that are one piece of work
    """

    threads: int
    run: int
    part: int
    bits: int
    segment: int
    free: int


def plan(memory: int | None, threads: int, payload: int, arcs: int) -> Plan:
    """The plan for arcs that carry `payload` bytes each, about `arcs` of them, in `memory` bytes in all.

    >>> some = plan(resident_bytes() + 2**30, 2, payload=0, arcs=10**9)
    >>> 2 * 16 * some.run + some.bits // 8 < 2**30
    True
    """
    held = resident_bytes()
    free = (free_bytes() // 2 if memory is None else memory - held) - _SLACK
    if free < _LEAST:
        least = held + _LEAST + _SLACK
        raise UserError(
            f"{(memory or 0) / 1e6:,.0f} MB are too little: weft itself takes {held / 1e6:,.0f} MB. "
            f"Use --memory {-(-least // 10**7) * 10}MB or more."
        )
    bits = min(2**32, free // 12 * 8, max(1 << 24, 64 * arcs)) // 64 * 64
    work = free - bits // 8 * 3 // 2
    # Reading: keys twice; with columns their order twice, and the columns before and after.
    each = 16 + (8 + 2 * payload + 8 if payload else 0)
    run = max(1 << 18, min(work * 6 // 10 // threads // each, max(1 << 22, arcs // 256)))
    # Ranges: as above, then the sources, rows and counts that come of it; one more waits to be written.
    part = max(1 << 16, work * 6 // 10 // (threads + 1) // (each + 24 + 8 * bool(payload)))
    return Plan(threads, run, part, bits, max(1 << 22, min(16 * run, 1 << 28)), free)


def check_disk(needed: int, folder: Path, why: str, flag: str = "--scratch") -> None:
    """Refuse what the disk has no room for, before it is begun; `flag` names another folder.

    >>> check_disk(10**18, Path("."), "sorted arcs and the store")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: about 1,000 PB are needed in . for sorted arcs and the store; ...
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"about {spell_bytes(needed)} are needed in {folder} for {why}; {spell_bytes(free)} are free. "
            f"Make room, or give another folder with {flag}."
        )

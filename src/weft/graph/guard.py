"""Guards around untrusted input: sizes are checked before anything is allocated, errors name their file."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

from weft.errors import UserError
from weft.graph.cgroup import own_limits


def machine_bytes() -> int:
    """Main memory that this process may take at most, in bytes: that of the machine, or less where a job or
    a container has a limit (`weft.graph.cgroup`); a generous guess where the system does not tell.

    >>> machine_bytes() > 0
    True
    """
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        installed = 1 << 38
    return min([installed, *(limit.most for limit in own_limits())])


FREELY = 64 << 20
"""Bytes that a file may ask for, however small it is."""
RATIO = 100
"""Bytes that it may ask for beyond that, for each byte that it holds. Text packs 4 to 20 times, sparse
features fill 10 to 50 times their entries; what asks for more is damaged or hostile."""


def allowed_bytes(held: int) -> int:
    """What may be made of a file that holds so many bytes.

    >>> allowed_bytes(0), allowed_bytes(1000) - allowed_bytes(0)
    (67108864, 100000)
    """
    return FREELY + RATIO * held


def free_bytes() -> int:
    """Main memory that is free now, or could be, of the machine and of this process's job or container; all
    of it where the system does not tell."""
    lefts = [machine_bytes(), *(limit.left for limit in own_limits())]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    lefts.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    return min(lefts)


def check_fits(
    needed: int,
    what: str,
    held: int | None = None,
    remedy: str = "Check the size it announces, or use a bigger machine.",
) -> None:
    """Refuse an allocation of `needed` bytes for which this machine has no room.

    `held` are the bytes of the file that asks for it: a few of them cannot stand for gigabytes.

    >>> check_fits(1 << 60, "features of wild.npz")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: features of wild.npz: ... needed, more than ... memory that are free. ...
    >>> check_fits(1 << 30, "wild.txt: 134217728 vertices", held=24)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: wild.txt: 134217728 vertices: 1.1 GB needed for 24 bytes of file. Correct the ...
    """
    if held is not None and needed > allowed_bytes(held):
        sizes = f"{needed / 1e9:,.1f} GB needed for {held:,} bytes of file"
        raise UserError(f"{what}: {sizes}. Correct the size it announces.")
    have = free_bytes()
    if needed > have:
        sizes = f"{needed / 1e9:,.1f} GB needed, more than the {have / 1e9:,.1f} GB of this machine's memory"
        raise UserError(f"{what}: {sizes} that are free. {remedy}")


@functools.cache
def name_bus_errors() -> None:
    """From the first map of a file on, a bus error is one line that names the file, and exit status 2.

    A file that is cut short while it is mapped leaves the kernel no other word for it. Without the C++ part
    of weft the process ends by the signal.
    """
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("weft._native").name_bus_errors()


@contextlib.contextmanager
def about(path: str | Path) -> Iterator[None]:
    """Put the file's name before a `UserError` that does not begin with it.

    >>> with about("club.txt"):
    ...     raise UserError("vertex id 7 is out of range.")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: club.txt: vertex id 7 is out of range.
    """
    try:
        yield
    except UserError as error:
        if str(error).startswith(str(path)):
            raise
        raise UserError(f"{path}: {error}") from None

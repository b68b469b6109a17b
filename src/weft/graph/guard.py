"""Guards around untrusted input: sizes are checked before anything is allocated, errors name their file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from weft.errors import UserError


def machine_bytes() -> int:
    """Main memory of this machine in bytes; a generous guess where the system does not tell.

    >>> machine_bytes() > 0
    True
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 38


def check_fits(needed: int, what: str) -> None:
    """Refuse an allocation of `needed` bytes that this machine cannot hold.

    >>> check_fits(1 << 60, "features of wild.npz")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: features of wild.npz: ... needed, more than ... memory. ...
    """
    have = machine_bytes()
    if needed > have:
        sizes = f"{needed / 1e9:,.1f} GB needed, more than the {have / 1e9:,.1f} GB of this machine's memory"
        raise UserError(f"{what}: {sizes}. Check the size it announces, or use a bigger machine.")


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

"""Sizes that a file or a request announces are checked here before anything is allocated."""

from __future__ import annotations

import os

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
        raise UserError(
            f"{what}: {needed / 1e9:,.1f} GB needed, more than the {have / 1e9:,.1f} GB of this machine's memory. "
            "Check the size it announces, or use a bigger machine."
        )

"""Where a rank is in its work, such as "layer 2, GATLayer": said of one that waits too long for the others.

A model says it going forward; an operation remembers it for its way back (`weft.kernels.function`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_here = threading.local()


def current() -> str:
    """The place of this thread, which is one rank; empty where nobody said."""
    return getattr(_here, "place", "")


@contextlib.contextmanager
def at(place: str) -> Iterator[None]:
    """What is done inside is done at `place`.

    >>> with at("layer 1"):
    ...     current()
    'layer 1'
    """
    before = current()
    _here.place = place
    try:
        yield
    finally:
        _here.place = before

"""Where commands write: never over what is there."""

from __future__ import annotations

import os

from ..errors import UserError


def new_store(path: str) -> None:
    """Refuse a name that is no store's or exists, before any work is done for it.

    >>> new_store("graph.txt")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: a store's name ends in .weft, 'graph.txt' does not. Use graph.txt.weft.
    """
    if not path.endswith(".weft"):
        raise UserError(f"a store's name ends in .weft, {path!r} does not. Use {path}.weft.")
    if os.path.lexists(path):
        raise UserError(f"{path} exists already. Choose another name, or remove it.")

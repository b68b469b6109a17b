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


def new_file(path: str, option: str) -> None:
    """Refuse a file that exists, or has no folder, before any work is done for it.

    >>> new_file("/", "--out")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: / exists already. Choose another --out, or remove it.
    """
    if os.path.lexists(path):
        raise UserError(f"{path} exists already. Choose another {option}, or remove it.")
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise UserError(f"no folder {folder} to write {os.path.basename(path)} into. Make it first.")


def write_new(path: str, text: str, option: str) -> None:
    """Write a file that was not there; one that has come meanwhile stays as it is."""
    try:
        with open(path, "x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path} exists already. Choose another {option}, or remove it.") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Choose another {option}.") from None

"""The one exception that a user's mistake raises, anywhere in weft."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MANY = 10
"""More names than this are listed only where none is close."""


class UserError(ValueError):
    """A mistake that the user can mend: one line that names the value and the remedy.

    The command line prints it on standard error and exits with status 2; never a traceback.

    >>> raise UserError("grid 4x2 needs 8 ranks, 6 were given. Use --ranks 8, or --grid 3x2.")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: grid 4x2 needs 8 ranks, 6 were given. Use --ranks 8, or --grid 3x2.
    """


def unknown(kind: str, value: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not among `choices`, with the closest match.

    >>> print(unknown("model", "gnc", ["gcn", "sage"]))
    unknown model 'gnc'. Did you mean 'gcn'? Known: gcn, sage.
    """
    names = list(choices)
    close = _closest(str(value), names)
    hint = f" Did you mean {close!r}?" if close else ""
    # Thirty names would bury the one that was meant.
    known = "" if close and len(names) > _MANY else f" Known: {', '.join(names)}."
    return UserError(f"unknown {kind} {str(value)!r}.{hint}{known}")


def _closest(value: str, names: list[str]) -> str | None:
    """The most similar name; among equals the one that begins alike. None where all are far.

    >>> _closest("gnc", ["gcn", "sgc"]), _closest("GCN", ["gcn", "sgc"]), _closest("transformer", ["gcn"])
    ('gcn', 'gcn', None)
    """
    word = value.lower()

    def nearness(name: str) -> tuple[float, int]:
        other = name.lower()
        alike = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(other))
        return difflib.SequenceMatcher(None, word, other).ratio(), alike

    best = max(names, key=nearness, default=None)
    return best if best is not None and nearness(best)[0] >= 0.5 else None

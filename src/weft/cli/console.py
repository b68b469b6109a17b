"""Who looks at our output: a person at a terminal, or a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def is_watched(stream: TextIO) -> bool:
    """Whether a stream is a terminal that understands more than lines.

    Under somebody's mpirun it never is: a rank's output seems to be a terminal there, and goes to a file.

    >>> import io
    >>> is_watched(io.StringIO())
    False
    """
    from ..comm import in_job

    foreign = in_job() and "WEFT_RANK" not in os.environ
    try:
        terminal = stream.isatty()
    except ValueError:  # it is closed
        terminal = False
    return terminal and not foreign and os.environ.get("TERM") != "dumb"


def console(stream: TextIO | None = None) -> Console:
    """Rich's console on a stream, by default standard output.

    No escape codes where nobody watches; no colours and no bold where NO_COLOR is set to anything.
    """
    from rich.console import Console

    stream = sys.stdout if stream is None else stream
    watched = is_watched(stream)
    plain = not watched or os.environ.get("NO_COLOR", "") != ""
    return Console(
        file=stream, force_terminal=watched, force_interactive=watched, color_system=None if plain else "auto"
    )

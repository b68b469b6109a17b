"""Streaming work of a command on the ranks that are there: one process, or those of mpirun and the like."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..signals import tidying

if TYPE_CHECKING:
    from ..graph.stream import Done, Options

Work = Callable[["Options", Any, Any], "Done"]
"""What is done with options, a tick for progress (or None), a team (or None)."""
_PATIENCE = 7 * 24 * 3600.0
"""Seconds that a rank waits for another: how long one reads is no sign that it hangs."""


def together(options: Options, work: Work) -> Done | None:
    """What came of it; None on ranks other than the first, which say nothing.

    The cores and, unless `--memory` says what a rank may use, the memory of a host are shared by its ranks.
    """
    from ..comm import connect, in_job
    from .progress import progress

    if not in_job():
        with tidying(), progress() as tick:
            return work(options, tick, None)
    from ..graph.guard import free_bytes
    from ..graph.stream.plan import resident_bytes
    from .ranks import raise_everywhere

    comm = connect("auto", _PATIENCE)
    here = socket.gethostname()
    local = comm.all_gather_json(here).count(here)
    threads = max(1, min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) // local))
    memory = options.memory or resident_bytes() + free_bytes() // 2 // local
    options = replace(options, threads=threads, memory=memory)
    try:
        with progress() if comm.rank == 0 else nullcontext() as tick:
            done = work(options, tick, comm)
    except UserError as error:
        raise_everywhere(comm, str(error))
        raise
    return done if comm.rank == 0 else None

"""Ranks and messages: one communicator on three engines, a ledger of what moves, a launcher.

Names are loaded when they are first used: starting ranks must not cost an import of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.comm.communicator import Communicator as Communicator
    from weft.comm.communicator import PeerLost as PeerLost
    from weft.comm.communicator import Request as Request
    from weft.comm.dry import Dry as Dry
    from weft.comm.launch import connect as connect
    from weft.comm.launch import in_job as in_job
    from weft.comm.ledger import Ledger as Ledger
    from weft.comm.run import run_ranks as run_ranks
    from weft.comm.threads import run_threads as run_threads

_HOMES = {
    "Communicator": "communicator",
    "PeerLost": "communicator",
    "Request": "communicator",
    "Dry": "dry",
    "Ledger": "ledger",
    "connect": "launch",
    "in_job": "launch",
    "run_ranks": "run",
    "run_threads": "threads",
}

__all__ = [
    "Communicator",
    "Dry",
    "Ledger",
    "PeerLost",
    "Request",
    "connect",
    "in_job",
    "run_ranks",
    "run_threads",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"weft.comm.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'weft.comm' has no attribute {name!r}")

"""Ranks and messages: one communicator on three engines, a ledger of what moves, a launcher."""

from weft.comm.communicator import Communicator, PeerLost, Request
from weft.comm.ledger import Ledger
from weft.comm.testing import run_ranks
from weft.comm.threads import run_threads

__all__ = ["Communicator", "Ledger", "PeerLost", "Request", "run_ranks", "run_threads"]

"""What every rank sent and received, by phase: words, messages and seconds.

The counts are logical: they follow from the operation and its sizes, never from the engine. A word is one
element of a tensor, whatever its type. A message is one peer touched with at least one word. For a group of
g ranks, with b(r) the words of rank r's block, m = sum of all b, and "others" the peers whose block is not
empty:

    operation       words sent        words received    messages sent    messages received
    broadcast       m (root)          m (not root)      g-1 (root)       1 (not root)
    all_gather      b(r) (g-1)        m - b(r)          g-1 if b(r)>0    others
    reduce_scatter  m - b(r)          b(r) (g-1)        others           g-1 if b(r)>0
    all_reduce      both of the above, with the m words cut into g blocks as even as they can be,
                    longer ones first: m + b(r) (g-2), which is 2m(g-1)/g where g divides m
    all_to_all      what goes to others, what comes from others; one message a peer with words
    iswap           what is given, what is taken; one message a tensor with words

A message of no words counts nothing, nor does what a rank sends to itself, nor bookkeeping (`split`,
`barrier`, the sizes that `all_gather` asks for when it is not told them).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..tables import columns

if TYPE_CHECKING:
    from types import TracebackType

    from weft.comm.communicator import Communicator


class Slot(Protocol):
    """Where a rank writes what it waits for: see `watchdog`."""

    def enter(self, phase: str, name: str) -> None: ...

    def leave(self) -> None: ...


class Traffic(NamedTuple):
    """What one call moves on one rank."""

    words_sent: int
    words: int
    messages_sent: int
    messages: int


def broadcast(words: int, root: int, rank: int, size: int) -> Traffic:
    """
    >>> broadcast(10, root=0, rank=0, size=4)
    Traffic(words_sent=10, words=0, messages_sent=3, messages=0)
    """
    if words == 0 or size == 1:
        return Traffic(0, 0, 0, 0)
    return Traffic(words, 0, size - 1, 0) if rank == root else Traffic(0, words, 0, 1)


def all_gather(blocks: Sequence[int], rank: int) -> Traffic:
    """
    >>> all_gather([3, 0, 4], rank=0)
    Traffic(words_sent=6, words=4, messages_sent=2, messages=1)
    """
    own, peers = blocks[rank], len(blocks) - 1
    others = sum(1 for words in blocks if words) - (own > 0)
    return Traffic(own * peers, sum(blocks) - own, peers if own else 0, others)


def reduce_scatter(blocks: Sequence[int], rank: int) -> Traffic:
    """
    >>> reduce_scatter([3, 0, 4], rank=0)
    Traffic(words_sent=4, words=6, messages_sent=1, messages=2)
    """
    sent, received, messages_sent, messages = all_gather(blocks, rank)
    return Traffic(received, sent, messages, messages_sent)


def all_reduce(words: int, rank: int, size: int) -> Traffic:
    """
    >>> all_reduce(12, rank=0, size=4)
    Traffic(words_sent=18, words=18, messages_sent=6, messages=6)
    >>> all_reduce(1, rank=0, size=4), all_reduce(1, rank=3, size=4)[:2]
    (Traffic(words_sent=3, words=3, messages_sent=3, messages=3), (1, 1))
    """
    least, more = divmod(words, size)
    own = least + (rank < more)
    moved = words - own + own * (size - 1)
    # A rank with a block meets every peer for it, and meets the owner of every other block.
    owners = size if least else more
    messages = (size - 1 if own else 0) + owners - (own > 0)
    return Traffic(moved, moved, messages, messages)


def all_to_all(send: Sequence[int], receive: Sequence[int], rank: int) -> Traffic:
    """
    >>> all_to_all([5, 1, 0], [5, 2, 2], rank=0)
    Traffic(words_sent=1, words=4, messages_sent=1, messages=2)
    """
    messages_sent = sum(1 for words in send if words) - (send[rank] > 0)
    messages = sum(1 for words in receive if words) - (receive[rank] > 0)
    return Traffic(sum(send) - send[rank], sum(receive) - receive[rank], messages_sent, messages)


def swap(give: Sequence[int], take: Sequence[int]) -> Traffic:
    """
    >>> swap([5, 0, 1], [2])
    Traffic(words_sent=6, words=2, messages_sent=2, messages=1)
    """
    return Traffic(sum(give), sum(take), sum(1 for n in give if n), sum(1 for n in take if n))


class Flow(NamedTuple):
    """What one call moves on one rank, peer by peer: words to and from each rank of the group, 0 for itself.

    `received` adds up to the words of `Traffic`, call by call; `sent` to rank r is what r receives from here.

        operation       received from p       sent to p
        broadcast       m (p is the root)     m (we are the root)
        all_gather      b(p)                  b(r)
        reduce_scatter  b(r)                  b(p)
        all_reduce      b(p) + b(r)           b(p) + b(r)
    """

    sent: list[int]
    received: list[int]


def broadcast_flow(words: int, root: int, rank: int, size: int) -> Flow:
    """
    >>> broadcast_flow(10, root=0, rank=0, size=3), broadcast_flow(10, root=0, rank=2, size=3)
    (Flow(sent=[0, 10, 10], received=[0, 0, 0]), Flow(sent=[0, 0, 0], received=[10, 0, 0]))
    """
    sent = [words if rank == root != p else 0 for p in range(size)]
    return Flow(sent, [words if p == root != rank else 0 for p in range(size)])


def all_gather_flow(blocks: Sequence[int], rank: int) -> Flow:
    """
    >>> all_gather_flow([3, 0, 4], rank=0)
    Flow(sent=[0, 3, 3], received=[0, 0, 4])
    """
    sent = [0 if p == rank else blocks[rank] for p in range(len(blocks))]
    return Flow(sent, [0 if p == rank else words for p, words in enumerate(blocks)])


def reduce_scatter_flow(blocks: Sequence[int], rank: int) -> Flow:
    """
    >>> reduce_scatter_flow([3, 0, 4], rank=0)
    Flow(sent=[0, 0, 4], received=[0, 3, 3])
    """
    sent, received = all_gather_flow(blocks, rank)
    return Flow(received, sent)


def all_reduce_flow(words: int, rank: int, size: int) -> Flow:
    """
    >>> all_reduce_flow(5, rank=0, size=2)
    Flow(sent=[0, 5], received=[0, 5])
    """
    least, more = divmod(words, size)
    blocks = [least + (p < more) for p in range(size)]
    both = [0 if p == rank else block + blocks[rank] for p, block in enumerate(blocks)]
    return Flow(both, list(both))


def all_to_all_flow(send: Sequence[int], receive: Sequence[int], rank: int) -> Flow:
    """
    >>> all_to_all_flow([5, 1, 0], [5, 2, 2], rank=0)
    Flow(sent=[0, 1, 0], received=[0, 2, 2])
    """
    sent, received = list(send), list(receive)
    sent[rank] = received[rank] = 0
    return Flow(sent, received)


def swap_flow(give: int, target: int, take: int, source: int, size: int) -> Flow:
    """
    >>> swap_flow(6, 1, 2, 2, size=3)
    Flow(sent=[0, 6, 0], received=[0, 0, 2])
    """
    sent, received = [0] * size, [0] * size
    sent[target], received[source] = give, take
    return Flow(sent, received)


class Moved(NamedTuple):
    """What one call moved between this rank and others, which are numbered as at the start of the job."""

    line: str
    """The name of the communicator: the axis."""
    sent: tuple[tuple[int, int, int], ...]
    """(rank, words, bytes) to each rank that got anything."""
    received: tuple[tuple[int, int, int], ...]


class Event(NamedTuple):
    """One call in time."""

    phase: str
    call: str
    start: float
    """On the clock of `time.perf_counter`."""
    seconds: float
    waiting: bool = False
    """Whether it waited for the end of a call that was made before."""
    moved: Moved | None = None


class Notes(Protocol):
    """Who wants to know each message of a dry run, in order."""

    def post(self, message: Message, blocking: bool) -> Callable[[], None]:
        """It begins; what is returned is called where the rank waits for its end."""


class Message(NamedTuple):
    """One call as this rank sees it, in bytes."""

    call: str
    line: str
    """The name of the communicator: the axis."""
    sent: tuple[tuple[int, int], ...]
    """(a rank of the line, bytes to it); nothing to itself."""
    received: tuple[tuple[int, int], ...]
    size: int
    """Ranks of the line."""


class RankState:
    """What all communicators of one rank share: the open ledgers, and the slot the watchdog reads; of ranks
    that are planned, who notes their messages one by one."""

    __slots__ = ("ledgers", "notes", "slot")

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.slot: Slot | None = None
        self.notes: Notes | None = None


# A process is one rank, except on the engine `threads`, where every thread is one.
_process = RankState()
_thread = threading.local()


def here() -> RankState:
    """The state of the rank that this thread is."""
    state: RankState = getattr(_thread, "state", _process)
    return state


def become(state: RankState) -> None:
    """Make this thread the rank of `state`."""
    _thread.state = state


@dataclass
class Line:
    """One phase of a ledger."""

    words: int = 0
    """Words received."""
    messages: int = 0
    """Messages received."""
    words_sent: int = 0
    messages_sent: int = 0
    seconds: float = 0.0
    """Time spent inside calls and in `wait`; what a request travels while the rank computes is not in it."""
    waited: float = 0.0
    """The part of `seconds` spent in `wait`."""


class Ledger:
    """Counts what this rank moves while it is open; ledgers may be nested, and each counts for itself.

    `Ledger()` belongs to the rank of the thread that opens it, `Ledger(comm)` to the rank of `comm`. It
    counts the calls of every communicator of that rank, sub-communicators too.

    >>> import torch
    >>> from weft.comm import Ledger, run_ranks
    >>> def work(comm):
    ...     with Ledger() as ledger:
    ...         comm.all_reduce(torch.ones(6), phase="grad")
    ...     return ledger.words("grad"), ledger.messages("grad")
    >>> run_ranks(work, 3, "threads")
    [(8, 4), (8, 4), (8, 4)]
    """

    def __init__(
        self, comm: Communicator | None = None, keep_events: bool = False, most: int | None = None
    ) -> None:
        self._state = comm.state if comm is not None else None
        self.events: list[Event] | None = [] if keep_events else None
        """Every call where `keep_events`, or the first `most` of them, with its peers and bytes."""
        self._most = most
        self._peers: dict[int, tuple[int, int]] = {}
        self._lines: dict[str, Line] = {}
        self._open_in: list[RankState] = []

    def __enter__(self) -> Ledger:
        state = self._state or here()
        # A new list instead of an append: a call under way in another thread keeps the list it started with.
        state.ledgers = [*state.ledgers, self]
        self._open_in.append(state)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._open_in.pop()
        ledgers = list(state.ledgers)
        for place in reversed(range(len(ledgers))):
            if ledgers[place] is self:
                del ledgers[place]
                break
        state.ledgers = ledgers

    def count(
        self,
        phase: str,
        traffic: Traffic | None,
        seconds: float = 0.0,
        call: str = "",
        start: float = 0.0,
        waiting: bool = False,
        moved: Moved | None = None,
    ) -> None:
        """Add one call to the line of `phase`."""
        line = self._lines.get(phase)
        if line is None:
            line = self._lines[phase] = Line()
        line.seconds += seconds
        if waiting:
            line.waited += seconds
        if self.events is not None and (self._most is None or len(self.events) < self._most):
            self.events.append(Event(phase, call, start, seconds, waiting, moved))
        for rank, words, size in moved.received if moved is not None else ():
            before = self._peers.get(rank, (0, 0))
            self._peers[rank] = before[0] + words, before[1] + size
        if traffic is not None:
            line.words_sent += traffic[0]
            line.words += traffic[1]
            line.messages_sent += traffic[2]
            line.messages += traffic[3]

    @property
    def phases(self) -> list[str]:
        """The phases seen, in the order of their first call."""
        return list(self._lines)

    def _sum(self, field: str, phase: str | None) -> Any:
        if phase is None:
            return sum(getattr(line, field) for line in self._lines.values())
        return getattr(self._lines.get(phase, Line()), field)

    def words(self, phase: str | None = None) -> int:
        """Words received in `phase`, or in all phases."""
        return int(self._sum("words", phase))

    def messages(self, phase: str | None = None) -> int:
        """Messages received in `phase`, or in all phases."""
        return int(self._sum("messages", phase))

    def words_sent(self, phase: str | None = None) -> int:
        """Words sent in `phase`, or in all phases."""
        return int(self._sum("words_sent", phase))

    def messages_sent(self, phase: str | None = None) -> int:
        """Messages sent in `phase`, or in all phases."""
        return int(self._sum("messages_sent", phase))

    def seconds(self, phase: str | None = None) -> float:
        """Seconds spent in communication in `phase`, or in all phases."""
        return float(self._sum("seconds", phase))

    def waited(self, phase: str | None = None) -> float:
        """The part of those seconds spent waiting for requests."""
        return float(self._sum("waited", phase))

    def peers(self) -> dict[int, tuple[int, int]]:
        """Words and bytes received from each rank of the job, where `keep_events`.

        >>> import torch
        >>> from weft.comm import Ledger, run_ranks
        >>> def work(comm):
        ...     with Ledger(comm, keep_events=True) as ledger:
        ...         comm.broadcast(torch.ones(6), root=1)
        ...     return ledger.peers()
        >>> run_ranks(work, 3, "threads")
        [{1: (6, 24)}, {}, {1: (6, 24)}]
        """
        return dict(sorted(self._peers.items()))

    def clear(self) -> None:
        """Forget everything counted so far; the ledger stays open."""
        self._lines.clear()
        self._peers.clear()
        if self.events is not None:
            self.events.clear()

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Phase by phase, for programs.

        >>> ledger = Ledger()
        >>> ledger.count("gather", Traffic(0, 12, 0, 3), 0.5)
        >>> ledger.as_dict()["gather"]
        {'words': 12, 'messages': 3, 'words_sent': 0, 'messages_sent': 0, 'seconds': 0.5, 'waited': 0.0}
        """
        return {phase: dict(vars(line)) for phase, line in self._lines.items()}

    def table(self) -> str:
        """Phase by phase, for people.

        >>> ledger = Ledger()
        >>> ledger.count("gather", Traffic(0, 1200, 0, 3), 0.5)
        >>> print(ledger.table())
        phase   words  messages  words sent  messages sent  seconds
        gather  1,200         3           0              0   0.5000
        total   1,200         3           0              0   0.5000
        """
        head = ["phase", "words", "messages", "words sent", "messages sent", "seconds"]
        total = Line(
            self.words(), self.messages(), self.words_sent(), self.messages_sent(), seconds=self.seconds()
        )
        rows = [
            [
                phase,
                f"{line.words:,}",
                f"{line.messages:,}",
                f"{line.words_sent:,}",
                f"{line.messages_sent:,}",
                f"{line.seconds:.4f}",
            ]
            for phase, line in [*self._lines.items(), ("total", total)]
        ]
        return columns(head, rows)

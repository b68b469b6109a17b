"""The engine `threads`: P virtual ranks in one process, for quick tests and for exact counts at 64 or 512
ranks.

Every rank is a thread. A call leaves a copy of what it sends on a board, and a rank that needs a piece not
yet there sleeps until it is. The n-th collective call of each rank on a communicator meets the n-th of the
others; that they agree (same operation, root, sizes) is checked, which MPI does not do. Sums are in the
order of ranks.

All waiting goes through one lock, so the engine knows when everybody waits: a deadlock is an error at once,
and names who waits where.

One rank runs at a time, until it has to wait; then the one that could go on first has its turn. So a run has
one order of events, and threads don't take Python's lock from each other within every operation of torch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm import ledger
from weft.comm.communicator import Communicator, PeerLost, Work
from weft.comm.ledger import RankState
from weft.errors import UserError
from weft.place import current


class _Waiter:
    """A rank that sleeps, or could go on and waits for its turn; woken once."""

    __slots__ = ("lock", "place", "woken")

    def __init__(self, place: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.place = place
        self.woken = False


class Deadlock(PeerLost):
    """Every rank waits for another."""


class _Whereabouts:
    """The phase and the operation a rank is in, as the watchdog's slot keeps them for real ranks."""

    __slots__ = ("name", "phase")

    def __init__(self) -> None:
        self.phase = self.name = ""

    def enter(self, phase: str, name: str) -> None:
        self.phase, self.name = phase, name

    def leave(self) -> None:
        pass


class _Pending:
    """Something a rank may wait for: ready when the pieces it needs are on the board."""

    __slots__ = ("finish", "place", "ready", "waiters", "world")

    def __init__(self, world: World, place: int, finish: Callable[[], None]) -> None:
        self.world = world
        self.place = place
        self.finish = finish
        self.ready = False
        self.waiters: list[_Waiter] = []

    def wait(self) -> None:
        if not self.ready:
            self.world.sleep(self.place, [self])
        self.finish()

    def test(self) -> bool:
        self.world.check()
        if self.ready:
            self.finish()
            return True
        self.world.pause(self.place)  # a rank that asks in a loop lets the others run
        return False


class _Meeting:
    """The n-th collective call on a communicator."""

    __slots__ = (
        "at", "pieces", "posted", "result", "root", "signature", "taken", "waiting_all", "waiting_root",
    )  # fmt: skip

    def __init__(self, size: int, signature: tuple[Any, ...], root: int | None) -> None:
        self.signature = signature
        self.at = current()  # of the rank that came first
        self.root = root
        self.pieces: list[Any] = [None] * size
        self.posted = 0
        self.taken = 0
        self.result: Any = None
        self.waiting_all: list[_Pending] = []
        self.waiting_root: list[_Pending] = []


class World:
    """The board that all virtual ranks of a job share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.alive = size
        self.asleep: dict[int, _Waiter] = {}
        self.turns: deque[_Waiter] = deque()  # who could go on, in this order
        self.where = [_Whereabouts() for _ in range(size)]
        self.failed: PeerLost | None = None
        self.groups: dict[tuple[Any, ...], _Group] = {}

    # Called with the lock held: all but `begin`, `pause`, `sleep`, `leave`, `fail` and `interrupt`.

    def group(self, key: tuple[Any, ...], size: int) -> _Group:
        if key not in self.groups:
            self.groups[key] = _Group(size)
        return self.groups[key]

    def wake(self, pending: _Pending) -> None:
        pending.ready = True
        for waiter in pending.waiters:
            self._rouse(waiter)
        pending.waiters.clear()

    def _rouse(self, waiter: _Waiter) -> None:
        if not waiter.woken:
            waiter.woken = True
            del self.asleep[waiter.place]
            self.turns.append(waiter)

    def _next(self) -> None:
        """The running rank stops: another has its turn."""
        if self.turns:
            self.turns.popleft().lock.release()

    def check(self) -> None:
        """Raise where another rank has failed."""
        if self.failed is not None:
            raise type(self.failed)(*self.failed.args)

    def _break(self, reason: PeerLost) -> None:
        if self.failed is None:
            self.failed = reason
        for waiter in list(self.asleep.values()):
            self._rouse(waiter)

    def begin(self) -> list[_Waiter]:
        """What each rank waits for before its first step."""
        with self.lock:
            first = [_Waiter(place) for place in range(self.size)]
            self.turns.extend(first)
            self._next()
        return first

    def pause(self, place: int) -> None:
        """Let those go on who can."""
        with self.lock:
            if not self.turns:
                return
            waiter = _Waiter(place)
            self.turns.append(waiter)
            self._next()
        waiter.lock.acquire()

    def sleep(self, place: int, pendings: Sequence[_Pending]) -> None:
        """Sleep until one of `pendings` is ready."""
        with self.lock:
            self.check()
            if any(pending.ready for pending in pendings):
                return
            waiter = _Waiter(place)
            for pending in pendings:
                pending.waiters.append(waiter)
            self.asleep[place] = waiter
            self._break_if_stuck()
            self._next()
        waiter.lock.acquire()
        with self.lock:
            for pending in pendings:
                if waiter in pending.waiters:
                    pending.waiters.remove(waiter)
            self.check()

    def _break_if_stuck(self) -> None:
        if self.failed is not None or not self.asleep or len(self.asleep) < self.alive:
            return
        places = sorted(self.asleep)
        waits = "; ".join(
            f"rank {place} in phase {self.where[place].phase!r} ({self.where[place].name})"
            for place in places[:8]
        )
        more = f"; and {len(places) - 8} more" if len(places) > 8 else ""
        gone = self.size - self.alive
        ended = f" ({gone} of {self.size} ranks have already returned)" if gone else ""
        self._break(Deadlock(f"deadlock: every rank waits for another{ended}: {waits}{more}"))

    def leave(self) -> None:
        """A rank returned."""
        with self.lock:
            self.alive -= 1
            self._break_if_stuck()
            self._next()

    def interrupt(self) -> None:
        """Somebody outside of the ranks ends them all."""
        with self.lock:
            self._break(PeerLost("interrupted"))

    def fail(self, place: int, error: BaseException) -> None:
        """A rank raised: everybody else stops."""
        with self.lock:
            self.alive -= 1
            self._break(PeerLost(f"rank {place} failed: {type(error).__name__}: {error}"))
            self._next()


class _Group:
    """The meetings and mailboxes of one communicator."""

    __slots__ = ("boxes", "meetings", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.meetings: dict[int, _Meeting] = {}
        self.boxes: dict[tuple[int, int], _Mailbox] = {}

    def mail(self, way: tuple[int, int]) -> _Mailbox:
        """What travels from one rank to another."""
        return self.boxes.setdefault(way, _Mailbox())


class _Mailbox:
    """Swaps from one rank to another, in their order: those sent and not yet expected, or the other way."""

    __slots__ = ("expected", "sent")

    def __init__(self) -> None:
        self.sent: deque[list[Tensor]] = deque()
        self.expected: deque[Callable[[list[Tensor]], None]] = deque()

    def send(self, pieces: list[Tensor]) -> None:
        if self.expected:
            self.expected.popleft()(pieces)
        else:
            self.sent.append(pieces)

    def expect(self, deliver: Callable[[list[Tensor]], None]) -> None:
        if self.sent:
            deliver(self.sent.popleft())
        else:
            self.expected.append(deliver)


class ThreadCommunicator(Communicator):
    """A communicator among virtual ranks."""

    engine = "threads"

    def __init__(
        self,
        world: World,
        key: tuple[Any, ...],
        rank: int,
        size: int,
        place: int,
        state: RankState,
        name: str,
    ) -> None:
        super().__init__(rank, size, state, name)
        self._world = world
        self._key = key
        self._place = place  # the rank in the world, for messages about waiting
        self._calls = 0
        with world.lock:
            self._group = world.group(key, size)

    def _meet(
        self,
        signature: tuple[Any, ...],
        piece: Any,
        finish: Callable[[_Meeting], None],
        blocking: bool,
        root: int | None = None,
        combine: Callable[[list[Any]], Any] | None = None,
    ) -> Work | None:
        """Leave `piece` on the board; `finish` runs in this rank's `wait`, when what it needs is there.

        That is the piece of `root` where there is one, else everybody's.
        `combine` turns the pieces into one result, once, by the rank that comes last.
        """
        world, group = self._world, self._group
        number = self._calls
        self._calls += 1
        pending = _Pending(world, self._place, lambda: None)
        with world.lock:
            world.check()
            meeting = group.meetings.get(number)
            if meeting is None:
                meeting = group.meetings[number] = _Meeting(group.size, signature, root)
            elif meeting.signature != signature:
                theirs = f" at {meeting.at}" if meeting.at else ""
                raise UserError(
                    f"rank {self.rank} of {self.name!r} calls {_describe(signature)} where another rank "
                    f"calls {_describe(meeting.signature)}{theirs}. "
                    "Make the same calls in the same order everywhere."
                )
            meeting.pieces[self.rank] = piece
            meeting.posted += 1
            last = meeting.posted == group.size
            if root is None:
                meeting.waiting_all.append(pending)
            elif meeting.pieces[root] is None:
                meeting.waiting_root.append(pending)
            else:
                pending.ready = True
            if root == self.rank:
                for other in meeting.waiting_root:
                    world.wake(other)
                meeting.waiting_root.clear()
            if last and combine is None:
                for other in meeting.waiting_all:
                    world.wake(other)
        if last and combine is not None:
            # Outside the lock, because it may take long; nobody else can touch the meeting meanwhile.
            meeting.result = combine(meeting.pieces)
            with world.lock:
                for other in meeting.waiting_all:
                    world.wake(other)

        def complete() -> None:
            finish(meeting)
            pending.finish = lambda: None
            with world.lock:
                meeting.taken += 1
                if meeting.taken == group.size:
                    group.meetings.pop(number, None)

        pending.finish = complete
        if blocking:
            pending.wait()
            return None
        return pending

    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None:
        mine = self.rank == root

        def finish(meeting: _Meeting) -> None:
            if not mine:
                _copy(x, meeting.pieces[root], "broadcast")

        piece = x.clone() if mine else None
        return self._meet(("broadcast", root), piece, finish, blocking, root=root)

    def _all_reduce(self, x: Tensor, out: Tensor, op: str, blocking: bool) -> Work | None:
        def combine(pieces: list[Tensor]) -> Tensor:
            return _fold(pieces, op, torch.empty_like(pieces[0]))

        signature = ("all_reduce", op, x.numel(), x.dtype)
        return self._meet(
            signature,
            x.clone(),
            lambda meeting: _copy(out, meeting.result, "all_reduce"),
            blocking,
            combine=combine,
        )

    def _reduce_scatter(
        self, x: Tensor, out: Tensor, counts: list[int], op: str, blocking: bool
    ) -> Work | None:
        start = sum(counts[: self.rank])
        stop = start + counts[self.rank]

        def finish(meeting: _Meeting) -> None:
            _fold([piece[start:stop] for piece in meeting.pieces], op, out.view(-1))

        signature = ("reduce_scatter", op, tuple(counts), x.dtype)
        return self._meet(signature, x.clone().view(-1), finish, blocking)

    def _all_gather(self, x: Tensor, out: Tensor, counts: list[int], blocking: bool) -> Work | None:
        def finish(meeting: _Meeting) -> None:
            torch.cat(meeting.pieces, out=out.view(-1))

        signature = ("all_gather", tuple(counts), x.dtype)
        return self._meet(signature, x.clone().view(-1), finish, blocking)

    def _all_to_all(
        self, x: Tensor, out: Tensor, send: list[int], receive: list[int], width: int, blocking: bool
    ) -> Work | None:
        def finish(meeting: _Meeting) -> None:
            blocks = [piece[self.rank] for piece in meeting.pieces]
            for peer, (block, count) in enumerate(zip(blocks, receive, strict=True)):
                if block.numel() != count:
                    raise UserError(
                        f"all_to_all on {self.name!r}: rank {peer} sends {block.numel()} words to rank "
                        f"{self.rank}, which expects {count}. Make send_sizes and recv_sizes agree."
                    )
            torch.cat(blocks, out=out.view(-1))

        mine = x.clone().view(-1).split(send)
        return self._meet(("all_to_all", x.dtype), mine, finish, blocking)

    def _swap(
        self, give: list[Tensor], target: int, take: list[Tensor], source: int, blocking: bool
    ) -> Work | None:
        world, group = self._world, self._group
        take = [x for x in take if x.numel()]
        arrived: list[list[Tensor]] = []
        pending = _Pending(world, self._place, lambda: None)

        def finish() -> None:
            pending.finish = lambda: None
            if len(arrived[0]) != len(take):
                raise UserError(
                    f"iswap: {len(arrived[0])} tensors arrive from rank {source}, {len(take)} are expected. "
                    "Make the same swaps in the same order everywhere."
                )
            for x, piece in zip(take, arrived[0], strict=True):
                _copy(x, piece, f"iswap from rank {source}")

        def deliver(pieces: list[Tensor]) -> None:
            arrived.append(pieces)
            world.wake(pending)

        pieces = [x.clone() for x in give if x.numel()]
        with world.lock:
            world.check()
            if pieces:
                group.mail((self.rank, target)).send(pieces)
            if take:
                group.mail((source, self.rank)).expect(deliver)
        if not take:
            return None
        pending.finish = finish
        return pending

    def _barrier(self, blocking: bool) -> Work | None:
        return self._meet(("barrier",), None, lambda meeting: None, blocking)

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        number = self._calls
        taken: list[tuple[int | None, int, int]] = []
        self._meet(("split",), (color, key, self.rank), lambda meeting: taken.extend(meeting.pieces), True)
        if color is None:
            return None
        members = sorted((k, rank) for c, k, rank in taken if c == color)
        mine = members.index((key, self.rank))
        part = ThreadCommunicator(
            self._world, (*self._key, number, color), mine, len(members), self._place, self.state, name
        )
        part.members = [self.members[rank] for _, rank in members]
        return part


def _describe(signature: tuple[Any, ...]) -> str:
    return f"{signature[0]}({', '.join(str(part) for part in signature[1:])})"


def _copy(target: Tensor, source: Tensor, name: str) -> None:
    if target.numel() != source.numel() or target.dtype != source.dtype:
        raise UserError(
            f"{name}: {source.numel()} words of {source.dtype} arrive, the tensor holds {target.numel()} of "
            f"{target.dtype}. Give both sides the same shape and type."
        )
    target.view(-1).copy_(source.view(-1))


def _fold(pieces: Sequence[Tensor], op: str, out: Tensor) -> Tensor:
    """pieces[0] op pieces[1] op …, in this order, into `out`, which may not be one of them."""
    out.copy_(pieces[0])
    for piece in pieces[1:]:
        if op == "sum":
            out.add_(piece)
        elif op == "max":
            torch.maximum(out, piece, out=out)
        else:
            torch.minimum(out, piece, out=out)
    return out


def single() -> Communicator:
    """The communicator of a process that is alone.

    >>> single().all_reduce(torch.ones(2)).tolist()
    [1.0, 1.0]
    """
    return ThreadCommunicator(World(1), (), 0, 1, 0, ledger.here(), "world")


def run_threads(fn: Callable[..., Any], ranks: int, *args: Any) -> list[Any]:
    """`fn(comm, *args)` on `ranks` virtual ranks; the results by rank, or the first failure.

    >>> run_threads(lambda comm, x: comm.rank * x, 3, 10)
    [0, 10, 20]
    """
    if ranks < 1:
        raise UserError(f"{ranks} ranks were asked for. Use 1 or more.")
    world = World(ranks)
    results: list[Any] = [None] * ranks
    failures: list[tuple[int, BaseException]] = []

    def body(rank: int) -> None:
        state = RankState()
        state.slot = world.where[rank]
        ledger.become(state)
        turns[rank].lock.acquire()
        try:
            # OpenMP keeps threads of its own for each rank: one each for the arithmetic.
            torch.set_num_threads(1)
            results[rank] = fn(ThreadCommunicator(world, (), rank, ranks, rank, state, "world"), *args)
        except BaseException as error:
            failures.append((rank, error))
            world.fail(rank, error)
        else:
            world.leave()

    before, turns = torch.get_num_threads(), world.begin()
    workers = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}") for rank in range(ranks)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:  # it comes to this thread alone: the ranks stop at their next message
        world.interrupt()
        for worker in workers:
            worker.join()
        raise
    finally:
        torch.set_num_threads(before)
    if failures:
        causes = [failure for failure in failures if not isinstance(failure[1], PeerLost)] or failures
        rank, error = causes[0]
        error.add_note(f"raised on rank {rank} of {ranks} (engine threads)")
        error.rank = rank  # type: ignore[attr-defined]
        raise error
    return results

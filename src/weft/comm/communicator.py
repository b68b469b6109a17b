"""The communicator: a group of ranks and the operations among them, the same on every engine.

This file checks arguments, keeps the ledger and tells the watchdog where a rank waits, once for all
engines. An engine (`mpi`, `torch_distributed`, `threads`) moves raw buffers and does nothing else.

Device. A communicator has none: an operation works where its tensors are, and puts its result there. What
the ranks tell each other besides (sizes, plain data) travels in CPU memory.

Memory. No operation writes to the tensor it is given, but for `broadcast`, which fills it. Results go to
`out` where it is given, else to a new tensor; `out` may be `x` itself in `all_reduce`. What is written must
be contiguous; what is only read is copied where it is not. A non-blocking call reads and writes its tensors
until `wait` returns or `test` is true: leave them alone until then, and wait for every request.

Sums. The engine `threads` adds in the order of ranks; MPI, gloo and NCCL choose their own order, so that
sums of floats may differ in the last digits from engine to engine. On bool, sum and max are "or", min is
"and".
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from weft import place
from weft.comm import ledger as tally
from weft.comm.arguments import (
    bytes_a_word,
    check_op,
    check_out,
    check_root,
    check_sizes,
    check_written,
    make_out,
    plain,
    readable,
    rows_of,
    words_of,
)
from weft.comm.ledger import Flow, Ledger, Moved, RankState, Traffic
from weft.errors import UserError


class PeerLost(RuntimeError):
    """Another rank ended or failed while this one was waiting for it: the cause is over there."""


class Work(Protocol):
    """An operation under way, as an engine sees it."""

    def wait(self) -> None: ...

    def test(self) -> bool: ...


class Request:
    """An operation under way: `wait()` returns its result, `test()` tells whether it is there.

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     request = comm.iall_gather(torch.tensor([comm.rank]))
    ...     return request.wait().tolist()
    >>> run_ranks(work, 2, "threads")
    [[0, 1], [0, 1]]
    """

    __slots__ = ("_comm", "_name", "_phase", "_result", "_work")

    def __init__(self, comm: Communicator, call: _Call, phase: str, work: Work | None) -> None:
        self._comm = comm
        self._name = call.name  # not the call: what was sent may go when the work is done
        self._phase = phase
        self._result = call.result
        self._work = work

    @property
    def done(self) -> bool:
        """Whether `wait` or `test` has already seen the end; asks nobody."""
        return self._work is None

    def wait(self) -> Any:
        """Wait for the end; the result, as the blocking operation would return it."""
        if self._work is not None:
            self._comm._timed(self._phase, self._name, self._work.wait, waiting=True)
            self._work = None
        return self._result

    def test(self) -> bool:
        """Whether the operation has ended; never waits."""
        if self._work is not None and self._work.test():
            self._work = None
        return self._work is None


class _Call:
    """A checked call: what to move, what to return, what to write in the ledger."""

    __slots__ = ("args", "flow", "name", "raw", "result", "sizes", "traffic")

    def __init__(
        self,
        name: str,
        raw: Callable[..., Work | None] | None,
        args: tuple[Any, ...],
        result: Tensor | tuple[Tensor, ...] | None,
        traffic: Callable[[], Traffic] | None,
        flow: Callable[[], Flow] | None = None,
        sizes: tuple[float, float] = (1, 1),
    ) -> None:
        self.name = name
        self.raw = raw
        self.args = args
        self.result = result
        self.traffic = traffic
        self.flow = flow
        self.sizes = sizes  # bytes of a word that is sent, and of one that is received


class Communicator(ABC):
    """`size` ranks that can talk to each other; this process (or thread) is number `rank` of them.

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> def work(comm):
    ...     x = torch.full((2,), float(comm.rank))
    ...     return comm.all_gather(x).tolist()
    >>> run_ranks(work, 2, "threads")
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    """

    engine: str
    """How its messages move: mpi, torch or threads."""
    takes_meta = False
    """Whether tensors on the device meta, which hold no numbers, may be given: see `dry`."""

    def __init__(self, rank: int, size: int, state: RankState, name: str) -> None:
        self.rank = rank
        self.size = size
        self.state = state
        self.name = name
        self.members: Sequence[int] = range(size)
        """The number that each rank of the group has in the job; `split` tells its parts."""
        self.hosts: Sequence[int] = [0] * size
        """The number of the host that each rank of the group is on; found out when ranks meet."""

    def __repr__(self) -> str:
        return f"<Communicator {self.name!r}: rank {self.rank} of {self.size}, {self.engine}>"

    # --- the operations -------------------------------------------------------------------------------------

    def broadcast(self, x: Tensor, root: int, *, phase: str = "other") -> Tensor:
        """x of `root`, written into every rank's `x`; returns x.

        >>> from weft.comm import run_ranks
        >>> run_ranks(lambda comm: comm.broadcast(torch.tensor([comm.rank]), root=1).item(), 3, "threads")
        [1, 1, 1]
        """
        return self._now(self._broadcast_call(x, root), phase)

    def ibroadcast(self, x: Tensor, root: int, *, phase: str = "other") -> Request:
        """`broadcast`, without waiting."""
        return self._later(self._broadcast_call(x, root), phase)

    def all_reduce(
        self, x: Tensor, op: str = "sum", out: Tensor | None = None, *, phase: str = "other"
    ) -> Tensor:
        """The sum (or max, min) over ranks, on every rank; `out=x` works in place.

        >>> from weft.comm import run_ranks
        >>> run_ranks(lambda comm: comm.all_reduce(torch.tensor([comm.rank]), "max").item(), 3, "threads")
        [2, 2, 2]
        """
        return self._now(self._all_reduce_call(x, op, out), phase)

    def ireduce_scatter(
        self,
        x: Tensor,
        sizes: Sequence[int],
        out: Tensor | None = None,
        op: str = "sum",
        *,
        phase: str = "other",
    ) -> Request:
        """Sum over ranks, of which rank r keeps block r: `sizes[r]` rows of dim 0, in the order of ranks;
        without waiting.

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     return comm.ireduce_scatter(torch.arange(4), [1, 0, 3]).wait().tolist()
        >>> run_ranks(work, 3, "threads")
        [[0], [], [3, 6, 9]]
        """
        return self._later(self._reduce_scatter_call(x, sizes, out, op), phase)

    def all_gather(
        self,
        x: Tensor,
        sizes: Sequence[int] | None = None,
        out: Tensor | None = None,
        *,
        phase: str = "other",
    ) -> Tensor:
        """The blocks of all ranks, one below the other along dim 0; `sizes[r]` is the number of rows of
        rank r.

        Without `sizes` the ranks tell each other first, which is one message more.

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     return comm.all_gather(torch.full((comm.rank,), comm.rank)).tolist()
        >>> run_ranks(work, 3, "threads")
        [[1, 2, 2], [1, 2, 2], [1, 2, 2]]
        """
        return self._now(self._all_gather_call(x, sizes, out), phase)

    def iall_gather(
        self,
        x: Tensor,
        sizes: Sequence[int] | None = None,
        out: Tensor | None = None,
        *,
        phase: str = "other",
    ) -> Request:
        """`all_gather`, without waiting; without `sizes` it does wait for those."""
        return self._later(self._all_gather_call(x, sizes, out), phase)

    def all_to_all(
        self,
        x: Tensor,
        send_sizes: Sequence[int],
        recv_sizes: Sequence[int],
        out: Tensor | None = None,
        *,
        phase: str = "other",
    ) -> Tensor:
        """Rows of `x` to everybody: the first `send_sizes[0]` rows to rank 0, the next ones to rank 1, and
        so on.

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     x = torch.tensor([10, 11, 12]) + 10 * comm.rank
        ...     sizes = [[1, 2], [2, 1]][comm.rank]  # what this rank sends; here also what it receives
        ...     return comm.all_to_all(x, sizes, [[1, 2], [2, 1]][comm.rank]).tolist()
        >>> run_ranks(work, 2, "threads")
        [[10, 20, 21], [11, 12, 22]]
        """
        return self._now(self._all_to_all_call(x, send_sizes, recv_sizes, out), phase)

    def iall_to_all(
        self,
        x: Tensor,
        send_sizes: Sequence[int],
        recv_sizes: Sequence[int],
        out: Tensor | None = None,
        *,
        phase: str = "other",
    ) -> Request:
        """`all_to_all`, without waiting."""
        return self._later(self._all_to_all_call(x, send_sizes, recv_sizes, out), phase)

    def iswap(
        self,
        give: Sequence[Tensor],
        target: int,
        take: Sequence[Tensor],
        source: int,
        *,
        phase: str = "other",
    ) -> Request:
        """One step of a ring, without waiting: all of `give` to `target`, all of `take` filled from `source`.

        `wait()` returns the tensors of `take`, which have the shapes and types of what `source` gives. Every
        rank of the group makes the same swaps in the same order, so messages are matched by their order: NCCL
        has no tags. An empty tensor does not travel.

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        ...     room = torch.empty(1, dtype=torch.int64)
        ...     (came,) = comm.iswap([torch.tensor([comm.rank])], right, [room], left).wait()
        ...     return came.item()
        >>> run_ranks(work, 3, "threads")
        [2, 0, 1]
        """
        return self._later(self._swap_call(give, target, take, source), phase)

    def barrier(self, *, phase: str = "barrier") -> None:
        """Wait until every rank of the group is here."""
        self._now(_Call("barrier", self._barrier, (), None, None), phase)

    def split(
        self, color: int | None, key: int | None = None, name: str | None = None
    ) -> Communicator | None:
        """Part the group: the ranks of one `color`, ordered by `key`, then by rank; None for color None.

        >>> from weft.comm import run_ranks
        >>> def work(comm):
        ...     row = comm.split(color=comm.rank // 2, key=comm.rank, name="row")
        ...     return row.rank, row.all_gather(torch.tensor([comm.rank])).tolist()
        >>> run_ranks(work, 4, "threads")
        [(0, [0, 1]), (1, [0, 1]), (0, [2, 3]), (1, [2, 3])]
        """
        if color is not None and color < 0:
            raise UserError(f"split: color {color} is negative. Use 0 or more, or None to stay out.")
        label = name or f"{self.name}/{color}"
        order = self.rank if key is None else key
        part: Communicator | None = self._timed(label, "split", lambda: self._split(color, order, label))
        if part is not None:
            host_of = dict(zip(self.members, self.hosts, strict=True))
            part.hosts = [host_of[member] for member in part.members]
        return part

    def all_gather_json(self, value: Any) -> list[Any]:
        """The plain data (numbers, strings, lists, dicts) of every rank, by rank; the ledger does not count
        it.

        >>> from weft.comm import run_ranks
        >>> run_ranks(lambda comm: comm.all_gather_json({"rank": comm.rank}), 2, "threads")[1]
        [{'rank': 0}, {'rank': 1}]
        """
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = self._exchange_sizes(text.shape[0])
        out = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu")
        self._timed("other", "all_gather_json", lambda: self._all_gather(text, out, sizes, True))
        data = bytes(out.numpy())
        ends = [sum(sizes[: r + 1]) for r in range(self.size)]
        return [json.loads(data[end - n : end]) for end, n in zip(ends, sizes, strict=True)]

    # --- what an engine implements: move flat, contiguous buffers; counts are in words ----------------------
    # A raw operation that returns None has ended; with blocking=True it always has.

    @abstractmethod
    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None: ...

    @abstractmethod
    def _all_reduce(self, x: Tensor, out: Tensor, op: str, blocking: bool) -> Work | None: ...

    @abstractmethod
    def _reduce_scatter(
        self, x: Tensor, out: Tensor, counts: list[int], op: str, blocking: bool
    ) -> Work | None: ...

    @abstractmethod
    def _all_gather(self, x: Tensor, out: Tensor, counts: list[int], blocking: bool) -> Work | None: ...

    @abstractmethod
    def _all_to_all(
        self, x: Tensor, out: Tensor, send: list[int], receive: list[int], width: int, blocking: bool
    ) -> Work | None: ...

    @abstractmethod
    def _swap(
        self, give: list[Tensor], target: int, take: list[Tensor], source: int, blocking: bool
    ) -> Work | None: ...

    @abstractmethod
    def _barrier(self, blocking: bool) -> Work | None: ...

    @abstractmethod
    def _split(self, color: int | None, key: int, name: str) -> Communicator | None: ...

    def _mismatch(self, error: Exception) -> str:
        """What an engine's own error says where ranks' calls do not belong together; else nothing."""
        return ""

    # --- running a checked call -----------------------------------------------------------------------------

    def _now(self, call: _Call, phase: str) -> Any:
        state = self.state
        if state.slot is None and not state.ledgers:
            if call.raw is not None:
                call.raw(*call.args, True)
            return call.result
        if call.raw is not None:
            self._timed(phase, call.name, lambda: call.raw(*call.args, True), call.traffic, call=call)  # type: ignore[misc]
        return call.result

    def _later(self, call: _Call, phase: str) -> Request:
        work = None
        if call.raw is not None:
            ledgers = self.state.ledgers
            if ledgers:
                start = time.perf_counter()
                work = call.raw(*call.args, False)
                seconds = time.perf_counter() - start
                traffic = call.traffic() if call.traffic is not None else None
                moved = self._moved(call, ledgers)
                for book in ledgers:
                    book.count(phase, traffic, seconds, call.name, start, moved=moved)
            else:
                work = call.raw(*call.args, False)
        return Request(self, call, phase, work)

    def _timed(
        self,
        phase: str,
        name: str,
        move: Callable[[], Any],
        traffic: Callable[[], Traffic] | None = None,
        waiting: bool = False,
        call: _Call | None = None,
    ) -> Any:
        """Do `move`, which may wait: the watchdog knows where, the open ledgers learn how long."""
        state = self.state
        ledgers, slot = state.ledgers, state.slot
        start = time.perf_counter() if ledgers else 0.0
        where = place.current()
        if slot is not None:
            slot.enter(phase, f"{name}, {where}" if where else name)
        try:
            result = move()
        except UserError as error:
            if not where:
                raise
            raise UserError(f"{where}: {error}") from None
        except Exception as error:
            why = self._mismatch(error)
            if not why:
                raise
            raise UserError(
                f"{where}{': ' if where else ''}{name} in phase {phase!r}: {why}. "
                "Make the same calls in the same order everywhere."
            ) from error
        if slot is not None:
            slot.leave()
        if ledgers:
            seconds = time.perf_counter() - start
            counts = traffic() if traffic is not None else None
            moved = None if call is None else self._moved(call, ledgers)
            for book in ledgers:
                book.count(phase, counts, seconds, name, start, waiting, moved)
        return result

    def _moved(self, call: _Call, ledgers: Sequence[Ledger]) -> Moved | None:
        """What a call moved, peer by peer; None where no ledger keeps it."""
        if call.flow is None or not any(book.events is not None for book in ledgers):
            return None

        def peers(words: Sequence[int], size: float) -> tuple[tuple[int, int, int], ...]:
            return tuple((self.members[p], n, round(n * size)) for p, n in enumerate(words) if n)

        flow = call.flow()
        return Moved(self.name, peers(flow.sent, call.sizes[0]), peers(flow.received, call.sizes[1]))

    # --- checking -------------------------------------------------------------------------------------------

    def _broadcast_call(self, x: Tensor, root: int) -> _Call:
        check_written("broadcast", "x", x, self.takes_meta)
        check_root("broadcast", root, self.size)
        words = x.numel()
        raw = self._broadcast if words and self.size > 1 else None
        return _Call(
            "broadcast",
            raw,
            (plain(x), root),
            x,
            lambda: tally.broadcast(words, root, self.rank, self.size),
            lambda: tally.broadcast_flow(words, root, self.rank, self.size),
            (x.element_size(), x.element_size()),
        )

    def _all_reduce_call(self, x: Tensor, op: str, out: Tensor | None) -> _Call:
        x = readable("all_reduce", x, self.takes_meta)
        raw_op = check_op(op, x)
        if out is None:
            out = torch.empty_like(x)
        else:
            check_out("all_reduce", out, x, x.shape, self.takes_meta)
        words = x.numel()
        raw = self._all_reduce if words else None
        args = (plain(x), plain(out), raw_op)
        return _Call(
            "all_reduce",
            raw,
            args,
            out,
            lambda: tally.all_reduce(words, self.rank, self.size),
            lambda: tally.all_reduce_flow(words, self.rank, self.size),
            (x.element_size(), x.element_size()),
        )

    def _reduce_scatter_call(self, x: Tensor, sizes: Sequence[int], out: Tensor | None, op: str) -> _Call:
        x = readable("reduce_scatter", x, self.takes_meta)
        raw_op = check_op(op, x)
        sizes = check_sizes("reduce_scatter", "sizes", sizes, self.size, rows_of("reduce_scatter", x))
        out = make_out("reduce_scatter", out, x, sizes[self.rank], self.takes_meta)
        counts = words_of(sizes, x)
        raw = self._reduce_scatter if x.numel() else None
        args = (plain(x), plain(out), counts, raw_op)
        return _Call(
            "reduce_scatter",
            raw,
            args,
            out,
            lambda: tally.reduce_scatter(counts, self.rank),
            lambda: tally.reduce_scatter_flow(counts, self.rank),
            (x.element_size(), x.element_size()),
        )

    def _all_gather_call(self, x: Tensor, sizes: Sequence[int] | None, out: Tensor | None) -> _Call:
        x = readable("all_gather", x, self.takes_meta)
        rows = rows_of("all_gather", x)
        if sizes is None:
            sizes = self._timed("other", "all_gather", lambda: self._exchange_sizes(rows))
        sizes = check_sizes("all_gather", "sizes", sizes, self.size)
        if sizes[self.rank] != rows:
            raise UserError(
                f"all_gather: rank {self.rank} gives {rows} rows, its entry of sizes says "
                f"{sizes[self.rank]}. "
                "Pass the same sizes on every rank, or none."
            )
        out = make_out("all_gather", out, x, sum(sizes), self.takes_meta)
        counts = words_of(sizes, x)
        raw = self._all_gather if out.numel() else None
        args = (plain(x), plain(out), counts)
        return _Call(
            "all_gather",
            raw,
            args,
            out,
            lambda: tally.all_gather(counts, self.rank),
            lambda: tally.all_gather_flow(counts, self.rank),
            (x.element_size(), x.element_size()),
        )

    def _all_to_all_call(
        self, x: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int], out: Tensor | None
    ) -> _Call:
        x = readable("all_to_all", x, self.takes_meta)
        send_sizes = check_sizes("all_to_all", "send_sizes", send_sizes, self.size, rows_of("all_to_all", x))
        recv_sizes = check_sizes("all_to_all", "recv_sizes", recv_sizes, self.size)
        if send_sizes[self.rank] != recv_sizes[self.rank]:
            raise UserError(
                f"all_to_all: rank {self.rank} sends itself {send_sizes[self.rank]} rows but expects "
                f"{recv_sizes[self.rank]}. Make send_sizes[r] on rank s equal to recv_sizes[s] on rank r."
            )
        out = make_out("all_to_all", out, x, sum(recv_sizes), self.takes_meta)
        send, receive = words_of(send_sizes, x), words_of(recv_sizes, x)
        width = math.prod(x.shape[1:])
        # Even a rank with nothing to send or receive takes part: it cannot know that nobody has anything.
        args = (plain(x), plain(out), send, receive, width)
        return _Call(
            "all_to_all",
            self._all_to_all if width else None,
            args,
            out,
            lambda: tally.all_to_all(send, receive, self.rank),
            lambda: tally.all_to_all_flow(send, receive, self.rank),
            (x.element_size(), x.element_size()),
        )

    def _swap_call(self, give: Sequence[Tensor], target: int, take: Sequence[Tensor], source: int) -> _Call:
        for label, peer in (("target", target), ("source", source)):
            if not 0 <= peer < self.size or peer == self.rank:
                raise UserError(
                    f"iswap: {label} {peer} is not another rank. Use 0 to {self.size - 1}, but not "
                    f"{self.rank}, which is this one."
                )
        give = [readable("iswap", x, self.takes_meta) for x in give]
        for x in take:
            check_written("iswap", "take", x, self.takes_meta)
        devices = {x.device for x in (*give, *take)}
        if len(devices) != 1:
            raise UserError(
                f"iswap: its tensors are on {len(devices)} devices. Give at least one, and all on one device."
            )
        sent, received = [x.numel() for x in give], [x.numel() for x in take]
        # NCCL sets up its group in the first call, in which every rank has to take part.
        raw = self._swap if any(sent) or any(received) or devices.pop().type == "cuda" else None
        args = (
            [plain(x) for x in give],
            target,
            [plain(x) for x in take],
            source,
        )
        return _Call(
            "iswap",
            raw,
            args,
            tuple(take),
            lambda: tally.swap(sent, received),
            lambda: tally.swap_flow(sum(sent), target, sum(received), source, self.size),
            (bytes_a_word(give), bytes_a_word(take)),
        )

    def _exchange_sizes(self, rows: int) -> list[int]:
        mine = torch.tensor([rows], dtype=torch.int64, device="cpu")
        out = torch.empty(self.size, dtype=torch.int64, device="cpu")
        self._all_gather(mine, out, [1] * self.size, True)
        return [int(n) for n in out.tolist()]

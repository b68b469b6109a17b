"""A communicator that counts and does not move: what an operation will send, foretold by running it.

    tensor               what a `Dry` does with it
    on the device meta   counts; the result is a meta tensor of the right shape
    any other            counts, and moves it through `inner`: the row counts that a plan needs are real

The checks, the shapes and the counts are those of `communicator.py` and `ledger.py`, so a `Ledger` opened on
a `Dry` holds to the word what the same calls write on the communicator itself, whose ledgers see nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from weft.comm.communicator import Communicator, Work
from weft.comm.ledger import Message, RankState
from weft.comm.threads import ThreadCommunicator, World
from weft.errors import UserError


class Dry(Communicator):
    """The ranks of `inner`, for planning: meta tensors are counted, others travel; the books are its own.

    >>> import torch
    >>> from weft.comm import Ledger, run_ranks
    >>> def work(comm):
    ...     dry = Dry(comm)
    ...     with Ledger(dry) as books:
    ...         y = dry.all_gather(torch.empty(comm.rank, 5, device="meta"), phase="gather")
    ...     return tuple(y.shape), y.device.type, books.words("gather")
    >>> run_ranks(work, 3, "threads")
    [((3, 5), 'meta', 15), ((3, 5), 'meta', 10), ((3, 5), 'meta', 5)]
    """

    engine = "dry"
    takes_meta = True

    def __init__(self, inner: Communicator, state: RankState | None = None) -> None:
        if state is None:
            state = RankState()
            state.slot = inner.state.slot  # real tensors wait: the watchdog knows where
        super().__init__(inner.rank, inner.size, state, inner.name)
        self.inner = inner
        self.members, self.hosts = inner.members, inner.hosts

    @classmethod
    def alone(
        cls, rank: int, size: int, name: str = "world", beside: Dry | None = None,
        hosts: Sequence[int] | None = None,
    ) -> Dry:  # fmt: skip
        """Rank `rank` of `size` ranks that do not exist.

            beside  another line of the same rank: a ledger on one counts both, as for parts of a split
            hosts   the host of each rank; by default they share one

        >>> import torch
        >>> from weft.comm import Ledger
        >>> row = Dry.alone(1, 4, "row")
        >>> column = Dry.alone(0, 2, "column", beside=row)
        >>> with Ledger(row) as books:
        ...     x = row.all_reduce(torch.empty(8, 3, device="meta"))
        ...     x = column.all_reduce(torch.empty(8, 3, device="meta"))
        >>> books.words()
        60
        """
        if not 0 <= rank < size:
            raise UserError(f"rank {rank} of {size} does not exist. Use 0 to {size - 1}.")
        state = beside.state if beside is not None else RankState()
        nobody: Communicator
        if size == 1:
            nobody = ThreadCommunicator(World(1), (), 0, 1, 0, state, name)
        else:
            nobody = _Nobody(rank, size, state, name)
        nobody.hosts = nobody.hosts if hosts is None else hosts
        return cls(nobody, state)

    def _noted(
        self, call: str, each: int, send: Sequence[int], receive: Sequence[int], blocking: bool
    ) -> Work | None:
        """A message that does not travel, for who notes them; words of `each` bytes to and from each rank."""
        notes = self.state.notes
        if notes is None:
            return None

        def others(words: Sequence[int]) -> tuple[tuple[int, int], ...]:
            return tuple((p, n * each) for p, n in enumerate(words) if n and p != self.rank)

        wait = notes.post(Message(call, self.name, others(send), others(receive), self.size), blocking)
        return None if blocking else _Noted(wait)

    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None:
        if not x.is_meta:
            return self.inner._broadcast(x, root, blocking)
        everybody = [x.numel() if self.rank == root else 0] * self.size
        given = [x.numel() if p == root else 0 for p in range(self.size)]
        return self._noted("broadcast", x.element_size(), everybody, given, blocking)

    def _all_reduce(self, x: Tensor, out: Tensor, op: str, blocking: bool) -> Work | None:
        if not x.is_meta:
            return self.inner._all_reduce(x, out, op, blocking)
        return self._noted(
            "all_reduce", x.element_size(), [x.numel()] * self.size, [x.numel()] * self.size, blocking
        )

    def _reduce_scatter(
        self, x: Tensor, out: Tensor, counts: list[int], op: str, blocking: bool
    ) -> Work | None:
        if not x.is_meta:
            return self.inner._reduce_scatter(x, out, counts, op, blocking)
        return self._noted(
            "reduce_scatter", x.element_size(), counts, [counts[self.rank]] * self.size, blocking
        )

    def _all_gather(self, x: Tensor, out: Tensor, counts: list[int], blocking: bool) -> Work | None:
        if not x.is_meta:
            return self.inner._all_gather(x, out, counts, blocking)
        return self._noted("all_gather", x.element_size(), [x.numel()] * self.size, counts, blocking)

    def _all_to_all(
        self, x: Tensor, out: Tensor, send: list[int], receive: list[int], width: int, blocking: bool
    ) -> Work | None:
        if not x.is_meta:
            return self.inner._all_to_all(x, out, send, receive, width, blocking)
        return self._noted("all_to_all", x.element_size(), send, receive, blocking)

    def _swap(
        self, give: list[Tensor], target: int, take: list[Tensor], source: int, blocking: bool
    ) -> Work | None:
        some = (*give, *take)[0]
        if not some.is_meta:
            return self.inner._swap(give, target, take, source, blocking)
        words = [0] * self.size, [0] * self.size
        words[0][target], words[1][source] = (sum(x.nbytes for x in side) for side in (give, take))
        return self._noted("iswap", 1, *words, blocking)

    def _barrier(self, blocking: bool) -> Work | None:
        return self.inner._barrier(blocking)

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        part = self.inner._split(color, key, name)
        return None if part is None else Dry(part, self.state)


class _Noted:
    """A message of a dry run: who waits for it is noted too, once."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def wait(self) -> None:
        self._wait()

    def test(self) -> bool:
        return False


class _Nobody(Communicator):
    """The other ranks of `Dry.alone`: there are none, and whatever needs them says so."""

    engine = "nobody"

    def _refuse(self, *args: Any, **named: Any) -> Any:
        raise UserError(
            f"rank {self.rank} of {self.size} of {self.name!r} is planned alone: nothing real can travel. "
            "Use tensors on the device 'meta' and give all sizes, or Dry(comm) inside a job."
        )

    _broadcast = _all_reduce = _reduce_scatter = _all_gather = _all_to_all = _swap = _barrier = _refuse

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        raise UserError(
            f"split: rank {self.rank} of {self.size} of {self.name!r} is planned alone and cannot know "
            f"the colours of the others. Use Dry.alone(rank, size, {name!r}, beside=…) for each line."
        )

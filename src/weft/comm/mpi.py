"""The engine `mpi`: mpi4py on the tensor's own memory, no copies.

MPI counts in C ints. A message longer than `MAX_COUNT` words goes in pieces, which `wait` collects. CUDA
tensors go through CPU memory, which any MPI can read: correct, and slower than `--engine torch` with NCCL.
(That has not been run on a GPU yet, only with CPU tensors in their place.)
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from weft.comm import ledger
from weft.comm.communicator import Communicator, Work
from weft.comm.launch import CROWDED
from weft.comm.ledger import RankState
from weft.errors import UserError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the MPI library is not
    raise UserError(
        f"the engine 'mpi' needs MPI ({error}). Install weft[mpi], or use --engine torch."
    ) from error

MAX_COUNT = 2**30
"""Most words in one MPI call; below 2^31, and a multiple of every vector length."""

_TYPES = {
    torch.float32: (MPI.FLOAT, 4),
    torch.float64: (MPI.DOUBLE, 8),
    torch.int32: (MPI.INT32_T, 4),
    torch.int64: (MPI.INT64_T, 8),
    torch.uint8: (MPI.UINT8_T, 1),
}
_LOOKS, _LEAST_PAUSE, _MOST_PAUSE = 4, 2e-5, 5e-4
"""Of a rank that waits on a crowded core: looks at once, then seconds between two looks."""
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_view = MPI.memory.fromaddress


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """Start and length of the pieces of a message of `count` words.

    >>> list(_pieces(5))
    [(0, 5)]
    """
    for start in range(0, count, MAX_COUNT):
        yield start, min(MAX_COUNT, count - start)


def _buffer(x: Tensor) -> tuple[Any, ...]:
    """What mpi4py takes for the memory of `x`."""
    kind, width = _TYPES[x.dtype]
    count = x.numel()
    return _view(x.data_ptr(), count * width), count, kind


def _part(x: Tensor, start: int, count: int) -> tuple[Any, ...]:
    kind, width = _TYPES[x.dtype]
    return _view(x.data_ptr() + start * width, count * width), count, kind


def _parts(x: Tensor, counts: list[int]) -> tuple[Any, ...]:
    kind, width = _TYPES[x.dtype]
    return _view(x.data_ptr(), x.numel() * width), counts, None, kind


_crowded = [bool(os.environ.get(CROWDED))]


def crowded() -> bool:
    """Whether this rank shares its core with others: then it sleeps while it waits.

    One that only yields takes its turn among those who compute, and they wait for it.
    """
    return _crowded[0]


@contextmanager
def waiting(asleep: bool) -> Iterator[None]:
    """Who waits inside of this sleeps, or does not: to measure both."""
    before, _crowded[0] = _crowded[0], asleep
    try:
        yield
    finally:
        _crowded[0] = before


class MpiWork:
    """The MPI requests of one operation, and the tensors they use."""

    __slots__ = ("keep", "requests")

    def __init__(self, requests: list[Any], keep: tuple[Any, ...]) -> None:
        self.requests = requests
        self.keep = keep  # tensors and counts stay alive while MPI reads and writes them

    def wait(self) -> None:
        if not crowded():
            MPI.Request.Waitall(self.requests)
            return
        pause = _LEAST_PAUSE
        for _ in range(_LOOKS):
            if self.test():
                return
        while not self.test():
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE)

    def test(self) -> bool:
        return bool(MPI.Request.Testall(self.requests))


def _elsewhere(x: Tensor) -> bool:
    """Whether MPI cannot read the memory of `x`."""
    return x.is_cuda


class StagedWork:
    """An operation on copies in CPU memory; what it wrote goes back when it has ended."""

    __slots__ = ("back", "work")

    def __init__(self, work: Work, back: Callable[[], None]) -> None:
        self.work = work
        self.back = back

    def wait(self) -> None:
        self.work.wait()
        self.back()

    def test(self) -> bool:
        if not self.work.test():
            return False
        self.back()
        return True


def _staged(written: int) -> Callable[[Callable[..., Work | None]], Callable[..., Work | None]]:
    """A raw operation on CUDA tensors too: copy to the CPU, move, copy argument `written` back."""

    def wrap(raw: Callable[..., Work | None]) -> Callable[..., Work | None]:
        @functools.wraps(raw)
        def run(comm: MpiCommunicator, x: Tensor | list[Tensor], *rest: Any) -> Work | None:
            if rest[-1] and crowded():
                work = run(comm, x, *rest[:-1], False)
                assert work is not None
                work.wait()
                return None
            if not _elsewhere(x if isinstance(x, Tensor) else (*x, *rest[1])[0]):
                return raw(comm, x, *rest)
            far = (x, *rest)
            near = [_near(value) for value in far]

            def back() -> None:
                for target, source in zip(_listed(far[written]), _listed(near[written]), strict=True):
                    target.copy_(source)

            work = raw(comm, *near)
            if work is not None:
                return StagedWork(work, back)
            back()
            return None

        return run

    return wrap


def _near(value: Any) -> Any:
    """A copy in CPU memory of a tensor or of a list of tensors; anything else as it is."""
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, list):
        return [_near(item) for item in value]
    return value


def _listed(value: Tensor | list[Tensor]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else value


class MpiCommunicator(Communicator):
    """A communicator on top of an MPI one."""

    engine = "mpi"

    def __init__(self, mpi: Any, state: RankState, name: str) -> None:
        super().__init__(mpi.Get_rank(), mpi.Get_size(), state, name)
        self._mpi = mpi

    @_staged(written=0)
    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None:
        count = x.numel()
        if count <= MAX_COUNT:
            if blocking:
                self._mpi.Bcast(_buffer(x), root)
                return None
            return MpiWork([self._mpi.Ibcast(_buffer(x), root)], (x,))
        requests = [self._mpi.Ibcast(_part(x, *piece), root) for piece in _pieces(count)]
        return _end(requests, (x,), blocking)

    @_staged(written=1)
    def _all_reduce(self, x: Tensor, out: Tensor, op: str, blocking: bool) -> Work | None:
        count = x.numel()
        if count <= MAX_COUNT:
            send = MPI.IN_PLACE if _same(x, out) else _buffer(x)
            if blocking:
                self._mpi.Allreduce(send, _buffer(out), _OPS[op])
                return None
            return MpiWork([self._mpi.Iallreduce(send, _buffer(out), _OPS[op])], (x, out))
        requests = []
        for piece in _pieces(count):
            send = MPI.IN_PLACE if _same(x, out) else _part(x, *piece)
            requests.append(self._mpi.Iallreduce(send, _part(out, *piece), _OPS[op]))
        return _end(requests, (x, out), blocking)

    @_staged(written=1)
    def _reduce_scatter(
        self, x: Tensor, out: Tensor, counts: list[int], op: str, blocking: bool
    ) -> Work | None:
        if x.numel() <= MAX_COUNT:
            if blocking:
                self._mpi.Reduce_scatter(_buffer(x), _buffer(out), counts, _OPS[op])
                return None
            request = self._mpi.Ireduce_scatter(_buffer(x), _buffer(out), counts, _OPS[op])
            return MpiWork([request], (x, out, counts))
        requests, start = [], 0
        for root, count in enumerate(counts):  # too long for one call: a reduction to every owner
            for piece, length in _pieces(count):
                receive = _part(out, piece, length) if root == self.rank else None
                requests.append(self._mpi.Ireduce(_part(x, start + piece, length), receive, _OPS[op], root))
            start += count
        return _end(requests, (x, out), blocking)

    @_staged(written=1)
    def _all_gather(self, x: Tensor, out: Tensor, counts: list[int], blocking: bool) -> Work | None:
        if out.numel() <= MAX_COUNT:
            even = counts[0] * self.size == out.numel() and all(n == counts[0] for n in counts)
            # Without a count mpi4py divides the memory among the ranks itself.
            receive = _buffer(out)[::2] if even else _parts(out, counts)
            if blocking:
                (self._mpi.Allgather if even else self._mpi.Allgatherv)(_buffer(x), receive)
                return None
            start = self._mpi.Iallgather if even else self._mpi.Iallgatherv
            return MpiWork([start(_buffer(x), receive)], (x, out, counts))
        requests, offset = [], 0
        for root, count in enumerate(counts):  # too long for one call: a broadcast from every owner
            if root == self.rank:
                out.view(-1)[offset : offset + count].copy_(x.view(-1))
            for piece, length in _pieces(count):
                requests.append(self._mpi.Ibcast(_part(out, offset + piece, length), root))
            offset += count
        return _end(requests, (out,), blocking)

    @_staged(written=1)
    def _all_to_all(
        self, x: Tensor, out: Tensor, send: list[int], receive: list[int], width: int, blocking: bool
    ) -> Work | None:
        give, take = _parts(x, send), _parts(out, receive)
        if max(x.numel(), out.numel()) > MAX_COUNT:
            # Count in rows. The peers may count in words: MPI compares the words of each pair only.
            rows = max(x.numel(), out.numel()) // width
            if rows > MAX_COUNT:
                raise UserError(
                    f"all_to_all: {rows:,} rows on rank {self.rank} are more than MPI can count. "
                    f"Send at most {MAX_COUNT:,} rows a call."
                )
            row = _row_type(_TYPES[x.dtype][0], width)
            give = (give[0], [n // width for n in send], None, row)
            take = (take[0], [n // width for n in receive], None, row)
        if blocking:
            self._mpi.Alltoallv(give, take)
            return None
        return MpiWork([self._mpi.Ialltoallv(give, take)], (x, out, give, take))

    @_staged(written=2)
    def _swap(
        self, give: list[Tensor], target: int, take: list[Tensor], source: int, blocking: bool
    ) -> Work | None:
        receives = [self._mpi.Irecv(_part(x, *piece), source) for x in take for piece in _pieces(x.numel())]
        sends = [self._mpi.Isend(_part(x, *piece), target) for x in give for piece in _pieces(x.numel())]
        return _end(receives + sends, (give, take), blocking)

    def _barrier(self, blocking: bool) -> Work | None:
        self._mpi.Barrier()
        return None

    def _mismatch(self, error: Exception) -> str:
        # A collective in pieces tells only that one of them failed.
        kinds = (MPI.ERR_TRUNCATE, MPI.ERR_IN_STATUS)
        if not isinstance(error, MPI.Exception) or error.Get_error_class() not in kinds:
            return ""
        return f"another rank sent what this one does not take ({error})"

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        part = self._mpi.Split(MPI.UNDEFINED if color is None else color, key)
        if part == MPI.COMM_NULL:
            return None
        part.Set_name(name[:60])
        made = MpiCommunicator(part, self.state, name)
        places = part.Get_group().Translate_ranks(None, self._mpi.Get_group())
        made.members = [self.members[place] for place in places]
        return made


_rows: dict[tuple[int, int], Any] = {}


def _row_type(kind: Any, width: int) -> Any:
    """The MPI type of a row of `width` words; made once and kept."""
    key = (MPI._handleof(kind), width)
    if key not in _rows:
        _rows[key] = kind.Create_contiguous(width).Commit()
    return _rows[key]


def _same(x: Tensor, out: Tensor) -> bool:
    return out.data_ptr() == x.data_ptr()


def _end(requests: list[Any], keep: tuple[Any, ...], blocking: bool) -> Work | None:
    work = MpiWork(requests, keep)
    if blocking:
        work.wait()
        return None
    return work


def world() -> Communicator:
    """The communicator of all ranks that mpirun or srun started."""
    return MpiCommunicator(MPI.COMM_WORLD, ledger.here(), "world")

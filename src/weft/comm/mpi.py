"""The engine `mpi`: mpi4py on the tensor's own memory, no copies.

MPI counts in C ints. A message longer than `MAX_COUNT` words goes in pieces, which `wait` collects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm import ledger
from weft.comm.communicator import Communicator, Work
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


class MpiWork:
    """The MPI requests of one operation, and the tensors they use."""

    __slots__ = ("keep", "requests")

    def __init__(self, requests: list[Any], keep: tuple[Any, ...]) -> None:
        self.requests = requests
        self.keep = keep  # tensors and counts stay alive while MPI reads and writes them

    def wait(self) -> None:
        MPI.Request.Waitall(self.requests)

    def test(self) -> bool:
        return bool(MPI.Request.Testall(self.requests))


class MpiCommunicator(Communicator):
    """A communicator on top of an MPI one."""

    engine = "mpi"

    def __init__(self, mpi: Any, state: RankState, name: str) -> None:
        super().__init__(mpi.Get_rank(), mpi.Get_size(), torch.device("cpu"), state, name)
        self._mpi = mpi

    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None:
        count = x.numel()
        if count <= MAX_COUNT:
            if blocking:
                self._mpi.Bcast(_buffer(x), root)
                return None
            return MpiWork([self._mpi.Ibcast(_buffer(x), root)], (x,))
        requests = [self._mpi.Ibcast(_part(x, *piece), root) for piece in _pieces(count)]
        return _end(requests, (x,), blocking)

    def _reduce(self, x: Tensor, out: Tensor | None, root: int, op: str, blocking: bool) -> Work | None:
        count = x.numel()
        if count <= MAX_COUNT:
            send = MPI.IN_PLACE if _same(x, out) else _buffer(x)
            receive = None if out is None else _buffer(out)
            if blocking:
                self._mpi.Reduce(send, receive, _OPS[op], root)
                return None
            return MpiWork([self._mpi.Ireduce(send, receive, _OPS[op], root)], (x, out))
        requests = []
        for piece in _pieces(count):
            send = MPI.IN_PLACE if _same(x, out) else _part(x, *piece)
            receive = None if out is None else _part(out, *piece)
            requests.append(self._mpi.Ireduce(send, receive, _OPS[op], root))
        return _end(requests, (x, out), blocking)

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

    def _isend(self, x: Tensor, peer: int, tag: int, blocking: bool) -> Work | None:
        requests = [self._mpi.Isend(_part(x, *piece), peer, tag) for piece in _pieces(x.numel())]
        return _end(requests, (x,), blocking)

    def _irecv(self, x: Tensor, peer: int, tag: int, blocking: bool) -> Work | None:
        requests = [self._mpi.Irecv(_part(x, *piece), peer, tag) for piece in _pieces(x.numel())]
        return _end(requests, (x,), blocking)

    def _barrier(self, blocking: bool) -> Work | None:
        self._mpi.Barrier()
        return None

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        part = self._mpi.Split(MPI.UNDEFINED if color is None else color, key)
        if part == MPI.COMM_NULL:
            return None
        part.Set_name(name[:60])
        return MpiCommunicator(part, self.state, name)

    def _wait_any(self, works: Sequence[MpiWork]) -> int:
        flat = [request for work in works for request in work.requests]
        owner = [place for place, work in enumerate(works) for _ in work.requests]
        left = [sum(1 for request in work.requests if request != MPI.REQUEST_NULL) for work in works]
        if 0 in left:
            return left.index(0)
        while True:
            # Waitany writes the null request back into the list it is given, not into ours.
            done = MPI.Request.Waitany(flat)
            place = owner[done]
            left[place] -= 1
            if left[place] == 0:
                return place


_rows: dict[tuple[int, int], Any] = {}


def _row_type(kind: Any, width: int) -> Any:
    """The MPI type of a row of `width` words; made once and kept."""
    key = (MPI._handleof(kind), width)
    if key not in _rows:
        _rows[key] = kind.Create_contiguous(width).Commit()
    return _rows[key]


def _same(x: Tensor, out: Tensor | None) -> bool:
    return out is not None and out.data_ptr() == x.data_ptr()


def _end(requests: list[Any], keep: tuple[Any, ...], blocking: bool) -> Work | None:
    work = MpiWork(requests, keep)
    if blocking:
        work.wait()
        return None
    return work


def world() -> Communicator:
    """The communicator of all ranks that mpirun or srun started."""
    return MpiCommunicator(MPI.COMM_WORLD, ledger.here(), "world")

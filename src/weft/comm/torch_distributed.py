"""The engine `torch`: torch.distributed's process groups, gloo for CPU tensors and NCCL for CUDA tensors.

Every communicator has a gloo group. It makes an NCCL group when it meets its first CUDA tensor, so that a job
on CPU tensors runs the same whether the machine has GPUs or not, and two ranks may share one. (NCCL has not
been run yet: no machine of ours has a GPU.)

Gloo has no uneven all-gather and no reduce-scatter that is better than an all-reduce; they are built here
from broadcasts and from an all-to-all with a sum in the order of ranks. Groups are made directly from the
store, which keeps `torch.distributed`'s global state, and its ordering of ranks, out of the way.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.comm import ledger
from weft.comm.communicator import Communicator, PeerLost, Work
from weft.comm.ledger import RankState
from weft.errors import UserError

_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_FOREVER = timedelta(days=30)  # how long to wait is the watchdog's business


# Gloo's threads must end before Python does: one that lets go of a tensor during shutdown aborts the process.
_open: weakref.WeakSet[TorchCommunicator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for comm in list(_open):
        comm._gloo = comm._nccl = None


class TorchWork:
    """The pieces of one operation, and what to do when they are there."""

    __slots__ = ("finish", "keep", "works")

    def __init__(
        self, works: list[Any], keep: tuple[Any, ...], finish: Callable[[], object] | None = None
    ) -> None:
        self.works = works
        self.keep = keep
        self.finish = finish

    def wait(self) -> None:
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as error:
            raise PeerLost(f"a message did not arrive: {str(error).splitlines()[0]}") from error
        self._complete()

    def test(self) -> bool:
        if not all(work.is_completed() for work in self.works):
            return False
        self.wait()  # raises where a piece has failed
        return True

    def _complete(self) -> None:
        if self.finish is not None:
            self.finish()
            self.finish = None


class _Polled:
    """A gloo send or receive: gloo notices its end in `wait` only, so a poll sends a thread to wait."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._thread: threading.Thread | None = None
        self._error: RuntimeError | None = None

    def _wait_aside(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            self._error = error

    def wait(self) -> None:
        if self._thread is None:
            self._work.wait()
            return
        self._thread.join()
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait_aside, daemon=True)
            self._thread.start()
        return not self._thread.is_alive()


class TorchCommunicator(Communicator):
    """A communicator on top of a torch process group."""

    engine = "torch"

    def __init__(
        self,
        store: Any,
        prefix: str,
        rank: int,
        size: int,
        state: RankState,
        name: str,
    ) -> None:
        super().__init__(rank, size, state, name)
        self._store = store
        self._prefix = prefix
        self._splits = 0
        self._gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore(prefix, store), rank, size, _FOREVER)
        self._nccl: Any = None
        _open.add(self)

    def _group(self, x: Tensor) -> Any:
        """The process group that moves `x`."""
        if not x.is_cuda:
            return self._gloo
        if self._nccl is None:
            if not dist.is_nccl_available():
                raise UserError(f"a tensor on {x.device} needs NCCL, which this torch lacks. Use x.cpu().")
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _FOREVER
            store = dist.PrefixStore(f"{self._prefix}/nccl", self._store)
            self._nccl = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
            # The first call on a group must be everybody's; a step of a ring may be that of some ranks only.
            self._nccl.allreduce([torch.zeros(1, device=x.device)], dist.AllreduceOptions()).wait()
        return self._nccl

    def _broadcast(self, x: Tensor, root: int, blocking: bool) -> Work | None:
        return _end([self._start_broadcast(x, root)], (x,), blocking)

    def _start_broadcast(self, x: Tensor, root: int) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._group(x).broadcast([x], options)

    def _all_reduce(self, x: Tensor, out: Tensor, op: str, blocking: bool) -> Work | None:
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]
        return _end([self._group(x).allreduce([_into(out, x)], options)], (out,), blocking)

    def _reduce_scatter(
        self, x: Tensor, out: Tensor, counts: list[int], op: str, blocking: bool
    ) -> Work | None:
        own = counts[self.rank]
        blocks = torch.empty((self.size, own), dtype=x.dtype, device=x.device)
        work = self._group(x).alltoall_base(
            blocks.view(-1), x.view(-1), [own] * self.size, counts, dist.AllToAllOptions()
        )

        def finish() -> None:
            flat = out.view(-1)
            flat.copy_(blocks[0])
            for block in blocks[1:]:
                if op == "sum":
                    flat.add_(block)
                elif op == "max":
                    torch.maximum(flat, block, out=flat)
                else:
                    torch.minimum(flat, block, out=flat)

        return _end([work], (x, blocks), blocking, finish)

    def _all_gather(self, x: Tensor, out: Tensor, counts: list[int], blocking: bool) -> Work | None:
        flat = out.view(-1)
        if all(count == counts[0] for count in counts):
            pieces = list(flat.split(counts[0]))
            return _end([self._group(x).allgather([pieces], [x.view(-1)])], (x, out), blocking)
        works, start = [], 0
        for root, count in enumerate(counts):
            piece = flat[start : start + count]
            start += count
            if root == self.rank:
                piece.copy_(x.view(-1))
            if count:
                works.append(self._start_broadcast(piece, root))
        return _end(works, (out,), blocking)

    def _all_to_all(
        self, x: Tensor, out: Tensor, send: list[int], receive: list[int], width: int, blocking: bool
    ) -> Work | None:
        work = self._group(x).alltoall_base(out.view(-1), x.view(-1), receive, send, dist.AllToAllOptions())
        return _end([work], (x, out), blocking)

    def _swap(
        self, give: list[Tensor], target: int, take: list[Tensor], source: int, blocking: bool
    ) -> Work | None:
        group = self._group((*give, *take)[0])
        if group is self._nccl:
            # Apart, a send and a receive of two ranks may each wait for the other: NCCL wants them as one.
            group._start_coalescing()
        works = [group.recv([x.view(-1)], source, 0) for x in take if x.numel()]
        works += [group.send([x.view(-1)], target, 0) for x in give if x.numel()]
        if group is self._nccl:
            works = [group._end_coalescing()]
        else:
            works = [_Polled(work) for work in works]
        return _end(works, (give, take), blocking)

    def _barrier(self, blocking: bool) -> Work | None:
        return _end([self._gloo.barrier(dist.BarrierOptions())], (), blocking)

    def _split(self, color: int | None, key: int, name: str) -> Communicator | None:
        mine = torch.tensor([-1 if color is None else color, key], dtype=torch.int64, device="cpu")
        every = torch.empty(2 * self.size, dtype=torch.int64, device="cpu")
        self._all_gather(mine, every, [2] * self.size, True)
        self._splits += 1
        if color is None:
            return None
        pairs = every.view(-1, 2).tolist()
        members = sorted((k, rank) for rank, (c, k) in enumerate(pairs) if c == color)
        place = members.index((key, self.rank))
        prefix = f"{self._prefix}/{self._splits}.{color}"
        part = TorchCommunicator(self._store, prefix, place, len(members), self.state, name)
        part.members = [self.members[rank] for _, rank in members]
        return part


def _into(out: Tensor, x: Tensor) -> Tensor:
    if out.data_ptr() != x.data_ptr():
        out.copy_(x)
    return out


def _end(
    works: list[Any], keep: tuple[Any, ...], blocking: bool, finish: Callable[[], object] | None = None
) -> Work | None:
    work = TorchWork(works, keep, finish)
    if blocking:
        work.wait()
        return None
    return work


def world() -> Communicator:
    """The communicator of all ranks that weft or torchrun started."""
    folder = os.environ.get("WEFT_RUN_DIR")
    if folder is not None:
        # A file in the job's private directory: no port is opened to find each other.
        rank, size = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_RANKS"])
        store: Any = dist.FileStore(str(Path(folder) / "store"), size)
    elif dist.is_initialized():
        rank, size = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
    else:
        store, rank, size = next(dist.rendezvous("env://"))
    if torch.cuda.is_available():
        # "cuda" means another GPU on every rank of a machine: NCCL refuses two ranks on one.
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return TorchCommunicator(store, "weft", rank, size, ledger.here(), "world")

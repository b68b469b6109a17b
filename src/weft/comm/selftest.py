"""Every operation of a communicator against numpy, on random data with uneven and empty parts.

Each case is a function of a communicator that raises where the answer is wrong. The tests run all of them
on every engine and number of ranks, `weft doctor` runs them on two. Data come from a seed, so that every
rank knows what every other holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.comm import ledger as tally
from weft.comm.communicator import Communicator
from weft.comm.ledger import Ledger, Traffic

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
SHAPES = ((0,), (1,), (7,), (5, 3), (4, 0))
_NUMPY = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _all_data(comm: Communicator, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[Tensor]:
    """What every rank holds; not to be written to."""
    return _drawn(comm.size, shape, dtype, seed)


@functools.lru_cache(maxsize=256)
def _drawn(size: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[Tensor]:
    data = []
    for rank in range(size):
        numbers = np.random.default_rng([seed, rank]).integers(-50, 50, shape)
        data.append(
            torch.from_numpy(numbers).to(dtype) if dtype != torch.bool else torch.from_numpy(numbers > 0)
        )
    return data


def _sizes(size: int, seed: int) -> list[int]:
    """Rows by rank: uneven, some none."""
    sizes = [int(n) for n in np.random.default_rng([seed, size, 7]).integers(0, 6, size)]
    sizes[seed % size] = 0
    return sizes


def _fold(data: list[Tensor], op: str) -> NDArray[np.generic]:
    total: NDArray[np.generic] = data[0].numpy()
    for other in data[1:]:
        total = _NUMPY[op](total, other.numpy())
    return total


def _same(got: Tensor | None, want: NDArray[np.generic] | Tensor, what: str) -> None:
    # Exact even for floats: the values are small integers, whose sums do not round.
    if got is None or not np.array_equal(got.cpu().numpy(), np.asarray(want)):
        raise AssertionError(f"{what}: got {got}, want {want}")


def _counted(ledger: Ledger, phase: str, want: Traffic) -> None:
    got = Traffic(
        ledger.words_sent(phase), ledger.words(phase), ledger.messages_sent(phase), ledger.messages(phase)
    )
    if got != want:
        raise AssertionError(f"ledger of {phase}: got {got}, want {want}")
    named = sum(words for words, _ in ledger.peers().values())
    if named != ledger.words():
        raise AssertionError(f"ledger of {phase}: {named} of {ledger.words()} words have a sender")


def _variants(comm: Communicator) -> Iterator[tuple[torch.dtype, tuple[int, ...], int]]:
    """Types by shapes; each type and each shape once where there are many ranks, because work grows as P²."""
    for i, dtype in enumerate(DTYPES):
        for j, shape in enumerate(SHAPES):
            if comm.size <= 8 or i == j:
                yield dtype, shape, 10 * i + j


def check_broadcast(comm: Communicator, device: str = "cpu") -> None:
    """broadcast and ibroadcast."""
    for dtype, shape, seed in _variants(comm):
        data = _all_data(comm, shape, dtype, seed)
        root = seed % comm.size
        for now in (True, False):
            x = data[comm.rank].clone().to(device)
            with Ledger(comm, keep_events=True) as ledger:
                if now:
                    got = comm.broadcast(x, root, phase="b")
                else:
                    got = comm.ibroadcast(x, root, phase="b").wait()
            _same(got, data[root], f"broadcast {dtype} {shape}")
            if got is not x:
                raise AssertionError("broadcast returns the tensor it fills")
            _counted(ledger, "b", tally.broadcast(x.numel(), root, comm.rank, comm.size))


def check_all_reduce(comm: Communicator, device: str = "cpu") -> None:
    """all_reduce, in place and not."""
    for dtype, shape, seed in _variants(comm):
        data = _all_data(comm, shape, dtype, seed)
        for op in _NUMPY:
            x = data[comm.rank].clone().to(device)
            want = _fold(data, op)
            with Ledger(comm, keep_events=True) as ledger:
                _same(comm.all_reduce(x, op, phase="a"), want, f"all_reduce {op} {dtype} {shape}")
            _counted(ledger, "a", tally.all_reduce(x.numel(), comm.rank, comm.size))
            _same(x, data[comm.rank], "all_reduce leaves x alone")
            comm.all_reduce(x, op, out=x)
            _same(x, want, "all_reduce in place")


def check_reduce_scatter(comm: Communicator, device: str = "cpu") -> None:
    """ireduce_scatter, with uneven and empty blocks."""
    for dtype, shape, seed in _variants(comm):
        sizes = _sizes(comm.size, seed)
        data = _all_data(comm, (sum(sizes), *shape[1:]), dtype, seed)
        x = data[comm.rank].to(device)
        start = sum(sizes[: comm.rank])
        for op in _NUMPY:
            want = _fold(data, op)[start : start + sizes[comm.rank]]
            out = torch.empty((sizes[comm.rank], *shape[1:]), dtype=dtype, device=device)
            with Ledger(comm, keep_events=True) as ledger:
                got = comm.ireduce_scatter(x, sizes, out, op, phase="rs").wait()
            _same(got, want, f"ireduce_scatter {op} {dtype} into out")
            width = int(np.prod(shape[1:]))
            _counted(ledger, "rs", tally.reduce_scatter([n * width for n in sizes], comm.rank))
            _same(comm.ireduce_scatter(x, sizes, op=op).wait(), want, f"ireduce_scatter {op} {dtype}")


def check_all_gather(comm: Communicator, device: str = "cpu") -> None:
    """all_gather and iall_gather, even and uneven, with sizes and without."""
    for dtype, shape, seed in _variants(comm):
        for sizes in (_sizes(comm.size, seed), [3] * comm.size):
            width = int(np.prod(shape[1:]))
            blocks = [
                block[:n]
                for n, block in zip(sizes, _all_data(comm, (6, *shape[1:]), dtype, seed), strict=True)
            ]
            want = torch.cat(blocks)
            x = blocks[comm.rank].to(device)
            out = torch.empty_like(want, device=device)
            with Ledger(comm, keep_events=True) as ledger:
                _same(comm.all_gather(x, sizes, out, phase="ag"), want, f"all_gather {dtype} {sizes}")
            _counted(ledger, "ag", tally.all_gather([n * width for n in sizes], comm.rank))
            _same(comm.iall_gather(x, sizes).wait(), want, f"iall_gather {dtype} {sizes}")
        _same(comm.all_gather(x), want, "all_gather without sizes")


def check_all_to_all(comm: Communicator, device: str = "cpu") -> None:
    """all_to_all and iall_to_all, with uneven and empty blocks."""
    for dtype, shape, seed in _variants(comm):
        # table[r][s]: rows that rank r sends to rank s.
        table = np.random.default_rng([seed, 99]).integers(0, 4, (comm.size, comm.size))
        table[seed % comm.size] = 0
        data = [
            block[: int(table[rank].sum())]
            for rank, block in enumerate(_all_data(comm, (4 * comm.size, *shape[1:]), dtype, seed))
        ]
        starts = table[:, : comm.rank].sum(axis=1)
        ends = starts + table[:, comm.rank]
        want = torch.cat([data[r][starts[r] : ends[r]] for r in range(comm.size)])
        send, receive = table[comm.rank].tolist(), table[:, comm.rank].tolist()
        x = data[comm.rank].to(device)
        width = int(np.prod(shape[1:]))
        with Ledger(comm, keep_events=True) as ledger:
            _same(comm.all_to_all(x, send, receive, phase="aa"), want, f"all_to_all {dtype} {shape}")
        words = tally.all_to_all([n * width for n in send], [n * width for n in receive], comm.rank)
        _counted(ledger, "aa", words)
        out = torch.empty_like(want, device=device)
        _same(comm.iall_to_all(x, send, receive, out).wait(), want, f"iall_to_all {dtype} {shape}")


def check_swap(comm: Communicator, device: str = "cpu") -> None:
    """iswap: a ring of several tensors at once, to every distance, both ways under way; order is kept."""
    for dtype, shape, seed in _variants(comm):
        data = _all_data(comm, shape, dtype, seed)
        other = _all_data(comm, (2,), torch.float64, seed)
        for distance in range(1, comm.size):
            right, left = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
            x, y = data[comm.rank].to(device), other[comm.rank].to(device)
            with Ledger(comm, keep_events=True) as ledger:
                there = comm.iswap([x, y], right, [torch.empty_like(x), torch.empty_like(y)], left, phase="s")
                back = comm.iswap([x], left, [torch.empty_like(x)], right, phase="s")
                again = comm.iswap([2 * y], right, [torch.empty_like(y)], left, phase="s")
                _same(again.wait()[0], 2 * other[left], f"the second iswap from {left}")
                first, second = there.wait()
                _same(back.wait()[0], data[right], f"iswap {dtype} {shape} from {right}")
            _same(first, data[left], f"iswap {dtype} {shape} from {left}")
            _same(second, other[left], f"iswap of a second tensor from {left}")
            each = [x.numel(), 2, x.numel(), 2]
            _counted(ledger, "s", tally.swap(each, each))
            if comm.size > 8:
                break
    if comm.size > 1:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        pending = comm.iswap(
            [torch.ones(3, device=device)], right, [torch.zeros(3, device=device)], left, phase="s"
        )
        while not pending.test():
            pass
        _same(pending.wait()[0], np.ones(3, dtype=np.float32), "test() then wait() of a swap")


def check_several_in_flight(comm: Communicator, device: str = "cpu") -> None:
    """Broadcasts in flight with two buffers, as a staged gather has them; test() ends up true."""
    buffers = [torch.empty(4, device=device) for _ in range(2)]
    blocks = [torch.full((4,), float(root)) for root in range(comm.size)]

    def start(root: int) -> object:
        buffer = buffers[root % 2]
        if root == comm.rank:
            buffer.copy_(blocks[root])
        return comm.ibroadcast(buffer, root, phase="gather")

    request = start(0)
    for root in range(comm.size):
        following = start(root + 1) if root + 1 < comm.size else None
        _same(request.wait(), blocks[root], f"stage {root}")  # type: ignore[attr-defined]
        request = following
    pending = comm.iall_gather(torch.ones(1, device=device), [1] * comm.size)
    while not pending.test():
        pass
    _same(pending.wait(), np.ones(comm.size, dtype=np.float32), "test() then wait()")


def check_split(comm: Communicator, device: str = "cpu") -> None:
    """split: colours, order by key, ranks that stay out, sub-communicators of sub-communicators."""
    part = comm.split(comm.rank % 2, key=-comm.rank, name="axis")
    members = [rank for rank in reversed(range(comm.size)) if rank % 2 == comm.rank % 2]
    if (
        part is None
        or part.size != len(members)
        or part.rank != members.index(comm.rank)
        or part.name != "axis"
    ):
        raise AssertionError(f"split by key: {part}")
    mine = torch.tensor([comm.rank], device=device)
    with Ledger(comm, keep_events=True) as ledger:
        _same(part.all_gather(mine, [1] * part.size, phase="s"), np.array(members), "all_gather on a part")
    _counted(ledger, "s", tally.all_gather([1] * part.size, part.rank))
    lone = comm.split(None if comm.rank else 0)
    if (lone is None) != (comm.rank > 0):
        raise AssertionError("split with color None")
    inner = part.split(0, key=comm.rank)
    if inner is None:
        raise AssertionError("a part of a part")
    _same(inner.all_gather(mine), np.array(sorted(members)), "a part of a part")
    total = comm.all_reduce(mine.clone())
    _same(total, np.array([sum(range(comm.size))]), "the world after splits")


def check_views(comm: Communicator, device: str = "cpu") -> None:
    """Tensors that are not contiguous, that want gradients, and plain data."""
    x = torch.arange(12.0).view(4, 3).t().to(device)
    _same(comm.all_reduce(x), x.cpu().numpy() * comm.size, "all_reduce of a transpose")
    leaf = torch.ones(3, device=device, requires_grad=True)
    with torch.no_grad():  # else a note says that the gradient ends here
        got = comm.all_reduce(leaf)
    if got.requires_grad:
        raise AssertionError("the result of a message has no gradient")
    if comm.all_gather_json({"r": comm.rank}) != [{"r": r} for r in range(comm.size)]:
        raise AssertionError("all_gather_json")
    comm.barrier()


CASES: dict[str, Callable[..., None]] = {
    "broadcast": check_broadcast,
    "all_reduce": check_all_reduce,
    "ireduce_scatter": check_reduce_scatter,
    "all_gather": check_all_gather,
    "all_to_all": check_all_to_all,
    "iswap": check_swap,
    "several_in_flight": check_several_in_flight,
    "split": check_split,
    "views": check_views,
}


def run_cases(comm: Communicator, device: str = "cpu") -> list[str]:
    """All cases, on tensors of `device`; their names.

    >>> from weft.comm.threads import single
    >>> len(run_cases(single()))
    9
    """
    for check in CASES.values():
        check(comm, device)
    return list(CASES)

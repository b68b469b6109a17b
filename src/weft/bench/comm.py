"""How fast every operation is on every engine, and the α and β of the line  seconds = α + β · bytes.

`bytes` is the size of the whole tensor of an operation: what is broadcast or reduced, the result of an
all-gather, the input of a reduce-scatter or an all-to-all, what a rank gives to the next in a swap.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..comm import Communicator, run_ranks
from ..errors import UserError
from ..tables import columns
from ..units import spell_bytes, spell_rate, spell_seconds

SIZES = (1_000, 4_000, 32_000, 256_000, 2_000_000, 16_000_000, 40_000_000, 64_000_000)
OPERATIONS = ("broadcast", "all_reduce", "ireduce_scatter", "all_gather", "all_to_all", "iswap")
_BATCHES = 5
_BATCH_SECONDS = 0.04
Row = dict[str, Any]


def bench(
    engines: Sequence[str] = ("mpi", "torch"), ranks: int = 2, sizes: Sequence[int] = SIZES
) -> list[Row]:
    """Rows of `engine, operation, ranks, bytes, seconds, bandwidth, alpha, beta`.

    The engine `mpi` adds a row `wrapper`: the seconds that weft adds to a call of bare mpi4py.
    """
    if ranks < 2:
        raise UserError(f"{ranks} rank has nobody to talk to. Use --ranks 2 or more.")
    rows: list[Row] = []
    for engine in engines:
        measured = run_ranks("weft.bench.comm:measure", ranks, engine, list(sizes), stall_seconds=300)[0]
        for operation in OPERATIONS:
            some = [row for row in measured if row["operation"] == operation]
            alpha, beta = fit([row["bytes"] for row in some], [row["seconds"] for row in some])
            rows += [row | {"alpha": alpha, "beta": beta} for row in some]
        rows += [row for row in measured if row["operation"] == "wrapper"]
    return rows


def measure(comm: Communicator, sizes: list[int]) -> list[Row]:
    """One rank's part of `bench`; the times are those of the slowest rank."""
    rows: list[Row] = []
    for size in sizes:
        words = max(comm.size, size // 4 // comm.size * comm.size)
        for operation in OPERATIONS:
            seconds = _seconds(comm, _prepare(comm, operation, words))
            rows.append(
                {
                    "engine": comm.engine,
                    "operation": operation,
                    "ranks": comm.size,
                    "bytes": 4 * words,
                    "seconds": seconds,
                    "bandwidth": 4 * words / seconds,
                }
            )
    if comm.engine == "mpi":
        rows.append(_wrapper_row(comm))
    return rows


def _prepare(comm: Communicator, operation: str, words: int) -> Callable[[], object]:
    """The call to be timed; all memory is there before."""
    share = words // comm.size
    even = [share] * comm.size
    whole, other = torch.zeros(words), torch.zeros(words)
    block = torch.zeros(share)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    calls: dict[str, Callable[[], object]] = {
        "broadcast": lambda: comm.broadcast(whole, 0),
        "all_reduce": lambda: comm.all_reduce(whole, out=other),
        "ireduce_scatter": lambda: comm.ireduce_scatter(whole, even, block).wait(),
        "all_gather": lambda: comm.all_gather(block, even, whole),
        "all_to_all": lambda: comm.all_to_all(whole, even, even, other),
        "iswap": lambda: comm.iswap([whole], right, [other], left).wait(),
    }
    return calls[operation]


def _seconds(comm: Communicator, call: Callable[[], object]) -> float:
    """The median over batches of the mean time of a call, on the slowest rank."""
    once = _batch(comm, call, 2)
    repeats = max(1, min(2000, int(_BATCH_SECONDS / max(once, 1e-7))))
    return statistics.median(_batch(comm, call, repeats) for _ in range(_BATCHES))


def _batch(comm: Communicator, call: Callable[[], object], repeats: int) -> float:
    comm.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    # A root may run ahead of the others; the barrier makes all wait for the last message.
    comm.barrier()
    mine = torch.tensor([(time.perf_counter() - start) / repeats], dtype=torch.float64)
    return float(comm.all_reduce(mine, "max"))


def _wrapper_row(comm: Communicator) -> Row:
    """What weft adds to an all-reduce of 4 kB: batches of both in turn, the quickest of each."""
    from mpi4py import MPI

    from ..comm.mpi import MpiCommunicator

    # A communicator of one rank: no other rank's timing hides a microsecond of ours.
    lone = MpiCommunicator(MPI.COMM_SELF, comm.state, "self")
    x, out = torch.zeros(1000), torch.zeros(1000)
    send = (MPI.memory.fromaddress(x.data_ptr(), 4000), 1000, MPI.FLOAT)
    receive = (MPI.memory.fromaddress(out.data_ptr(), 4000), 1000, MPI.FLOAT)
    bare, wrapped = [], []
    for _ in range(15):
        bare.append(_loop(lambda: MPI.COMM_SELF.Allreduce(send, receive), 500))
        wrapped.append(_loop(lambda: lone.all_reduce(x, out=out), 500))
    added = min(wrapped) - min(bare)
    comm.barrier()
    return {
        "engine": "mpi",
        "operation": "wrapper",
        "ranks": 1,
        "bytes": 4000,
        "seconds": added,
        "bare": min(bare),
    }


def _loop(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """α and β of seconds = α + β · bytes: least squares of relative errors, outliers weighed down.

    >>> fit([1e3, 1e4, 1e5, 1e6], [2e-6 + 1e-10 * n for n in (1e3, 1e4, 1e5, 1e6)])
    (2e-06, 1e-10)
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    table = np.stack([1 / y, x / y], axis=1)  # relative errors: 1 kB counts as much as 64 MB
    weights = np.ones_like(y)
    line: NDArray[np.floating] = np.zeros(2)
    for _ in range(20):
        root = np.sqrt(weights)
        line = np.linalg.lstsq(table * root[:, None], root, rcond=None)[0]
        errors = np.abs(table @ line - 1)
        weights = np.minimum(
            1.0, 0.1 / np.maximum(errors, 1e-12)
        )  # Huber: beyond 10 % an error counts linearly
    alpha, beta = (max(0.0, float(value)) for value in line)
    return float(f"{alpha:.3g}"), float(f"{beta:.3g}")


def ratios(rows: Sequence[Row], fast: str = "mpi", slow: str = "torch") -> list[Row]:
    """How many times faster `fast` is than `slow`, for every operation and size that both have.

    >>> a = {"engine": "mpi", "operation": "iswap", "bytes": 4000, "seconds": 1.0}
    >>> ratios([a, a | {"engine": "torch", "seconds": 3.0}])
    [{'operation': 'iswap', 'bytes': 4000, 'ratio': 3.0}]
    """
    times = {(row["engine"], row["operation"], row["bytes"]): row["seconds"] for row in rows}
    return [
        {"operation": operation, "bytes": size, "ratio": times[slow, operation, size] / seconds}
        for (engine, operation, size), seconds in times.items()
        if engine == fast and (slow, operation, size) in times
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows for people: an operation a line, a size a column: seconds of small messages, bytes a
    second of large ones.

    >>> row = {"engine": "mpi", "operation": "iswap", "ranks": 2, "bytes": 4000, "seconds": 2e-6}
    >>> print(table([row | {"bandwidth": 2e9, "alpha": 1e-6, "beta": 1e-10}]))
    engine  operation  4 kB     α        β
    mpi     iswap      2 µs  1 µs  10 GB/s
    """
    sizes = sorted({row["bytes"] for row in rows if row["operation"] != "wrapper"})
    lines = [["engine", "operation", *(spell_bytes(size) for size in sizes), "α", "β"]]
    keys = dict.fromkeys((row["engine"], row["operation"]) for row in rows if row["operation"] != "wrapper")
    for engine, operation in keys:
        some = {r["bytes"]: r for r in rows if (r["engine"], r["operation"]) == (engine, operation)}
        cells = []
        for size in sizes:
            row = some.get(size)
            if row is None:
                cells.append("")
            else:
                cells.append(spell_seconds(row["seconds"]) if size < 1e5 else spell_rate(row["bandwidth"]))
        last = next(iter(some.values()))
        speed = spell_rate(1 / last["beta"]) if last["beta"] else "-"
        lines.append([engine, operation, *cells, spell_seconds(last["alpha"]), speed])
    text = columns(lines[0], lines[1:], left=2)
    for row in rows:
        if row["operation"] == "wrapper":
            text += f"\nweft adds {spell_seconds(row['seconds'])} to a call of bare mpi4py"
    return text

"""A baseline by its name, trained and metered; and the same training in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...comm import Communicator
from ...errors import UserError, unknown
from ...graph import Graph, open_store
from ...kernels import CSR, spmm
from ...parallel import Blocks, Grid, choose
from ...train.watch import StepWatch
from .baseline import Baseline, Problem, Step, descend, epoch
from .halo import Halo
from .rows import BlockRows
from .summa import Summa

RATE = 0.1
"""η."""


@dataclass(frozen=True)
class Entry:
    """A paper's algorithm."""

    text: str
    strategy: str
    """weft's strategy of the same shape."""
    make: Callable[[Communicator, CSR, Blocks, int], Baseline]
    """(rank, Â, who owns which vertex, blocking) → its part of the algorithm."""


def _mesh(strategy: str, ranks: int) -> tuple[int, int, int]:
    """(process rows, process columns, layers) of so many ranks, as even as can be.

    >>> _mesh("2d", 8), _mesh("3d", 8), _mesh("3d", 16)
    ((4, 2, 1), (2, 2, 2), (4, 2, 2))
    """
    grid, _ = choose(strategy, ranks)
    return grid.row, grid.feature, grid.inner


def copies(ranks: int) -> int:
    """c of 1.5D: the largest whose square divides the ranks.

    >>> [copies(p) for p in (3, 4, 8, 16, 36)]
    [1, 2, 2, 4, 6]
    """
    return max(c for c in range(1, ranks + 1) if ranks % (c * c) == 0)


BASELINES = {
    "cagnet-1d": Entry(
        "CAGNET's Algorithm 1: block rows, H broadcast", "1d",
        lambda comm, a, blocks, _: BlockRows(comm, a, blocks.order),
    ),
    "cagnet-1.5d": Entry(
        "CAGNET's Algorithm 2: block rows held c times", "1.5d",
        lambda comm, a, blocks, _: BlockRows(comm, a, blocks.order, copies(comm.size)),
    ),
    "cagnet-2d": Entry(
        "CAGNET's Algorithm 3: SUMMA, A and H broadcast", "2d",
        lambda comm, a, blocks, b: Summa(comm, a, blocks.order, _mesh("2d", comm.size), b),
    ),
    "cagnet-3d": Entry(
        "CAGNET's Split-3D-SpMM", "3d",
        lambda comm, a, blocks, b: Summa(comm, a, blocks.order, _mesh("3d", comm.size), b),
    ),
    "pgcn": Entry(
        "Demirci et al.'s Algorithms 1 and 2: rows that are read", "halo",
        lambda comm, a, blocks, _: Halo(comm, a, [blocks.span(*blocks.own(p)) for p in range(comm.size)]),
    ),
}  # fmt: skip
"""Name → the algorithm."""


def check_baseline(name: str, ranks: int, blocking: int = 0) -> None:
    """Refuse what cannot be run.

    >>> check_baseline("cagnet-3", 8)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown baseline 'cagnet-3'. Did you mean 'cagnet-3d'? Known: cagnet-1d, ...
    """
    if name not in BASELINES:
        raise unknown("baseline", name, BASELINES)
    if ranks < 1:
        raise UserError(f"{ranks} ranks were asked for. Use 1 or more.")
    if blocking < 0:
        raise UserError(f"--blocking must be 0 or more, not {blocking}.")


def make(name: str, comm: Communicator, a: CSR, blocks: Blocks, blocking: int = 0) -> Baseline:
    """This rank's part of a paper's algorithm.

        a         Â, [n, n], whole: each rank cuts its own blocks out of it
        blocks    who owns which vertex, P × 1 × 1; CAGNET's take their order alone, and cut it evenly
        blocking  SUMMA's: rows of H in one stage; 0: as many as one rank has

    >>> from weft.comm import run_ranks
    >>> from weft.graph import karate
    >>> def work(comm):
    ...     p = Problem.of(karate(), 4, 2)
    ...     one = make("cagnet-2d", comm, p.a, Blocks.even(34, Grid(4)))
    ...     return tuple(one.product(one.take(p.x)).shape)
    >>> run_ranks(work, 4, "threads")[0]
    (17, 17)
    """
    check_baseline(name, comm.size, blocking)
    return BASELINES[name].make(comm, a, blocks, blocking)


def train(
    comm: Communicator, graph: Graph | str, parts: Tensor | None, name: str, hidden: int, layers: int,
    epochs: int, blocking: int = 0, seed: int = 0, dtype: str = "float32", keep: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """`epochs` of a GCN by a paper's algorithm: losses, seconds, what one epoch moves to this rank,
    and where the last one's time went.

    parts  [n]  who owns which vertex; None: drawn from the seed
    keep        gradients and rows of the last epoch, too
    """
    if isinstance(graph, str):
        graph = open_store(Path(graph)).graph()
    problem = Problem.of(graph, hidden, layers, seed, getattr(torch, dtype))
    grid = Grid(comm.size)
    n = graph.num_nodes
    blocks = Blocks.even(n, grid, seed) if parts is None else Blocks.of_parts(parts.long(), grid)
    baseline = make(name, comm, problem.a, blocks, blocking)
    x, weights = baseline.take(problem.x), problem.weights
    losses: list[float] = []
    seconds: list[float] = []
    step: Step | None = None
    watch = StepWatch(comm)
    for _ in range(epochs):
        watch = StepWatch(comm)
        comm.barrier()
        started = time.perf_counter()
        with watch:
            step = epoch(baseline, problem, x, weights)
        weights = descend(weights, step.gradients, RATE)
        comm.barrier()
        seconds.append(time.perf_counter() - started)
        losses.append(step.loss)
    ledger = watch.ledger
    answer: dict[str, Any] = {
        "loss": losses, "epoch_seconds": statistics.median(seconds[1:] or seconds), "time": watch.seconds(),
        "words": {phase: ledger.words(phase) for phase in ledger.phases if ledger.words(phase)},
        "messages": {phase: ledger.messages(phase) for phase in ledger.phases if ledger.messages(phase)},
    }  # fmt: skip
    if keep and step is not None:
        answer |= {"gradients": step.gradients, "rows": step.rows, "vertices": baseline.rows}
    return answer


def serial(problem: Problem, epochs: int) -> dict[str, Any]:
    """The same training in one process, by torch's own autograd: what every baseline must give.

    >>> from weft.graph import karate
    >>> len(serial(Problem.of(karate(), 4, 2), 3)["loss"])
    3
    """
    weights, losses = problem.weights, []
    z, gradients = problem.x, []
    for _ in range(epochs):
        leaves = [w.clone().requires_grad_() for w in weights]
        z = problem.x
        for layer, w in enumerate(leaves):
            z = spmm(problem.a, z) @ w
            z = z.relu() if layer < len(leaves) - 1 else z
        loss = torch.nn.functional.cross_entropy(z[problem.train], problem.labels[problem.train])
        gradients = list(torch.autograd.grad(loss, leaves))
        losses.append(loss.item())
        weights = descend(weights, gradients, RATE)
    return {"loss": losses, "gradients": gradients, "rows": z.detach()}

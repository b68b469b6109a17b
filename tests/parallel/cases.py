"""Graphs, the dense serial answer, and the check that a grid gives it with the predicted words.

Ranks that are processes load this file by itself: it imports nothing of its neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm import Communicator, Ledger
from weft.graph import Graph, load, normalise
from weft.parallel import Blocks, Grid, Operator
from weft.train import RunConfig, Trainer

Shape = tuple[int, int, int]
PHASES = ("split", "gather", "reduce", "join", "adjacency")


def factorisations(ranks: int) -> list[Shape]:
    """Every row × inner × feature with this product.

    >>> factorisations(3)
    [(1, 1, 3), (1, 3, 1), (3, 1, 1)]
    """
    sides = [d for d in range(1, ranks + 1) if ranks % d == 0]
    return [(r, k, ranks // (r * k)) for r in sides for k in sides if ranks % (r * k) == 0]


@functools.cache
def directed(n: int, weighted: bool = False, degree: int = 4, seed: int = 0) -> Graph:
    """A directed graph: rows of very different length, every fifth empty, some loops, a hub."""
    g = torch.Generator().manual_seed(1000 * n + seed)
    source = torch.randint(n, (degree * n,), generator=g)
    target = torch.randint(n, (degree * n,), generator=g)
    target = torch.where(torch.rand(degree * n, generator=g) < 0.2, 1 % n, target)
    keep = target % 5 != 3
    source, target = source[keep], target[keep]
    values = torch.rand(source.numel(), generator=g, dtype=torch.float64) + 0.5 if weighted else None
    return Graph.from_arcs(source, target, n, values)


@functools.cache
def dense(graph: Graph, how: str) -> tuple[Tensor, Tensor]:
    """(A, where it has entries), [n, n], by the graph room's own normalisation."""
    made = normalise(graph, how, torch.float64)
    n = made.num_nodes
    a, there = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.bool)
    a[made.rows, made.indices.long()] = 1.0 if made.weights is None else made.weights.double()
    there[made.rows, made.indices.long()] = True
    return a, there


def serial(graph: Graph, how: str, reduce: str, h: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """(y, dh) of y[i] = ⊕_j a_ij h[j] by dense algebra; of equal winners the smallest vertex takes all."""
    a, there = dense(graph, how)
    if reduce in ("sum", "mean"):
        m = a if reduce == "sum" else a / there.sum(1, keepdim=True).clamp(min=1)
        return m @ h, m.T @ dy
    sign = 1.0 if reduce == "max" else -1.0
    terms = torch.where(there[:, :, None], sign * a[:, :, None] * h[None], -torch.inf)
    best = terms.amax(1)
    n = a.shape[0]
    names = torch.arange(n)[None, :, None]
    winner = torch.where((terms == best[:, None]) & there[:, :, None], names, n).amin(1)
    takes = names == winner[:, None]
    y = torch.where(there.any(1)[:, None], sign * best, 0.0)
    return y, (takes * a[:, :, None] * dy[:, None]).sum(0)


def numbers(n: int, width: int, seed: int = 0, ties: bool = False) -> Tensor:
    """[n, width] float64; with ties small whole numbers, half of them 0, as after a ReLU."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=g, dtype=torch.float64)
    return (2 * x).round().clamp(min=0) if ties else x


@functools.cache
def problem(n: int, weighted: bool, how: str, reduce: str, width: int) -> tuple[Tensor, ...]:
    """(h, dy, y, dh) of one serial product."""
    h, dy = numbers(n, width, seed=1, ties=reduce in ("max", "min")), numbers(n, width, seed=2)
    return h, dy, *serial(directed(n, weighted), how, reduce, h, dy)


def received(books: Ledger) -> tuple[dict[str, int], dict[str, int]]:
    """(words, messages) by phase, without phases in which nothing came."""
    lines = {phase: line for phase, line in books.as_dict().items() if line["words"] or line["messages"]}
    return (
        {phase: int(line["words"]) for phase, line in lines.items()},
        {phase: int(line["messages"]) for phase, line in lines.items()},
    )


def owners(kind: str, n: int, grid: Grid) -> Blocks | None:
    """even (None: the default), random, or lumps: few owners, many ranks without a vertex."""
    if kind == "even":
        return None
    if kind == "random":
        return Blocks.even(n, grid, seed=3)
    vertices = torch.arange(n)
    return Blocks.of_parts((vertices * vertices + 2) % 7 * grid.size // 8, grid)


def close(ours: Tensor, theirs: Tensor, what: object) -> None:
    """Float64 sums in another order: a few units in the last place of the largest number."""
    assert ours.shape == theirs.shape, what
    if theirs.numel():
        scale = max(1.0, float(theirs.abs().max()))
        assert float((ours - theirs).abs().max()) <= 1e-12 * scale, what


def check(
    comm: Communicator,
    shape: Sequence[int],
    exchange: str,
    how: str,
    reductions: Iterable[str],
    n: int,
    width: int,
    weighted: bool,
    parts: str,
    overlap: bool,
    move_adjacency: bool = False,
    hosts: Sequence[int] | None = None,
) -> None:
    """On this rank: values and gradients of the serial product, words and messages of the formulas."""
    grid, graph = Grid(*shape), directed(n, weighted)
    comm.hosts = comm.hosts if hosts is None else hosts
    a = Operator.build(
        graph, comm, grid, how, exchange, owners(parts, n, grid), torch.float64, overlap, move_adjacency,
        by_host=hosts is not None,
    )  # fmt: skip
    for reduce in reductions:
        what = (shape, exchange, how, reduce, n, width, weighted, parts, overlap, move_adjacency, comm.rank)
        h, dy, want, want_dh = problem(n, weighted, how, reduce, width)
        if reduce == "mean":
            _ = a.degrees  # counted once and kept: its messages are not a propagation's
        own = a.layout.take(h).requires_grad_()
        with Ledger(comm) as books:
            y = a.aggregate(own, reduce)
            y.backward(a.layout.take(dy))
        close(y.detach(), a.layout.take(want), ("forward", *what))
        assert own.grad is not None
        close(own.grad, a.layout.take(want_dh), ("backward", *what))
        foretold = a.foretell(lambda dry, reduce=reduce: propagated(dry, width, reduce))
        assert received(books) == (foretold.words, foretold.messages), ("words", *what)
        assert foretold.words.keys() <= {*PHASES, *(["host"] if hosts else [])}


def propagated(a: Operator, width: int, reduce: str = "sum", backward: bool = True) -> None:
    """One product and its way back, of tensors without numbers."""
    h = torch.empty(a.rows.numel(), width, dtype=torch.float64, device="meta", requires_grad=True)
    y = a.aggregate(h, reduce)
    if backward:
        y.backward(torch.empty_like(y))


def check_all(comm: Communicator, cases: Sequence[Sequence[Any]]) -> int:
    """Many checks in one launch; how many."""
    torch.set_num_threads(1)
    for case in cases:
        check(comm, *case)
    return len(cases)


ALL = ("sum", "mean", "max", "min")


def cases_of(shape: Shape, n: int = 31, width: int = 5) -> list[tuple[Any, ...]]:
    """What a grid is put to: both exchanges, all norms and reductions, weights, empty ranks, no overlap.

    With features cut, also A in slices that are gathered for every product.
    """
    slices = [
        (shape, "dense", "none", ("sum", "mean", "max"), n, width, False, "lumps", True, True),
        (shape, "sparse", "gcn", ("sum", "min"), n, width, True, "random", False, True),
    ]
    return (slices if shape[2] > 1 else []) + [
        (shape, exchange, how, reductions, n, columns, weighted, parts, overlap)
        for exchange in ("dense", "sparse")
        for how, reductions, columns, weighted, parts, overlap in (
            ("gcn", ("sum",), width, False, "random", True),
            ("mean", ("sum", "max"), width, True, "even", True),
            ("none", ALL, width, False, "lumps", True),
            ("none", ALL, 1, True, "random", False),
        )
    ]


def brief_cases_of(shape: Shape, n: int = 31, width: int = 5) -> list[tuple[Any, ...]]:
    """The same in short, for grids of many virtual ranks."""
    return [
        (shape, "dense", "gcn", ("sum", "max"), n, width, True, "even", True),
        (shape, "sparse", "none", ("sum", "min"), n, width, False, "lumps", True),
    ]


def trained(
    comm: Communicator, options: dict[str, str], hosts: Sequence[int]
) -> tuple[list[float], dict[str, int]]:
    """Losses of a run on ranks whose hosts are said to be these, and the words of an epoch by phase."""
    config = RunConfig()
    config.model.hidden, config.model.name, config.train.dtype = 5, "sage", "float64"
    for name, value in options.items():
        setattr(config.parallel, name, value)
    before, comm.hosts = comm.hosts, hosts
    try:
        graph = load("kronecker:scale=7,degree=6,directed=true,features=6,classes=3")
        trainer = Trainer(graph, config, comm)
        losses = [trainer.step(epoch) for epoch in (1, 2)]
        with Ledger(comm) as books:
            losses.append(trainer.step(3))
    finally:
        comm.hosts = before
    return losses, {phase: books.words(phase) for phase in books.phases}

"""Sums over any semiring, on every grid: values and gradients of dense algebra, words as foretold."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.kernels import Semiring
from weft.parallel import Grid, Operator

from .cases import Shape, dense, directed, numbers, owners, received

N, WIDTH = 31, 5


def cubes(a: Tensor, b: Tensor) -> Tensor:
    return (a**3 + b**3).pow(1 / 3)


SEMIRINGS = {
    "sum": Semiring(torch.add, torch.mul, 0.0),
    "max times": Semiring(torch.maximum, torch.mul, -torch.inf),
    "min times": Semiring(torch.minimum, torch.mul, torch.inf),
    "max plus": Semiring(torch.maximum, torch.add, -torch.inf),
    "max plus, from 2": Semiring(torch.maximum, torch.add, 2.0),
    "min plus": Semiring(torch.minimum, torch.add, torch.inf),
    "log": Semiring(torch.logaddexp, torch.add, -torch.inf),
    "widest": Semiring(torch.maximum, torch.minimum, -torch.inf),
    "sum of roots": Semiring(torch.add, lambda a, h: (a * h).sqrt(), 0.0),
    "cubes": Semiring(cubes, torch.mul, 0.0),
    "cubes by hand": Semiring(
        cubes, torch.mul, 0.0, lambda m, y, dy: torch.where(y > 0, dy * (m / y) ** 2, 0.0),
        lambda a, h, dm: (h * dm, a * dm),
    ),
}  # fmt: skip


WITH_HEADS = ("sum", "max plus", "log", "widest", "cubes", "cubes by hand")


def positive(width: int = WIDTH) -> Tensor:
    return numbers(N, width, seed=1).abs() + 0.2


def entries(heads: int, weighted: bool) -> Tensor:
    """[n, n, heads]: what stands at the entries of S."""
    a, _ = dense(directed(N, weighted), "none")
    u = numbers(N, heads, seed=4).abs() + 0.3
    return a[:, :, None] * u[:, None]


def serial(semiring: Semiring, e: Tensor, there: Tensor, h: Tensor) -> Tensor:
    """y[i] = 0 ⊕ e_ij ⊗ h_j ⊕ …, one neighbour after the other."""
    heads = e.shape[2]
    # What is not there is not looked at, but its gradient would be: 0 times infinity.
    wide = torch.where(there[:, :, None], e, 1.0).repeat_interleave(h.shape[1] // heads, 2)
    y = torch.full((N, h.shape[1]), semiring.zero, dtype=h.dtype)
    for j in range(N):
        m = semiring.add(y, semiring.multiply(wide[:, j], h[j].expand(N, -1)))
        y = torch.where(there[:, j, None], m, y)
    return y


@functools.cache
def truth(name: str, heads: int, weighted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(y, dh, de summed over the entries of each row), by dense algebra and autograd."""
    _, there = dense(directed(N, weighted), "none")
    h = positive(heads * WIDTH).requires_grad_()
    u = torch.ones(N, heads, dtype=torch.float64, requires_grad=True)
    e = entries(heads, weighted) if heads > 1 else dense(directed(N, weighted), "none")[0][:, :, None]
    y = serial(SEMIRINGS[name], e * u[:, None], there, h)
    dh, du = torch.autograd.grad(y, [h, u], gradient_of(heads))
    return y.detach(), dh, du


def gradient_of(heads: int) -> Tensor:
    dy = numbers(N, heads * WIDTH, seed=2)
    return torch.where(dense(directed(N), "none")[1].any(1)[:, None], dy, 0.0)  # of ±∞ there is none


def work(A: Operator, name: str, heads: int, take: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(y, dh, du) of this rank: of A's own entries for one head, of learned ones for several."""
    from weft.nn.algebra import aggregate, rep

    h = take(positive(heads * WIDTH)).requires_grad_()
    u = take(torch.ones(N, heads, dtype=torch.float64)).requires_grad_()
    if heads == 1:
        y = A.aggregate(h, SEMIRINGS[name])
        y.backward(take(gradient_of(1)))
        return y.detach(), h.grad, torch.zeros_like(u)
    scale = take(numbers(N, heads, seed=4).abs() + 0.3)
    y = aggregate(A * rep(u * scale), h, SEMIRINGS[name])
    y.backward(take(gradient_of(heads)))
    return y.detach(), h.grad, u.grad


def close(ours: Tensor, theirs: Tensor, what: object) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11, msg=lambda m: f"{what}: {m}")


def check(comm: Communicator, shape: Shape, exchange: str, weighted: bool, parts: str) -> None:
    grid = Grid(*shape)
    A = Operator.build(
        directed(N, weighted), comm, grid, "none", exchange, owners(parts, N, grid), torch.float64
    )

    def blank(t: Tensor) -> Tensor:
        return torch.empty(A.rows.numel(), *t.shape[1:], dtype=t.dtype, device="meta")

    for name in SEMIRINGS:
        for heads in (1, 2) if name in WITH_HEADS else (1,):
            what = (name, heads, shape, exchange, weighted, parts, comm.rank)
            with Ledger(comm) as books:
                y, dh, du = work(A, name, heads, A.layout.take)
            foretold = A.foretell(lambda dry, name=name, heads=heads: work(dry, name, heads, blank))
            assert received(books) == (foretold.words, foretold.messages), ("words", *what)
            want, want_dh, want_du = truth(name, heads, weighted)
            close(y, A.layout.take(want), ("forward", *what))
            close(dh, A.layout.take(want_dh), ("gradient of h", *what))
            if heads > 1:
                close(du, A.layout.take(want_du), ("gradient of entries", *what))


CASES = [
    ((1, 1, 1), "dense", True, "random"),
    ((3, 1, 1), "sparse", True, "lumps"),
    ((1, 3, 1), "dense", False, "random"),
    pytest.param((1, 1, 7), "dense", True, "even", marks=pytest.mark.slow),
    pytest.param((2, 2, 1), "sparse", True, "random", marks=pytest.mark.slow),
    ((2, 2, 2), "dense", True, "lumps"),
]


@pytest.mark.parametrize(("shape", "exchange", "weighted", "parts"), CASES)
def test_every_semiring_on_every_grid_is_dense_algebra_with_the_words_foretold(
    shape, exchange, weighted, parts
):
    run_ranks(check, Grid(*shape).size, "threads", shape, exchange, weighted, parts)


WORDS = {
    "sum": (1, 1, 1, 1), "max plus": (1, 2, 2, 1), "widest": (1, 2, 2, 2), "log": (1, 1, 2, 2),
    "cubes by hand": (1, 1, 2, 2), "cubes": (1, 1, 1, 2),
}  # fmt: skip
"""(h along row, T along inner) forward, (inner, row) backward: docs/algorithms/semirings.md."""


def test_words_are_those_of_the_table_in_the_docs():
    def work(comm: Communicator) -> None:
        A = Operator.build(directed(N, True), comm, Grid(2, 2), "none", dtype=torch.float64)
        i, k, _ = A.grid.place(comm.rank)

        def rows(a: int, b: int) -> int:
            begin, end = A.layout.blocks.union(a, b)
            return end - begin

        along_row, along_inner = WIDTH * rows(1 - i, k), WIDTH * rows(i, 1 - k)
        own = WIDTH * rows(i, k)  # what others compute for this rank's rows
        for name, (ahead, merged, gathered, back) in WORDS.items():
            with Ledger(comm) as books:
                work_of = A.aggregate(A.layout.take(positive()).requires_grad_(), SEMIRINGS[name])
            assert sum(received(books)[0].values()) == ahead * along_row + merged * own, name
            with Ledger(comm) as books:
                work_of.backward(A.layout.take(gradient_of(1)))
            total = gathered * along_inner + (back - 1) * along_row + own
            assert sum(received(books)[0].values()) == total, name

    run_ranks(work, 4, "threads")

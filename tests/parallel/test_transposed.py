"""Aᵀ and Sᵀ on every grid: dense algebra, and the words of A's way back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.kernels import Semiring, Stream
from weft.nn.algebra import aggregate, carried, dropout, rep, softmax, sum, tall
from weft.parallel import Grid, Operator

from .cases import Shape, dense, numbers, owners, received
from .test_arc_data import carrying

N, WIDTH, HEADS = 31, 3, 2
NEAREST = Semiring(torch.minimum, torch.add, torch.inf)
Leaves = dict[str, Tensor]


def leaves() -> Leaves:
    shapes = {"u": HEADS, "q": HEADS * 2, "k": HEADS * 2, "x": HEADS * WIDTH}
    return {name: numbers(N, width, seed=i) for i, (name, width) in enumerate(shapes.items())}


def scores(A: Any, p: Leaves) -> Any:
    return A * torch.tanh(tall(p["q"], HEADS) @ tall(p["k"], HEADS).T + rep(p["u"]))


EXPRESSIONS: dict[str, Callable[[Any, Leaves], Tensor]] = {
    "A.T": lambda A, p: A.T @ p["x"],
    "A.T.T": lambda A, p: A.T.T @ p["x"],
    "A.T max": lambda A, p: A.T.aggregate(p["x"], "max"),
    "S.T": lambda A, p: scores(A, p).T @ p["x"],
    "softmax of S.T": lambda A, p: softmax(scores(A, p).T) @ p["x"],
    "S + S.T": lambda A, p: (2 * (scores(A, p) - softmax(scores(A, p)).T)) @ p["x"],
    "T of both": lambda A, p: (scores(A, p).T + scores(A, p) + scores(A, p) * 0.5).T @ p["x"],
    "sum of S + S.T": lambda A, p: sum(scores(A, p) + scores(A, p).T).repeat_interleave(WIDTH, 1) * p["x"],
    "features": lambda A, p: scores(A, p) @ carried("features"),
    "features of S.T": lambda A, p: scores(A, p).T @ carried("features"),
    "nearest by S.T": lambda A, p: aggregate(scores(A, p).T, p["x"], NEAREST),
    "dropped S.T": lambda A, p: dropout(scores(A, p).T, 0.4, Stream(1, 2, 3)) @ p["x"],
}


def truth(name: str, p: Leaves) -> Tensor:
    graph = carrying(N)
    a, there = dense(graph, "none")
    turned = there.T
    q, k = (p[n].view(N, HEADS, 2) for n in "qk")
    s = torch.tanh(torch.einsum("ihc,jhc->ijh", q, k) + p["u"][:, None]) * a[:, :, None]
    x = p["x"].view(N, HEADS, WIDTH)
    f = torch.zeros(N, N, 3, dtype=torch.float64)
    f[graph.rows, graph.indices.long()] = graph.arc_data["features"].double()

    def times(m: Tensor) -> Tensor:
        return torch.einsum("ijh,jhc->ihc", m, x).reshape(N, -1)

    def soft(m: Tensor, at: Tensor) -> Tensor:
        return torch.where(at[:, :, None], m, -torch.inf).softmax(1).nan_to_num(0.0)

    t = s.transpose(0, 1)
    match name:
        case "A.T":
            return a.T @ p["x"]
        case "A.T.T":
            return a @ p["x"]
        case "A.T max":
            best = torch.where(turned[:, :, None], a.T[:, :, None] * p["x"], -torch.inf).amax(1)
            return torch.where(turned.any(1)[:, None], best, 0.0)
        case "S.T":
            return times(t)
        case "softmax of S.T":
            return times(soft(t, turned))
        case "S + S.T":
            return times(2 * (s - soft(s, there).transpose(0, 1)))
        case "T of both":
            return times(s + 1.5 * t)
        case "sum of S + S.T":
            return (s + t).sum(1).repeat_interleave(WIDTH, 1) * p["x"]
        case "features":
            return torch.einsum("ijh,ijt->iht", s, f).reshape(N, -1)
        case "features of S.T":
            return torch.einsum("ijh,ijt->iht", t, f.transpose(0, 1)).reshape(N, -1)
        case "nearest by S.T":
            m = torch.where(turned[:, :, None, None], t[:, :, :, None] + x[None], torch.inf)
            return m.amin(1).reshape(N, -1)
    raise AssertionError(name)


def gradients(y: Tensor, p: Leaves, take: Any) -> list[Tensor | None]:
    dy = numbers(N, y.shape[1], seed=9)
    dy = torch.where(dense(carrying(N), "none")[1].T.any(1)[:, None], dy, 0.0)
    return list(torch.autograd.grad(y, list(p.values()), take(dy), allow_unused=True))


@functools.cache
def serial(name: str) -> tuple[Tensor, list[Tensor | None]]:
    p = {n: t.clone().requires_grad_() for n, t in leaves().items()}
    if name == "dropped S.T":  # its mask is that of both vertices: one rank's own
        A = run_ranks(lambda c: Operator.build(carrying(N), c, Grid(1), "none", dtype=torch.float64), 1)[0]
        y = EXPRESSIONS[name](A, p)
    else:
        y = truth(name, p)
    return y.detach(), gradients(y, p, lambda t: t)


def check(comm: Communicator, shape: Shape, exchange: str, parts: str, moving: bool) -> None:
    grid = Grid(*shape)
    A = Operator.build(
        carrying(N), comm, grid, "none", exchange, owners(parts, N, grid), torch.float64,
        move_adjacency=moving, data=("features",),
    )  # fmt: skip
    _ = A.T  # slices of A are gathered for it once
    for name, expression in EXPRESSIONS.items():
        what = (name, shape, exchange, parts, comm.rank)
        p = {n: A.layout.take(t).requires_grad_() for n, t in leaves().items()}
        with Ledger(comm) as books:
            y = expression(A, p)
            found = gradients(y, p, A.layout.take)

        def blank(dry: Operator, expression: Any = expression) -> None:
            rows = dry.rows.numel()
            q = {
                n: torch.empty(rows, t.shape[1], dtype=t.dtype, device="meta", requires_grad=True)
                for n, t in leaves().items()
            }
            y = expression(dry, q)
            torch.autograd.grad(y, list(q.values()), torch.empty_like(y), allow_unused=True)

        foretold = A.foretell(blank)
        assert received(books) == (foretold.words, foretold.messages), ("words", *what)
        want, wanted = serial(name)
        torch.testing.assert_close(y.detach(), A.layout.take(want), rtol=1e-11, atol=1e-11)
        for g, w, leaf in zip(found, wanted, p, strict=True):
            zero = torch.zeros_like(p[leaf])
            g = zero if g is None else g
            w = zero if w is None else A.layout.take(w)
            torch.testing.assert_close(
                g, w, rtol=1e-10, atol=1e-10, msg=lambda m, n=(leaf, *what): f"{n}: {m}"
            )


CASES = [
    ((1, 1, 1), "dense", "random", False),
    ((3, 1, 1), "sparse", "lumps", False),
    pytest.param((1, 3, 1), "dense", "even", False, marks=pytest.mark.slow),
    ((1, 1, 3), "dense", "random", True),
    pytest.param((2, 2, 1), "sparse", "random", False, marks=pytest.mark.slow),
    ((2, 2, 2), "dense", "lumps", False),
]


@pytest.mark.parametrize(("shape", "exchange", "parts", "moving"), CASES)
def test_what_is_turned_is_dense_algebra_on_every_grid_with_the_words_foretold(
    shape, exchange, parts, moving
):
    run_ranks(check, Grid(*shape).size, "threads", shape, exchange, parts, moving)


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
def test_a_product_with_the_transpose_moves_what_the_way_back_does(exchange):
    def work(comm: Communicator) -> None:
        A = Operator.build(carrying(N), comm, Grid(2, 2), "none", exchange, dtype=torch.float64)

        def words(run: Callable[[Tensor], object]) -> dict[str, int]:
            h = A.layout.take(leaves()["x"]).requires_grad_()
            with Ledger(comm) as books:
                run(h)
            return received(books)[0]

        there, both = words(lambda h: A @ h), words(lambda h: (A @ h).sum().backward())
        back = {phase: both[phase] - there.get(phase, 0) for phase in both}
        assert words(lambda h: A.T @ h) == {phase: n for phase, n in back.items() if n}

    run_ranks(work, 4, "threads")


def test_a_sampled_block_has_a_transpose_of_its_own():
    graph = carrying(N)
    from weft.minibatch import Reads, Sampler, Topology

    sampler = Sampler(Topology.read(graph, Reads("none", scaled=False), dtype=torch.float64), [4], seed=0)
    (block,) = sampler.blocks(torch.tensor([1, 4, 7]), step=0)
    A = block.compact()
    x, u = numbers(3, 4, seed=1), numbers(block.sources.numel(), 1, seed=2).requires_grad_()
    S = A * rep(u).T
    y = S.T @ x
    pattern = block.matrix.dense().double()
    want = (pattern * u.ravel()).T @ x
    torch.testing.assert_close(y, want)
    for mine, theirs in zip(*(torch.autograd.grad(t.sum(), u) for t in (y, want)), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(A.T.rows, block.sources)
    assert A.T.T is A
    assert S.T.T.A is A


def test_what_needs_one_pattern_says_so():
    A = run_ranks(lambda c: Operator.build(carrying(N), c, Grid(1), "none"), 1)[0]
    B = run_ranks(lambda c: Operator.build(carrying(N), c, Grid(1), "none"), 1)[0]
    S, R = A * rep(torch.ones(N)), B * rep(torch.ones(N))
    for bad in (
        lambda: softmax(S + S.T),
        lambda: (S + S.T) + 1,
        lambda: (S + S.T) * S,
        lambda: (S + S.T) * rep(torch.ones(N)),
    ):
        with pytest.raises(
            TypeError, match=r"not defined on S \+ S.T, which has entries of A and of its transpose"
        ):
            bad()
    with pytest.raises(TypeError, match="two different matrices"):
        _ = (S + S.T) + R
    with pytest.raises(TypeError, match="two different matrices"):
        _ = S + R

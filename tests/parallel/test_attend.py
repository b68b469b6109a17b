"""Attention on every grid: values and gradients of one rank, words and messages of the formulas."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph
from weft.kernels import Stream
from weft.nn.algebra import aggregate, dropout, leaky_relu, outer, rep, softmax, sum, tall
from weft.parallel import Grid, Operator

from .cases import Shape, directed, numbers, owners, received
from .formulas import Move, Tally, count_moves

N, WIDTH = 31, 4
STREAM = Stream(1, 2, 3)
Leaves = dict[str, Tensor]


def cosine(A: Any, p: Leaves, heads: int) -> Tensor:
    H = tall(p["x"], heads)
    S = p["b"] * (A * (H @ H.T) / outer(H.norms, H.norms))
    return dropout(softmax(S), 0.3, STREAM) @ H


def generic(A: Any, p: Leaves, heads: int) -> Tensor:
    S = torch.tanh(A * (tall(p["q"], heads) @ tall(p["k"], heads).T) + rep(p["u"])) * p["b"]
    return dropout(softmax(S), 0.3, STREAM) @ p["x"]


def gat(A: Any, p: Leaves, heads: int) -> Any:
    return softmax(A * leaky_relu(rep(p["u"]) + rep(p["v"]).T, 0.2))


EXPRESSIONS = {
    "gat": lambda A, p, h: gat(A, p, h) @ p["x"],
    "gat, dropout": lambda A, p, h: dropout(gat(A, p, h), 0.4, STREAM) @ p["x"],
    "dot": lambda A, p, h: (A * (tall(p["q"], h) @ tall(p["k"], h).T)) @ p["x"],
    "dot, keys are values": lambda A, p, h: softmax(A * (p["y"] @ tall(p["x"], h).T)) @ p["x"],
    "cosine": cosine,
    "generic": generic,
    "max": lambda A, p, h: aggregate(A * torch.sigmoid(rep(p["u"]) + rep(p["v"]).T), p["x"], "max"),
    "mean": lambda A, p, h: aggregate(A * torch.sigmoid(rep(p["u"]) - rep(p["v"]).T), p["x"], "mean"),
    "sum": lambda A, p, h: (
        p["x"] * sum(A * torch.exp(rep(p["u"]) * rep(p["v"]).T)).repeat_interleave(WIDTH, 1)
    ),
}


def leaves(heads: int) -> Leaves:
    shapes = {"u": heads, "v": heads, "x": heads * WIDTH, "y": heads * WIDTH, "q": heads * 5, "k": heads * 5}
    out = {name: numbers(N, width, seed=i) for i, (name, width) in enumerate(shapes.items())}
    return out | {"b": torch.tensor(0.7, dtype=torch.float64)}


def run(A: Operator, name: str, heads: int) -> tuple[Tensor, Leaves]:
    """(y, gradients) of this rank."""
    everything = leaves(heads)
    p = {n: (A.layout.take(t) if t.dim() else t.clone()).requires_grad_() for n, t in everything.items()}
    y = EXPRESSIONS[name](A, p, heads)
    dy = torch.linspace(-1, 1, N * heads * WIDTH, dtype=torch.float64).view(N, heads * WIDTH)
    y.backward(A.layout.take(dy))
    return y.detach(), {n: t.grad for n, t in p.items() if t.grad is not None}


def run_dry(A: Operator, name: str, heads: int) -> None:
    """The same without numbers."""
    p = {}
    for n, t in leaves(heads).items():
        shape = (A.rows.numel(), *t.shape[1:]) if t.dim() else ()
        p[n] = torch.empty(shape, dtype=t.dtype, device="meta", requires_grad=True)
    y = EXPRESSIONS[name](A, p, heads)
    y.backward(torch.empty_like(y))


@functools.cache
def alone(name: str, heads: int, weighted: bool) -> tuple[Tensor, Leaves]:
    def work(comm: Communicator) -> tuple[Tensor, Leaves]:
        graph = Operator.build(directed(N, weighted), comm, Grid(1), "none", dtype=torch.float64)
        return run(graph, name, heads)

    return run_ranks(work, 1, "threads")[0]


def moves_of(name: str, heads: int, plain: bool) -> list[Move]:
    """What the expression asks, told by a graph without vertices."""
    tally = Tally(plain)
    p = {n: t[:0] if t.dim() else t for n, t in leaves(heads).items()}
    EXPRESSIONS[name](tally, {n: t.clone().requires_grad_() for n, t in p.items()}, heads)
    return tally.moves


def close(ours: Tensor, theirs: Tensor, what: object) -> None:
    assert ours.shape == theirs.shape, what
    if theirs.numel():
        scale = max(1.0, float(theirs.abs().max()))
        assert float((ours - theirs).abs().max()) <= 1e-11 * scale, what


def check(
    comm: Communicator,
    shape: Shape,
    exchange: str,
    weighted: bool,
    parts: str,
    moving: bool,
    names: list[str],
) -> None:
    grid = Grid(*shape)
    A = Operator.build(
        directed(N, weighted),
        comm,
        grid,
        "none",
        exchange,
        owners(parts, N, grid),
        torch.float64,
        True,
        moving,
    )
    _ = A.degrees  # counted once and kept
    for name in names:
        for heads in (1, 3):
            what = (name, heads, shape, exchange, weighted, parts, moving, comm.rank)
            with Ledger(comm) as books:
                y, gradients = run(A, name, heads)
            foretold = A.foretell(functools.partial(run_dry, name=name, heads=heads))
            assert received(books) == (foretold.words, foretold.messages), ("words", *what)
            formulas = count_moves(A, moves_of(name, heads, not weighted))
            assert (formulas.words, formulas.messages) == received(books), ("formulas", *what)
            want, want_gradients = alone(name, heads, weighted)
            close(y, A.layout.take(want), ("forward", *what))
            assert gradients.keys() == want_gradients.keys(), what
            for leaf, g in gradients.items():
                w = want_gradients[leaf]
                if w.dim() == 0:
                    g = comm.all_reduce(g.reshape(1)).reshape(())
                close(g, A.layout.take(w) if w.dim() else w, (f"gradient of {leaf}", *what))


SHAPES: list[Shape] = [
    (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2), (3, 2, 1),
    (3, 3, 1), (1, 1, 5), (2, 2, 3),
]  # fmt: skip


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_grid_gives_the_one_ranks_numbers_and_the_foretold_words(shape, exchange):
    """`lumps` leaves ranks without a vertex; every fifth row of the graph is empty; 31 vertices."""
    parts = "lumps" if exchange == "sparse" else "random"
    for weighted in (False, True):
        for name in EXPRESSIONS:
            alone(name, 1, weighted), alone(name, 3, weighted)  # once, before the ranks ask
    names = list(EXPRESSIONS)
    size = shape[0] * shape[1] * shape[2]
    run_ranks(check, size, "threads", shape, exchange, False, parts, False, names)
    run_ranks(check, size, "threads", shape, exchange, True, "even", False, ["gat, dropout", "cosine", "max"])
    if shape[2] > 1:
        run_ranks(check, size, "threads", shape, exchange, False, "even", True, names)


def test_the_lumps_leave_a_rank_empty():
    blocks = owners("lumps", N, Grid(2, 2, 2))
    assert 0 in blocks.sizes


def test_a_wrong_formula_is_caught(monkeypatch):
    """A formula that forgets the softmax's sums fails the comparison above."""
    from . import formulas

    alone("gat", 1, False), alone("gat", 3, False)
    case = ((2, 2, 1), "dense", False, "even", False, ["gat"])
    run_ranks(check, 4, "threads", *case)
    honest = formulas.count_move

    def careless(count, move, forward, backward):
        honest(count, Move(**{**move.__dict__, "softmax": False}), forward, backward)

    monkeypatch.setattr(formulas, "count_move", careless)
    with pytest.raises(AssertionError, match="formulas"):
        run_ranks(check, 4, "threads", *case)


def test_no_gradient_is_sent_where_nobody_asks_for_it():
    def work(comm: Communicator) -> None:
        A = Operator.build(directed(N), comm, Grid(2, 2, 1), "none", dtype=torch.float64)
        u, v, x = (A.layout.take(numbers(N, w, seed=w)) for w in (1, 1, 6))
        for grads in ((), ("u",), ("v",), ("x",)):
            named = {"u": u.clone(), "v": v.clone(), "x": x.clone()}
            for name in grads:
                named[name].requires_grad_()
            with Ledger(comm) as books:
                y = softmax(A * leaky_relu(rep(named["u"]) + rep(named["v"]).T)) @ named["x"]
                if grads:
                    y.sum().backward()
            tally = Tally()
            empty = {n: t[:0].detach().requires_grad_(n in grads) for n, t in named.items()}
            softmax(tally * leaky_relu(rep(empty["u"]) + rep(empty["v"]).T)) @ empty["x"]
            formulas = count_moves(A, tally.moves)
            assert received(books) == (formulas.words, formulas.messages), grads

    run_ranks(work, 4, "threads")


def test_logits_of_ten_thousand_meet_across_ranks_without_overflow():
    """A row's arcs lie on several ranks, and the largest score on one of them alone."""
    column = torch.full((N, 1), -1e4, dtype=torch.float64)
    column[::3] = 1e4
    want = None
    for shape in ((1, 1, 1), (1, 3, 1), (3, 2, 1)):

        def work(comm: Communicator, shape: Shape = shape) -> tuple[Tensor, Tensor]:
            A = Operator.build(directed(N), comm, Grid(*shape), "none", dtype=torch.float64)
            v, x = A.layout.take(column).requires_grad_(), A.layout.take(numbers(N, 3))
            y = softmax(A * (rep(torch.zeros_like(v)) + rep(v).T)) @ x
            y.sum().backward()
            return A.layout.collect(y), A.layout.collect(v.grad)

        y, dv = run_ranks(work, Grid(*shape).size, "threads")[0]
        assert bool(torch.isfinite(y).all())
        assert bool(torch.isfinite(dv).all())
        want = (y, dv) if want is None else want
        torch.testing.assert_close((y, dv), want, rtol=1e-12, atol=1e-12)


def test_operands_that_do_not_fit_are_named():
    A = Operator.local(run_matrix())
    x, one = torch.ones(N, 4), torch.ones(N, 1)
    with pytest.raises(UserError, match="unknown attention 'adittive'"):
        A.attend(one, one, x, kind="adittive")
    with pytest.raises(ValueError, match="which 3 heads do not divide"):
        A.attend(torch.ones(N, 3), torch.ones(N, 3), x, heads=3)
    with pytest.raises(ValueError, match="additive scores have 2 columns"):
        A.attend(torch.ones(N, 4), torch.ones(N, 4), x, heads=2)
    with pytest.raises(ValueError, match=r"a gain is \[n, 1\], of dot products"):
        A.attend(one, one, x, gain=one)
    with pytest.raises(ValueError, match="the two sides have 4 and 2 columns"):
        A.attend(x, x[:, :2], x, kind="dot")


def run_matrix() -> Any:
    from weft.kernels import CSR

    graph = directed(N)
    return CSR(graph.indptr, graph.indices, None, (N, N))


def masked(comm: Communicator, graph: Any, grid: Grid) -> Tensor:
    """The mean over the last six of twelve vertices: the first six are masked."""
    A = Operator.build(graph, comm, grid, "none", dtype=torch.float64)
    v = torch.zeros(12, dtype=torch.float64)
    v[:6] = -torch.inf
    x = torch.arange(12, dtype=torch.float64)[:, None]
    y = softmax(A * (rep(0 * A.layout.take(v).clamp(min=0)) + rep(A.layout.take(v)).T)) @ A.layout.take(x)
    return A.layout.collect(y)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (3, 1, 2)])
def test_a_block_whose_scores_are_all_masked_counts_nothing(shape):
    at = torch.arange(144)
    graph = Graph.from_arcs(at % 12, at // 12, 12)
    grid = Grid(*shape)
    for y in run_ranks(masked, grid.size, "threads", graph, grid):
        assert torch.allclose(y, torch.full((12, 1), 8.5, dtype=torch.float64))

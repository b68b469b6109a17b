"""Messages and attention over arcs with data, on every grid: values, gradients and words of one rank."""

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
from weft.nn import PTagsLayer
from weft.parallel import Grid, Operator

from .cases import Shape, directed, numbers, owners, received

N, WIDTH, T, HEADS = 31, 6, 3, 2
STREAM = Stream(1, 2, 3)
Leaves = dict[str, Tensor]
WEIGHTS = {"w": (T, WIDTH), "u": (T, WIDTH), "mix": (WIDTH,), "number": (T, HEADS), "table": (4, HEADS)}
"""Learned by all ranks together: their gradients are sums over the ranks."""


@functools.cache
def carrying() -> Graph:
    plain = directed(N)
    arcs = plain.num_arcs
    data = {"features": numbers(arcs, T, seed=3), "type": torch.arange(arcs) % 4}
    return Graph(plain.indptr, plain.indices, arc_data=data)


def relu(A: Any, p: Leaves) -> Tensor:
    return A.channel_sum("relu", p["x"], edge=("features", p["w"]))


def shifted(A: Any, p: Leaves) -> Tensor:
    return A.channel_sum("relu", p["x"].detach(), p["mix"], edge=("features", p["w"]))


def gate(A: Any, p: Leaves) -> Tensor:
    return A.channel_sum("gate", p["x"], p["y"], p["z"], ("features", p["w"]), p["u"])


def stats(A: Any, p: Leaves) -> Tensor:
    return torch.cat(A.channel_stats(p["x"], ("features", p["w"])), 1)


def channel(A: Any, p: Leaves) -> Tensor:
    return A.attend(
        p["y"], p["x"], p["x"], kind="channel", heads=HEADS, slope=0.2, mix=p["mix"],
        edge=("features", p["w"]), drop=(0.3, STREAM),
    )  # fmt: skip


def values(A: Any, p: Leaves) -> Tensor:
    bias = A.entries.data_dots(p["q"], "features", HEADS)
    return torch.cat(
        A.attend_data(p["y"], p["x"], p["z"], kind="dot", heads=HEADS, bias=bias, drop=(0.3, STREAM)), 1
    )


def biased(A: Any, p: Leaves) -> Tensor:
    bias = A.entries.project("features", p["number"])
    y, sums = A.attend_data(p["a"], p["b"], p["x"], heads=HEADS, slope=0.2, bias=bias, softmax=False)
    return torch.cat([y, sums], 1)


def kinds(A: Any, p: Leaves) -> Tensor:
    e = A.entries.lookup(p["table"], "type") * A.entries.share_of_kind("type", 4)
    return torch.cat([A.entries.weigh(e, p["x"]), A.entries.data_sums(e, "features")], 1)


OPERATIONS = {f.__name__: f for f in (relu, shifted, gate, stats, channel, values, biased, kinds)}


def leaves() -> Leaves:
    shapes = {"x": WIDTH, "y": WIDTH, "z": WIDTH, "q": HEADS * T, "a": HEADS, "b": HEADS}
    out = {name: numbers(N, width, seed=i) for i, (name, width) in enumerate(shapes.items())}
    for i, (name, shape) in enumerate(WEIGHTS.items()):
        out[name] = numbers(max(shape[0], 1), shape[1] if len(shape) > 1 else 1, seed=20 + i).view(shape)
    return out


def run(A: Operator, name: str) -> tuple[Tensor, Leaves]:
    p = {n: (t if n in WEIGHTS else A.layout.take(t)).clone().requires_grad_() for n, t in leaves().items()}
    y = OPERATIONS[name](A, p)
    dy = torch.linspace(-1, 1, N * y.shape[1], dtype=torch.float64).view(N, -1)
    y.backward(A.layout.take(dy))
    return y.detach(), {n: t.grad for n, t in p.items() if t.grad is not None}


def run_dry(A: Operator, name: str) -> None:
    p = {}
    for n, t in leaves().items():
        shape = t.shape if n in WEIGHTS else (A.rows.numel(), *t.shape[1:])
        p[n] = torch.empty(shape, dtype=t.dtype, device="meta", requires_grad=True)
    y = OPERATIONS[name](A, p)
    y.backward(torch.empty_like(y))


def built(
    comm: Communicator, shape: Shape, exchange: str, parts: str = "even", moving: bool = False
) -> Operator:
    grid = Grid(*shape)
    return Operator.build(
        carrying(), comm, grid, "none", exchange, owners(parts, N, grid), torch.float64, True, moving,
        data=("features", "type"),
    )  # fmt: skip


@functools.cache
def alone(name: str) -> tuple[Tensor, Leaves]:
    return run_ranks(lambda comm: run(built(comm, (1, 1, 1), "dense"), name), 1, "threads")[0]


def close(ours: Tensor, theirs: Tensor, what: object) -> None:
    assert ours.shape == theirs.shape, what
    scale = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
    assert not theirs.numel() or float((ours - theirs).abs().max()) <= 1e-11 * scale, what


def check(comm: Communicator, shape: Shape, exchange: str, parts: str, moving: bool) -> None:
    A = built(comm, shape, exchange, parts, moving)
    for name in OPERATIONS:
        what = (name, shape, exchange, parts, moving, comm.rank)
        if name == "kinds":
            A.entries.share_of_kind("type", 4)  # made once and kept
        with Ledger(comm) as books:
            y, gradients = run(A, name)
        foretold = A.foretell(functools.partial(run_dry, name=name))
        assert received(books) == (foretold.words, foretold.messages), ("words", *what)
        want, wanted = alone(name)
        close(y, A.layout.take(want), ("forward", *what))
        assert gradients.keys() == wanted.keys(), what
        for n, g in wanted.items():
            if n in WEIGHTS:
                close(comm.all_reduce(gradients[n].contiguous()), g, (n, *what))
            else:
                close(gradients[n], A.layout.take(g), (n, *what))


SHAPES = [(2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 3), (2, 2, 2)]


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_grid_gives_the_one_ranks_numbers_and_the_foretold_words(shape, exchange):
    ranks = shape[0] * shape[1] * shape[2]
    run_ranks(check, ranks, "threads", shape, exchange, "even", False)


@pytest.mark.parametrize(
    ("shape", "parts", "moving"), [((2, 2, 1), "random", False), ((1, 2, 2), "even", True)]
)
def test_other_owners_and_an_adjacency_that_moves(shape, parts, moving):
    ranks = shape[0] * shape[1] * shape[2]
    run_ranks(check, ranks, "threads", shape, "dense", parts, moving)


def test_a_row_operand_that_is_the_same_for_all_is_as_if_added_to_the_columns():
    y, gradients = alone("shifted")
    p = {n: t.clone().requires_grad_() for n, t in leaves().items()}
    A = built(_single(), (1, 1, 1), "dense")
    want = A.channel_sum("relu", p["x"] + p["mix"], edge=("features", p["w"]))
    want.backward(torch.linspace(-1, 1, N * WIDTH, dtype=torch.float64).view(N, -1))
    close(y, want.detach(), "forward")
    for n in ("mix", "w"):
        assert p[n].grad is not None
        close(gradients[n], p[n].grad, n)


def test_what_is_missing_or_does_not_fit_is_named():
    A = Operator.build(directed(N), _single(), Grid(1), "none", dtype=torch.float64)
    x = numbers(N, WIDTH)
    with pytest.raises(UserError, match="the arcs carry no 'features' here, but: none"):
        A.channel_sum("relu", x, edge=("features", numbers(T, WIDTH)))
    with pytest.raises(UserError, match="unknown kind of message 'reul'"):
        A.channel_sum("reul", x)
    with pytest.raises(ValueError, match="row has 2 columns, but column has 6"):
        A.channel_sum("relu", x, x[0, :2])
    with pytest.raises(ValueError, match="channel scores, and no others, have a mix"):
        A.attend(x, x, x, kind="channel")
    with pytest.raises(ValueError, match=r"a bias is \[\d+, 1\]"):
        A.attend(x, x, x, kind="dot", bias=numbers(3, 1))
    with pytest.raises(UserError, match="features"):
        Operator.build(directed(N), _single(), Grid(1), data=("features",))


def _single() -> Communicator:
    from weft.comm.threads import single

    return single()


class Softmaxed(PTagsLayer):
    def scatter(self, source: Tensor, arc: Tensor | None, target: Tensor | None) -> Tensor:
        return torch.softmax(source, 1)


def test_a_message_that_mixes_columns_is_refused_where_ranks_have_some_of_them():
    def run(comm: Communicator, shape: Shape) -> Tensor:
        grid = Grid(*shape)
        A = Operator.build(directed(N), comm, grid, "none", "dense", owners("even", N, grid), torch.float64)
        return Softmaxed()(A, A.layout.take(numbers(N, WIDTH)))

    whole = run_ranks(run, 1, "threads", (1, 1, 1))[0]
    assert torch.allclose(torch.cat(run_ranks(run, 2, "threads", (2, 1, 1))), whole)
    with pytest.raises(UserError, match=r"scatter makes columns of a message of other columns.* transform"):
        run_ranks(run, 2, "threads", (1, 1, 2))

"""Every word of the vocabulary against n×n matrices that torch holds whole, with autograd."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from weft.kernels import CSR, Stream, native
from weft.kernels.attention import Drop
from weft.nn import algebra
from weft.nn.algebra import Sampled, Virtual, aggregate, dropout, leaky_relu, outer, rep, softmax, sum, tall
from weft.parallel import Operator
from weft.parallel.entries import Entries

from .graphs import adjacency, directed

N, HEADS, WIDTH = 13, 3, 4
STREAM = Stream(1, 2, 3)


def matrix(weighted: bool) -> tuple[Operator, Tensor, Tensor]:
    """(A, A dense, where it has entries): directed, with empty rows (vertex 5) and columns."""
    a = adjacency(directed(N, 40), "none")
    if weighted:
        g = torch.Generator().manual_seed(4)
        a = CSR(a.indptr, a.indices, torch.randn(a.arcs, generator=g, dtype=torch.float64), a.shape)
    there = torch.zeros(N, N, dtype=torch.bool)
    there[a.row_of, a.indices.long()] = True
    assert not there[5].any()
    assert bool((~there).all(0).any())
    return Operator.local(a), a.dense().double(), there


class Dense:
    """The same words over [n, n, heads] tensors; `A * V` is a Hadamard product."""

    def __init__(self, a: Tensor, there: Tensor):
        self.a, self.there = a[:, :, None], there[:, :, None]

    def __mul__(self, v: Tensor) -> Tensor:
        return torch.where(self.there, self.a * v, 0.0)

    def softmax(self, s: Tensor) -> Tensor:
        most = torch.where(self.there, s, -torch.inf).amax(1, keepdim=True).detach()
        e = torch.where(self.there, torch.exp(s - torch.where(most.isfinite(), most, 0.0)), 0.0)
        return e / e.sum(1, keepdim=True).clamp(min=1e-300)

    def dropout(self, s: Tensor, p: float) -> Tensor:
        i, j, _ = self.there.nonzero(as_tuple=True)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), self.there.sum((1, 2)).cumsum(0)])
        keep = Drop(p, STREAM.key).factors(CSR(indptr, j, None, (N, N)), s.shape[2], s.dtype)
        return s * torch.zeros_like(s).index_put((i, j), keep)

    def aggregate(self, s: Tensor, x: Tensor, reduce: str = "sum") -> Tensor:
        terms = s.repeat_interleave(x.shape[1] // s.shape[2], 2) * x[None]  # [n, n, w]
        if reduce in ("max", "min"):
            sign = 1 if reduce == "max" else -1
            best = torch.where(self.there, sign * terms, -torch.inf).amax(1)
            return sign * torch.where(self.there.any(1), best, 0.0)
        y = torch.where(self.there, terms, 0.0).sum(1)
        return y / self.there.sum(1).clamp(min=1) if reduce == "mean" else y


def dots(x: Tensor, y: Tensor, heads: int) -> Tensor:
    return torch.einsum("ihw,jhw->ijh", x.view(N, heads, -1), y.view(N, heads, -1))


Leaves = dict[str, Tensor]


def leaves(heads: int) -> Leaves:
    g = torch.Generator().manual_seed(heads)

    def make(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    return {
        "u": make(N, heads), "v": make(N, heads), "x": make(N, heads * WIDTH), "q": make(N, heads * 5),
        "k": make(N, heads * 5), "b": make(), "t": make(heads),
    }  # fmt: skip


def of(f: Callable[..., Any], *names: str) -> Callable[[Leaves], Any]:
    return lambda p: f(*(p[name] for name in names))


# name → (the virtual matrix in the vocabulary, the same dense [n, n, heads])
ENTRIES: dict[str, tuple[Callable[[Leaves, int], Any], Callable[[Leaves, int], Tensor]]] = {
    "rep": (lambda p, h: rep(p["u"]), lambda p, h: p["u"][:, None].expand(N, N, h)),
    "rep T": (lambda p, h: rep(p["u"]).T, lambda p, h: p["u"][None].expand(N, N, h)),
    "outer": (lambda p, h: outer(p["u"], p["v"]), lambda p, h: p["u"][:, None] * p["v"][None]),
    "dot": (
        lambda p, h: tall(p["q"], h) @ tall(p["k"], h).T,
        lambda p, h: dots(p["q"], p["k"], h),
    ),
    "dot T": (
        lambda p, h: (tall(p["q"], h) @ tall(p["k"], h).T).T,
        lambda p, h: dots(p["k"], p["q"], h),
    ),
    "tensor @ tall": (
        lambda p, h: p["q"] @ tall(p["k"], h).T,
        lambda p, h: dots(p["q"], p["k"], h),
    ),
    "additive": (
        lambda p, h: leaky_relu(rep(p["u"]) + rep(p["v"]).T, 0.3),
        lambda p, h: F.leaky_relu(p["u"][:, None] + p["v"][None], 0.3),
    ),
    "additive, other order, one head on a side": (
        lambda p, h: F.leaky_relu(rep(p["v"][:, 0]).T + rep(p["u"])),
        lambda p, h: F.leaky_relu(p["v"][None, :, :1] + p["u"][:, None]),
    ),
    "additive without leaky": (
        lambda p, h: rep(p["u"]) + rep(p["v"]).T,
        lambda p, h: p["u"][:, None] + p["v"][None],
    ),
    "cosine with a learned number": (
        lambda p, h: p["b"] * (tall(p["x"], h) @ tall(p["x"], h).T) / outer(*[tall(p["x"], h).norms] * 2),
        lambda p, h: p["b"] * F.cosine_similarity(
            p["x"].view(N, 1, h, WIDTH), p["x"].view(1, N, h, WIDTH), dim=3),
    ),
    "temperature per head, a degree on the column": (
        lambda p, h: -(tall(p["q"], h) @ tall(p["k"], h).T) * p["t"] / rep(p["v"] ** 2 + 1).T,
        lambda p, h: -dots(p["q"], p["k"], h) * p["t"] / (p["v"] ** 2 + 1)[None],
    ),
    "numbers": (
        lambda p, h: 2 - 3 * rep(p["u"]) / 4 + 1 / (rep(p["v"]).T ** 2 + 1) - p["b"],
        lambda p, h: 2 - 3 * p["u"][:, None] / 4 + 1 / (p["v"][None] ** 2 + 1) - p["b"],
    ),
    "functions": (
        lambda p, h: torch.tanh(rep(p["u"])) * torch.sigmoid(rep(p["v"]).T) + F.softplus(-rep(p["u"]))
        + algebra.exp(0.3 * rep(p["v"])) + torch.clamp(rep(p["u"]), min=-0.5) + F.elu(rep(p["v"]).T)
        + torch.sqrt(torch.square(rep(p["u"])) + 1) + F.gelu(rep(p["u"]))
        + torch.maximum(rep(p["u"]), rep(p["v"])),
        lambda p, h: F.softplus(-p["u"])[:, None]
        + torch.tanh(p["u"])[:, None] * torch.sigmoid(p["v"])[None] + torch.exp(0.3 * p["v"])[:, None]
        + torch.clamp(p["u"], min=-0.5)[:, None] + F.elu(p["v"])[None] + torch.sqrt(p["u"]**2 + 1)[:, None]
        + F.gelu(p["u"])[:, None] + torch.maximum(p["u"], p["v"])[:, None],
    ),
    "powers and magnitudes": (
        lambda p, h: 2 ** rep(p["u"]).T - abs(rep(p["v"])) ** 1.5 + torch.square(p["t"] * rep(p["u"])),
        lambda p, h: 2 ** p["u"][None] - (p["v"].abs() ** 1.5)[:, None] + ((p["t"] * p["u"]) ** 2)[:, None],
    ),
    "dot and vectors mixed": (
        lambda p, h: torch.tanh(tall(p["q"], h) @ tall(p["k"], h).T + rep(p["u"])) * p["t"],
        lambda p, h: torch.tanh(dots(p["q"], p["k"], h) + p["u"][:, None]) * p["t"],
    ),
}  # fmt: skip

# name → (Sampled → rows, the same dense)
ENDS: dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[Dense, Tensor, Tensor], Tensor]]] = {
    "product": (lambda s, x: s @ x, lambda d, s, x: d.aggregate(s, x)),
    "softmax": (lambda s, x: softmax(s) @ tall(x), lambda d, s, x: d.aggregate(d.softmax(s), x)),
    "softmax, dropout": (
        lambda s, x: dropout(softmax(s), 0.4, STREAM) @ x,
        lambda d, s, x: d.aggregate(d.dropout(d.softmax(s), 0.4), x),
    ),
    "dropout": (
        lambda s, x: dropout(s, 0.4, STREAM) @ x,
        lambda d, s, x: d.aggregate(d.dropout(s, 0.4), x),
    ),
    "row sums": (lambda s, x: sum(s), lambda d, s, x: torch.where(d.there, s, 0.0).sum(1)),
    "mean": (lambda s, x: aggregate(s, x, "mean"), lambda d, s, x: d.aggregate(s, x, "mean")),
    "softmax of a function": (
        lambda s, x: softmax(torch.tanh(s) * 2) @ x,
        lambda d, s, x: d.aggregate(d.softmax(torch.tanh(s) * 2), x),
    ),
    "sums that divide": (  # a softmax by hand: two walks, one value of each entry
        lambda s, x: (torch.exp(torch.tanh(s)) @ x) / sum(torch.exp(torch.tanh(s))).repeat_interleave(
            x.shape[1] // s.values().shape[1], 1).clamp(min=1e-30),
        lambda d, s, x: d.aggregate(torch.where(d.there, torch.exp(torch.tanh(s)), 0.0), x)
        / torch.where(d.there, torch.exp(torch.tanh(s)), 0.0).sum(1).repeat_interleave(
            x.shape[1] // s.shape[2], 1).clamp(min=1e-30),
    ),
}  # fmt: skip


def check(ours: Tensor, theirs: Tensor, p: Leaves) -> None:
    """Forward, and the gradient of every leaf that has one."""
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    dy = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    names = list(p)
    got, want = (torch.autograd.grad(y, [p[n] for n in names], dy, allow_unused=True) for y in (ours, theirs))
    assert any(g is not None for g in want)
    for name, g, w in zip(names, got, want, strict=True):
        zero = torch.zeros_like(p[name])
        g, w = (zero if t is None else t for t in (g, w))
        torch.testing.assert_close(
            g, w, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"gradient of {n}: {m}"
        )


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_expression_is_the_dense_one(entry, heads, weighted):
    A, a, there = matrix(weighted)
    virtual, truth = ENTRIES[entry]
    d = Dense(a, there)
    for ours, theirs in ENDS.values():
        p = leaves(heads)
        check(ours(A * virtual(p, heads), p["x"]), theirs(d, d * truth(p, heads), p["x"]), p)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("entry", ["rep T", "additive", "dot and vectors mixed"])
def test_the_largest_and_smallest_product_wins(entry, reduce, heads, weighted):
    A, a, there = matrix(weighted)
    virtual, truth = ENTRIES[entry]
    d, p = Dense(a, there), leaves(heads)
    check(
        aggregate(A * virtual(p, heads), p["x"], reduce), d.aggregate(d * truth(p, heads), p["x"], reduce), p
    )


def test_sampled_matrices_go_together_at_one_a():
    A, a, there = matrix(weighted=True)
    d, p = Dense(a, there), leaves(2)
    S, R = A * rep(p["u"]), A * torch.tanh(tall(p["q"], 2) @ tall(p["k"], 2).T)
    s, r = d * p["u"][:, None], d * torch.tanh(dots(p["q"], p["k"], 2))
    check((S * R - 2 * S + rep(p["v"]).T) @ p["x"], d.aggregate(s * r - 2 * s + p["v"][None], p["x"]), p)


FUSED = {
    "dot": ("dot", "dot"),
    "dot T": ("dot T", "dot"),
    "cosine": ("cosine with a learned number", "dot"),
    "temperature": ("temperature per head, a degree on the column", "dot"),
    "additive": ("additive", "additive"),
    "turned": ("additive, other order, one head on a side", "additive"),
    "sum": ("additive without leaky", "additive"),
}


@pytest.mark.parametrize("end", ["product", "softmax", "softmax, dropout", "dropout"])
@pytest.mark.parametrize("shape", FUSED)
def test_shapes_that_kernels_know_take_them_and_give_what_entries_give(shape, end, monkeypatch):
    A, _, _ = matrix(weighted=False)
    entry, kind = FUSED[shape]
    virtual, p, taken = ENTRIES[entry][0], leaves(HEADS), []
    attend = Operator.attend
    monkeypatch.setattr(
        Operator, "attend", lambda self, *a, **o: taken.append(o["kind"]) or attend(self, *a, **o)
    )
    fused = ENDS[end][0](A * virtual(p, HEADS), p["x"])
    assert taken == [kind]
    monkeypatch.setattr(algebra, "recognise", lambda *_: None)
    unfused = ENDS[end][0](A * virtual(p, HEADS), p["x"])
    assert taken == [kind]
    check(fused, unfused, p)


@pytest.mark.parametrize("entry", ["functions", "dot and vectors mixed", "outer"])
def test_other_shapes_and_weighted_matrices_do_not(entry, monkeypatch):
    monkeypatch.setattr(Operator, "attend", None)  # nobody may call it
    A, _, _ = matrix(weighted=False)
    p = leaves(2)
    softmax(A * ENTRIES[entry][0](p, 2)) @ p["x"]
    A, _, _ = matrix(weighted=True)
    softmax(A * ENTRIES["dot"][0](p, 2)) @ p["x"]


@pytest.mark.parametrize("entry", ["additive", "cosine with a learned number", "dot and vectors mixed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_gradients_are_those_of_finite_differences(entry, weighted):
    A, _, _ = matrix(weighted)
    p = leaves(2)
    names = list(p)

    def f(*values: Tensor) -> Tensor:
        q = dict(zip(names, values, strict=True))
        return dropout(softmax(A * ENTRIES[entry][0](q, 2)), 0.3, STREAM) @ q["x"]

    assert torch.autograd.gradcheck(f, tuple(p.values()), fast_mode=True)


def test_a_mask_is_the_streams_and_nobody_drops_at_inference():
    A, _, there = matrix(weighted=False)
    ones = A * rep(torch.ones(N, 2, dtype=torch.float64))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    a = CSR(indptr, there.nonzero()[:, 1], None, (N, N))
    want = Drop(0.4, STREAM.key).factors(a, 2, torch.float64)
    assert torch.equal(dropout(ones, 0.4, STREAM).values(), want)
    assert bool((want == 0).any())
    assert not torch.equal(dropout(ones, 0.4, Stream(1, 3, 3)).values(), want)
    for S in (dropout(ones, 0.4, None), dropout(ones, 0.0, STREAM)):
        assert S is ones


def test_what_stands_twice_is_computed_once(monkeypatch):
    A, _, _ = matrix(weighted=False)
    p, calls = leaves(2), []
    real = Entries.dots
    monkeypatch.setattr(Entries, "dots", lambda self, *a: calls.append(1) or real(self, *a))
    V = tall(p["q"], 2) @ tall(p["k"], 2).T
    ((A * torch.tanh(V)) * (A * torch.exp(V))) @ p["x"]
    assert len(calls) == 1


def test_float32_and_an_x_of_one_head_for_all():
    A = Operator.local(adjacency(directed(N, 40), "none", torch.float32))
    h = torch.randn(N, 6)
    y = softmax(A * (tall(h) @ tall(h).T)) @ h
    assert y.dtype == torch.float32
    assert (sum(A * rep(torch.ones(N))).ravel() == A.plan.matrix(0).counts).all()


V = rep(torch.ones(N))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda: str(V), "printing would need the whole n×n matrix. Sample it where A has entries first"),
        (lambda: f"{V}", "printing would need the whole n×n matrix"),
        (lambda: torch.sum(V), "sum would need the whole n×n matrix"),
        (lambda: V.sum(), "sum would need the whole n×n matrix"),
        (lambda: (V + 1).mean(), "mean would need the whole n×n matrix"),
        (lambda: torch.cat([V, V]), "cat would need the whole n×n matrix"),
        (lambda: torch.sum(input=V), "sum would need the whole n×n matrix"),
        (lambda: torch.softmax(V, 1), "softmax would need the whole n×n matrix"),
        (lambda: softmax(V), "softmax would need the whole n×n matrix"),
        (lambda: sum(V), "sum would need the whole n×n matrix"),
        (lambda: dropout(V, 0.5, STREAM), "dropout would need the whole n×n matrix"),
        (lambda: aggregate(V, torch.ones(N, 2)), "aggregate would need the whole n×n matrix"),
        (lambda: len(V), "len would need the whole n×n matrix"),
        (lambda: V[0], "indexing would need the whole n×n matrix"),
        (lambda: list(V), "a walk over its rows would need the whole n×n matrix"),
        (lambda: bool(V), "a truth value would need the whole n×n matrix"),
        (lambda: V.__array__(), "a numpy array of it would need the whole n×n matrix"),
        (lambda: V @ torch.ones(N, 2), "a product with it would need the whole n×n matrix"),
        (lambda: torch.ones(2, N) @ V, "a product with it would need the whole n×n matrix"),
        (lambda: V @ V, "a product with it would need the whole n×n matrix"),
        (lambda: tall(torch.ones(N, 2)) @ torch.ones(N, 2).T, r"X @ h\.T of a plain h would need the whole"),
        (lambda: tall(torch.ones(N, 1)) @ torch.ones(N, 1).T, r"X @ h\.T of a plain h would need the whole"),
        (lambda: V + torch.ones(N, 2), r"a tensor \(13, 2\) is no number per entry. Use rep\(u\)"),
        (lambda: V + tall(torch.ones(N, 2)), "H itself is n×w"),
        (lambda: S() + S(), "two different matrices. Sample both at"),
        (lambda: matrix(False)[0] * S(), "sampled already. Multiply by A once"),
        (lambda: adjacency(directed(N, 40), "none") * V, "a bare matrix. Use Operator.local"),
        (lambda: S().T, "no transpose here. Transpose the virtual one: A \\* V.T"),
        (lambda: str(S()), "printing is not defined on a sampled matrix. Use S @ X, sum"),
        (lambda: torch.sum(S()), "sum is not defined on a sampled matrix. Use S @ X, sum"),
        (lambda: S()[0], "indexing is not defined on a sampled matrix"),
    ],
)
def test_what_would_need_the_whole_matrix_is_a_clear_error(what, message):
    with pytest.raises(TypeError, match=message):
        what()


def S(heads: int = 1) -> Sampled:
    return matrix(weighted=False)[0] * rep(torch.ones(N, heads))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda: tall(torch.ones(3, 5), 2), r"H must be \[n, heads · w\] with 2 heads, not \(3, 5\)"),
        (lambda: tall(torch.ones(3, 4)) @ tall(torch.ones(3, 4), 2).T, "as many columns and heads"),
        (lambda: rep(torch.ones(2, 2, 2)), r"rep takes \[n\] or \[n, heads\]"),
        (lambda: dropout(S(), 1.0, STREAM), r"dropout must lie in \[0, 1\), not 1.0"),
        (lambda: aggregate(S(), torch.ones(N, 2), "median"), "median"),
        (lambda: torch.tanh(S(heads=3)) @ torch.ones(N, 4), "3 heads, which do not"),
        (lambda: aggregate(S(heads=3), torch.ones(N, 4), "max"), "3 heads, which do not"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_named(what, message):
    with pytest.raises(ValueError, match=message):
        what()


def test_an_expression_can_be_looked_at_without_computing_it():
    assert repr(2.0 * rep(torch.ones(3)).T) == "Virtual(mul(rep(u).T, 2.0))"
    assert repr(softmax(S())) == "Sampled(softmax(mul(A, rep(u))))"
    assert isinstance(torch.exp(rep(torch.ones(3))), Virtual)


_LARGE = """
import resource, sys, torch
from weft.kernels import CSR, Stream
from weft.nn.algebra import *
from weft.parallel import Operator
n, degree, width = 200_000, 24, 32
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
indices = torch.randint(n, (n * degree,), generator=g).int()
A = Operator.local(CSR(torch.arange(0, n * degree + 1, degree), indices, None, (n, n)))
A.plan.matrix(0).T, A.plan.matrix(0).permutation
u, v = torch.randn(n, 1, requires_grad=True), torch.randn(n, 1, requires_grad=True)
h, b = torch.randn(n, width, requires_grad=True), torch.ones((), requires_grad=True)
H = tall(h)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
dropped = lambda s: dropout(softmax(s), 0.5, Stream(0, 0, 0))
shapes = {
    "gat": lambda: dropped(A * leaky_relu(rep(u) + rep(v).T)) @ h,
    "agnn": lambda: dropped(b * (A * (H @ H.T)) / outer(H.norms, H.norms)) @ h,
    "va": lambda: (A * (H @ H.T)) @ H,
    "generic": lambda: dropped(A * torch.tanh(H @ H.T) + rep(u)) @ h,
}
for name, shape in shapes.items():
    h.grad = None
    shape().square().mean().backward()
    assert h.grad is not None and bool(torch.isfinite(h.grad).all())
    print(name, peak() - before, 4 * n * n, 4 * n * degree * width)
"""


def test_nothing_of_the_size_of_the_matrix_or_of_arcs_times_width_is_made():
    """200,000 vertices: n² numbers are 160 GB. A process of its own, by its peak memory, with backward.

    A peak stays: what one shape needed is in the figures of those after it, and none may be above the bound.
    """
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in lines] == ["gat", "agnn", "va", "generic"]
    for name, *sizes in lines:
        grown, squared, by_arcs = map(int, sizes)
        assert grown < squared / 200, name
        # x, y, gradients and a few buffers like them are vertices × width: arcs × width is 24 times that.
        assert grown < by_arcs, (name, grown, by_arcs)


@pytest.mark.parametrize("kind", ["gain", "scale", "additive", "unfused"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_vectors_of_another_type_are_brought_to_that_of_x(kind, dtype):
    """Degrees are whole numbers; kernels would read them as something else."""
    A, h = (
        Operator.local(adjacency(directed(N, 40), "none")),
        torch.randn(N, 4, generator=torch.Generator().manual_seed(0)),
    )
    H, w = tall(h), (torch.arange(N) % 5 + 1)

    def with_(vector: Tensor) -> Tensor:
        made: dict[str, Any] = {
            "gain": lambda: (A * (H @ H.T) * rep(vector).T) @ h,
            "scale": lambda: (A * (H @ H.T) * rep(vector)) @ h,
            "additive": lambda: (A * leaky_relu(rep(vector) + rep(vector).T)) @ h,
            "unfused": lambda: (A * torch.tanh(rep(vector) * 0.1 + rep(vector).T * 0.1)) @ h,
        }
        return made[kind]()

    found = with_(w.to(dtype))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, with_(w.float()), rtol=1e-5, atol=1e-5)


def test_operands_that_kernels_would_misread_are_refused():
    A, h = Operator.local(adjacency(directed(N, 40), "none")), torch.ones(N, 4)
    H = tall(h)
    with pytest.raises(TypeError, match=r"x is torch\.float64, row is"):
        _ = (A * (H @ H.T)) @ h.double()
    with pytest.raises(TypeError, match=r"y is torch\.float64"):
        _ = (A * torch.tanh(H @ tall(h.double()).T)) @ h
    for wrong in (h[:5].clone(), torch.ones(N + 1, 4)):
        with pytest.raises(ValueError, match=f"for {N} vertices at hand"):
            _ = (A * (H @ H.T)) @ wrong
        with pytest.raises(ValueError, match=f"for {N} vertices at hand"):
            _ = (A * (rep(wrong[:, 0]) + rep(wrong[:, 0]).T)) @ h
    with pytest.raises(TypeError, match="takes a matrix X"):
        _ = (A * (H @ H.T)) @ torch.ones(N)
    for heads in (0, -1):
        with pytest.raises(ValueError, match="heads"):
            tall(h, heads)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_masked_scores_count_nothing_wherever_they_stand(backend):
    """A row of 300 arcs, of which the first 256 have the score −∞: more than a tile."""
    n = 300
    A = Operator.local(CSR(torch.tensor([0, n] + [n] * (n - 1)), torch.arange(n).int(), None, (n, n)))
    v = torch.zeros(n)
    v[:256] = -torch.inf
    x = torch.arange(n, dtype=torch.float32)[:, None]
    u = torch.zeros(n, requires_grad=True)
    with native.use(backend):
        y = softmax(A * (rep(u) + rep(v).T)) @ x
        y.sum().backward()
    y = y.detach()
    assert float(y[0]) == pytest.approx(float(x[256:].mean()))
    assert bool((y[1:] == 0).all())
    assert u.grad is not None
    assert bool(torch.isfinite(u.grad).all())
    with native.use(backend):
        nothing = softmax(A * (rep(u) + rep(torch.full((n,), -torch.inf)).T)) @ x
    assert bool((nothing == 0).all())


def test_a_weight_with_a_column_for_every_vertex_is_a_weight():
    h, linear, thin = torch.randn(N, 4), torch.nn.Linear(4, N), torch.randn(1, N)
    for weight in (linear.weight.T, linear.weight.detach().T.contiguous()):
        assert torch.allclose((tall(h) @ weight).value, h @ weight)
    with torch.no_grad():
        assert torch.allclose((tall(h) @ linear.weight.T).value, h @ linear.weight.T)
    assert torch.equal((tall(h[:, :1]) @ thin).value, h[:, :1] @ thin)


def test_nothing_wide_has_a_largest_product_too():
    assert aggregate(S(heads=2), torch.ones(N, 0), "max").shape == (N, 0)

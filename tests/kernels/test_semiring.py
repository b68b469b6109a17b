"""Sums over semirings on one device: C++, torch and dense algebra; chunks, long rows, bad functions."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from weft.errors import UserError
from weft.kernels import CSR, Reduction, Semiring, segments, use
from weft.kernels.semiring import ProductGradient, check_reduction, check_semiring
from weft.parallel import Operator

from .matrices import matrices, widths

KNOWN = {
    "sum": Semiring(torch.add, torch.mul, 0.0),
    "max times": Semiring(torch.maximum, torch.mul, -torch.inf),
    "min times": Semiring(torch.minimum, torch.mul, torch.inf),
    "max plus": Semiring(torch.maximum, torch.add, -torch.inf),
    "min plus": Semiring(torch.minimum, torch.add, torch.inf),
    "log": Semiring(torch.logaddexp, torch.add, -torch.inf),
}
OWN = {
    "widest": Semiring(torch.maximum, torch.minimum, -torch.inf),
    "or": Semiring(lambda a, b: a + b - a * b, lambda a, h: torch.sigmoid(a * h), 0.0),
}
BACKENDS = ("native", "torch")


def serial(semiring: Semiring, a: CSR, x: Tensor) -> Tensor:
    """One arc after the other."""
    values = torch.ones(a.arcs, dtype=x.dtype) if a.values is None else a.values
    rows: list[Tensor] = []
    for i in range(a.shape[0]):
        y = torch.full((x.shape[1],), semiring.zero, dtype=x.dtype)
        for e in range(int(a.indptr[i]), int(a.indptr[i + 1])):
            y = semiring.add(y, semiring.multiply(values[e].reshape(1, 1), x[int(a.indices[e])][None])[0])
        rows.append(y)
    return torch.stack(rows) if rows else x.new_zeros(0, x.shape[1])


@given(
    a=matrices, width=widths, name=st.sampled_from([*KNOWN, *OWN]), backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_a_semiring_is_one_arc_after_the_other_forward_and_backward(a, width, name, backend, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(a.shape[1], width, dtype=torch.float64, generator=g, requires_grad=True)
    semiring = {**KNOWN, **OWN}[name]
    has = (a.counts > 0)[:, None]
    dy = torch.where(has, torch.randn(a.shape[0], width, dtype=torch.float64, generator=g), 0.0)
    with use(backend):
        y = Operator.local(a).aggregate(x, semiring)
        (dx,) = torch.autograd.grad(y, x, dy)
    wanted = serial(semiring, a, x)
    torch.testing.assert_close(y, wanted, rtol=1e-11, atol=1e-11)
    if not a.arcs:
        assert bool((dx == 0).all())
        return
    finite = torch.where(has, wanted, 0.0)  # of an empty row's ±∞ there is no gradient
    (wanted_dx,) = torch.autograd.grad(finite, x, dy)
    torch.testing.assert_close(dx, wanted_dx, rtol=1e-10, atol=1e-10)


def long_rows(values: bool = True) -> CSR:
    """Rows of 0, 1, 3, 512, 513, 1,500 and 7 arcs, by turns: several pieces, and a level above them."""
    g = torch.Generator().manual_seed(3)
    counts = torch.tensor([1500, 0, 1, 3, 512, 513, 7])
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    arcs, columns = int(counts.sum()), 1600
    rows = [torch.randperm(columns, generator=g)[:c].sort().values for c in counts.tolist()]
    drawn = torch.rand(arcs, generator=g, dtype=torch.float64) + 0.2 if values else None
    return CSR(indptr, torch.cat(rows).int(), drawn, (7, columns))


@pytest.mark.parametrize("numbers", [None, 64], ids=["large chunks", "small chunks"])
@pytest.mark.parametrize("name", ["max plus", "log", *OWN, "product"])
def test_long_rows_are_cut_and_put_together_again(name, numbers, monkeypatch):
    if numbers:
        monkeypatch.setattr(segments, "_NUMBERS", numbers)
    product = Semiring(torch.mul, lambda a, h: 1 + 1e-3 * a * h, 1.0)
    semiring, a = {**KNOWN, **OWN, "product": product}[name], long_rows()
    x = torch.rand(a.shape[1], 3, dtype=torch.float64).requires_grad_()
    dy = torch.where((a.counts > 0)[:, None], torch.rand(7, 3, dtype=torch.float64), 0.0)
    found = {}
    for backend in BACKENDS:
        with use(backend):
            y = Operator.local(a).aggregate(x, semiring)
            found[backend] = y, torch.autograd.grad(y, x, dy)[0]
    wanted = serial(semiring, a, x)
    (wanted_dx,) = torch.autograd.grad(torch.where((a.counts > 0)[:, None], wanted, 0.0), x, dy)
    for y, dx in found.values():
        torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dx, wanted_dx, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infinity_and_nan_go_where_they_should(backend, dtype):
    inf, nan = torch.inf, torch.nan
    a = CSR(torch.tensor([0, 2, 4, 4, 6]), torch.tensor([0, 1, 1, 2, 2, 3]), None, (4, 4))
    x = torch.tensor([[-inf], [-inf], [1.0], [nan]], dtype=dtype)
    with use(backend):
        most, log = (Operator.local(a).aggregate(x, KNOWN[name]).ravel() for name in ("max plus", "log"))
        some = x[:3].clone().requires_grad_()
        block = CSR(a.indptr[:4], a.indices[:4], None, (3, 3))
        (dx,) = torch.autograd.grad(Operator.local(block).aggregate(some, KNOWN["log"]).sum(), some)
    assert most.tolist()[:3] == log.tolist()[:3] == [-inf, 2.0, -inf]
    assert bool(torch.isnan(most[3]) & torch.isnan(log[3]))
    assert dx.ravel().tolist() == [0.0, 0.0, 1.0]


def test_a_zero_of_ones_own_competes_and_takes_no_gradient():
    a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))
    x = torch.tensor([[-5.0, 3.0], [-7.0, -9.0]], requires_grad=True)
    y = Operator.local(a).aggregate(x, Semiring(torch.maximum, torch.add, 0.0))
    assert y.tolist() == [[0.0, 4.0], [0.0, 0.0]]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_of_equal_ones_the_smallest_vertex_takes_the_gradient():
    a = CSR(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, (1, 3))
    x = torch.tensor([[0.0], [2.0], [2.0]], requires_grad=True)
    for semiring in (KNOWN["max plus"], Semiring(torch.maximum, lambda a, h: a * h.exp(), -torch.inf)):
        y = Operator.local(a).aggregate(x, semiring)
        assert torch.autograd.grad(y.sum(), x)[0].ravel().tolist()[2] == 0.0


def by_hand(gradient: ProductGradient) -> Semiring:
    return Semiring(torch.maximum, torch.mul, -torch.inf, multiply_gradient=gradient)


@pytest.mark.parametrize(
    ("semiring", "message"),
    [
        (Semiring(torch.sub, torch.mul, 0.0), r"add is not commutative: 0.3 ⊕ 0.7 = -0.4, 0.7 ⊕ 0.3 = 0.4."),
        (Semiring(lambda a, b: (a + b) / 2, torch.mul, 0.0), r"not associative: \(0.3 ⊕ 0.3\) ⊕ 0.7 = 0.5"),
        (Semiring(torch.add, torch.mul, 1.0), "zero 1 ⊕ zero is 2, not zero. Give add's neutral element"),
        (Semiring(lambda a, b: (a + b).sum(1), torch.mul, 0.0), r"add returned \(64,\) for \(64, 1\)"),
        (Semiring(torch.maximum, lambda a, h: (a * h).sum(1), 0.0), r"multiply returned \(64,\) for"),
        (Semiring(torch.maximum, lambda a, h: torch.cat([a, h], 1), 0.0), r"multiply returned \(64, 4\) for"),
        (Semiring(torch.maximum, lambda a, h: 1.0, 0.0), r"multiply returned float for"),
        (Semiring(torch.add, torch.mul, 0.0, lambda m, y, dy: dy.sum()), r"add_gradient returned \(\) for"),
        (Semiring(lambda a, b: a + b.abs(), torch.mul, 0.0), "not commutative: -1.9 ⊕ -0.7 = -1.2"),
        (Semiring(lambda a, b: a + b.relu(), torch.mul, 0.0), "not commutative: -1.9 ⊕ -0.7 = -1.9, -0.7"),
        (Semiring(torch.maximum, lambda a, h: a > h, 0.0), "multiply returned bool for float32. Return"),
        (Semiring(torch.maximum, lambda a, h: (a * h).double(), 0.0), "multiply returned float64 for"),
        (Semiring(lambda a, b: (a + b).double(), torch.mul, 0.0), "add returned float64 for float32"),
        (by_hand(lambda a, h, dm: h * dm), r"multiply_gradient returned Tensor. Return \(da, dh\)."),
        (by_hand(lambda a, h, dm: (h * dm, dm.sum())), r"multiply_gradient's dh returned \(\) for \(64, 3\)"),
        (by_hand(lambda a, h, dm: (dm[0], a * dm)), r"multiply_gradient's da returned \(3,\) for \(64, 3\)"),
    ],
)  # fmt: skip
def test_what_depends_on_the_order_or_has_another_shape_or_type_is_refused_in_one_line(semiring, message):
    A = Operator.local(CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1)))
    with pytest.raises(UserError, match=message) as error:
        A.aggregate(torch.ones(1, 2), semiring)
    assert "\n" not in str(error.value)


def test_a_shape_that_only_some_widths_have_is_refused_where_it_occurs():
    odd = Semiring(torch.fmax, lambda a, h: a * h if h.shape[1] == 3 else (a * h)[:, :1], -torch.inf)
    check_semiring(odd)
    with pytest.raises(UserError, match=r"multiply returned \(2, 1\) for \(2, 4\)"):
        Operator.local(long_two()).aggregate(torch.ones(2, 4), odd)


def test_a_type_that_only_some_widths_have_is_refused_where_it_occurs():
    odd = Semiring(torch.fmax, lambda a, h: a * h if h.shape[1] == 3 else (a * h).double(), -torch.inf)
    with pytest.raises(UserError, match=r"multiply returned float64 for float32"):
        Operator.local(long_two()).aggregate(torch.ones(2, 4), odd)


def test_what_is_undefined_below_zero_has_no_order_there():
    check_semiring(Semiring(lambda a, b: (a**3 + b**3).pow(1 / 3), torch.mul, 0.0))
    check_semiring(Semiring(lambda a, b: (a.sqrt() + b.sqrt()) ** 2, torch.mul, 0.0))


@pytest.mark.parametrize("semiring", [*KNOWN.values(), *OWN.values()])
def test_whole_numbers_are_refused_as_rows(semiring):
    with pytest.raises(UserError, match=r"rows are int64. Use floating point numbers: h.float"):
        Operator.local(long_two()).aggregate(torch.ones(2, 4, dtype=torch.int64), semiring)


def test_a_semirings_functions_may_hold_numbers_of_their_rows_type():
    """They are tried in that type, so what would become another in float32 is not refused in float64."""
    scale = torch.tensor([2.0], dtype=torch.float64)
    twice = Semiring(torch.fmax, lambda a, h: a * h * scale, -torch.inf)
    y = Operator.local(long_two()).aggregate(torch.ones(2, 4, dtype=torch.float64), twice)
    assert y[0].tolist() == [2.0] * 4
    with pytest.raises(UserError, match="multiply returned float64 for float32"):
        Operator.local(long_two()).aggregate(torch.ones(2, 4), twice)


def long_two() -> CSR:
    return CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))


def test_a_reduction_alone_is_tried_too():
    check_reduction(Reduction(torch.maximum, 0.0))
    with pytest.raises(UserError, match="not commutative"):
        check_reduction(Reduction(torch.sub, 0.0))


_LARGE = """
import torch
from weft.kernels import CSR, Semiring
from weft.kernels.segments import Segments
from weft.parallel import Operator
n, degree, width = 60_000, 24, 64
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
indices = torch.randint(n, (n * degree,), generator=g).int()
a = CSR(torch.arange(0, n * degree + 1, degree), indices, torch.rand(n * degree), (n, n))
A, h = Operator.local(a), torch.rand(n, width, requires_grad=True)
Segments.of(a)
def peak(): return 1024 * int(next(s for s in open("/proc/self/status") if s.startswith("VmHWM")).split()[1])
before = peak()  # of this program: getrusage would begin with what forked it
y = A.aggregate(h, Semiring(lambda a, b: a + b - a * b, torch.minimum, 0.0))
y.backward(torch.ones_like(y))
assert bool(torch.isfinite(h.grad).all())
print(peak() - before, 4 * n * degree * width)
"""


def test_memory_stays_bounded_forward_and_backward():
    """y, its gradient and h's are vertices × width; arcs × width is 24 times that. By a process's peak."""
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, by_arcs = map(int, done.stdout.split())
    assert grown < by_arcs / 2, (grown, by_arcs)  # one such array is more

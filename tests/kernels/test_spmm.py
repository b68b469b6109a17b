from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.kernels import CSR, native, spmm, use
from weft.kernels.spmm import REDUCTIONS, extremum, extremum_backward, multiply

from .matrices import matrices, random_csr, widths

BACKENDS = ("native", "torch")


def dense_spmm(a: CSR, x: torch.Tensor, reduce: str) -> torch.Tensor:
    """The definition, on dense tensors: messages [rows, columns, w], then the reduction over columns."""
    present = torch.zeros(a.shape, dtype=torch.bool)
    present[a.row_of, a.indices.long()] = True
    weight = present.to(x.dtype) if a.values is None else a.dense()
    messages = weight[:, :, None] * x[None]
    if reduce in ("sum", "mean"):
        y = messages.sum(1)
        return y if reduce == "sum" else y / present.sum(1).clamp(min=1)[:, None]
    worst = -torch.inf if reduce == "max" else torch.inf
    y = torch.where(present[:, :, None], messages, worst)
    y = y.amax(1) if reduce == "max" else y.amin(1)
    return torch.where(present.any(1)[:, None], y, 0.0)


@given(
    a=matrices, width=widths, reduce=st.sampled_from(REDUCTIONS), backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_spmm_is_the_dense_product_forward_and_backward(a, width, reduce, backend, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(a.shape[1], width, dtype=torch.float64, generator=g, requires_grad=True)
    dy = torch.randn(a.shape[0], width, dtype=torch.float64, generator=g)
    with use(backend):
        y = spmm(a, x, reduce=reduce)
        (dx,) = torch.autograd.grad(y, x, dy)
    wanted = dense_spmm(a, x, reduce)
    (wanted_dx,) = torch.autograd.grad(wanted, x, dy)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dx, wanted_dx, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_gradcheck_of_features_and_values(backend, reduce, index):
    a = random_csr(7, 9, 0.4, seed=3, dtype=torch.float64, index=index)
    x = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    values = a.values.clone().requires_grad_()
    with use(backend):
        assert torch.autograd.gradcheck(lambda x, v: spmm(a, x, v, reduce), (x, values))


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [True, False])
def test_native_equals_torch_in_both_types(reduce, dtype, weighted):
    a = random_csr(53, 41, 0.2, seed=1, dtype=dtype if weighted else None)
    x = torch.randn(41, 37, dtype=dtype)
    with use("native"):
        y = spmm(a, x, reduce=reduce)
    with use("torch"):
        wanted = spmm(a, x, reduce=reduce)
    torch.testing.assert_close(y, wanted)


def test_a_wrong_sum_is_caught():
    a = random_csr(9, 9, 0.5, seed=0, dtype=torch.float64)
    x = torch.randn(9, 3, dtype=torch.float64)
    a.values[0] += 1e-9
    wanted = dense_spmm(random_csr(9, 9, 0.5, seed=0, dtype=torch.float64), x, "sum")
    with pytest.raises(AssertionError):
        torch.testing.assert_close(spmm(a, x), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_any_number_of_threads_gives_the_same_bits(reduce):
    a = random_csr(700, 700, 0.1, seed=5, dtype=torch.float32)
    x = torch.randn(700, 65)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        results.append(spmm(a, x, reduce=reduce))
    torch.set_num_threads(before)
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [True, False])
def test_who_won_is_the_first_of_equals_at_every_width_and_gets_the_gradient(index, dtype, weighted):
    """Whole numbers: many are equal, sums are exact. Rows of more arcs than are walked at a time."""
    a = random_csr(61, 83, 0.6, seed=4, dtype=dtype if weighted else None, index=index)
    assert int(a.counts.max()) > 40
    a = CSR(a.indptr, a.indices, None if a.values is None else a.values.round(), a.shape)
    g = torch.Generator().manual_seed(1)
    for width in (1, 7, 15, 16, 17, 31, 32, 40, 64, 100, 128, 131, 256):
        x = torch.randint(-2, 3, (83, width), generator=g).to(dtype)
        dy = torch.randint(-9, 9, (61, width), generator=g).to(dtype)
        for largest, plus in ((True, True), (False, True), (True, False), (False, False)):
            found = []
            for backend in BACKENDS:
                with use(backend):
                    y, arg = extremum(a, x, a.values, largest, plus)
                    found.append((y, arg, extremum_backward(a.T, dy, arg, None)))
            for ours, theirs in zip(*found, strict=True):
                assert torch.equal(ours, theirs), (width, largest, plus)


def test_winners_get_the_same_bits_on_any_number_of_threads_whatever_lies_beside_them():
    """A slice of columns alone gets what it gets among others."""
    a = random_csr(3000, 200, 0.1, seed=5, dtype=None)
    x, dy = torch.randn(200, 75), torch.randn(3000, 75)
    arg = extremum(a, x, None, True)[1]
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        found.append(extremum_backward(a.T, dy, arg, None))
    torch.set_num_threads(before)
    assert all(torch.equal(dx, found[0]) for dx in found)
    alone = [
        extremum_backward(a.T, dy[:, c], arg[:, c].contiguous(), None) for c in torch.arange(75)[:, None]
    ]
    assert torch.equal(torch.cat(alone, 1), found[0])


def test_accumulate_adds_to_what_is_there():
    a = random_csr(8, 6, 0.5, seed=2, dtype=torch.float64)
    x = torch.randn(6, 11, dtype=torch.float64)
    for backend in BACKENDS:
        with use(backend):
            out = torch.ones(8, 11, dtype=torch.float64)
            multiply(a, x, a.values, out=out, accumulate=True)
        torch.testing.assert_close(out, a.dense() @ x + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_go_to_the_first_arc(backend):
    a = CSR(torch.tensor([0, 3]), torch.tensor([2, 0, 1]), None, (1, 3))
    x = torch.ones(3, 9, requires_grad=True)
    with use(backend):
        spmm(a, x, reduce="max").sum().backward()
    assert x.grad.tolist() == [[0.0] * 9, [0.0] * 9, [1.0] * 9]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_not_a_number_wins(backend, reduce):
    a = CSR(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, (1, 3))
    x = torch.tensor([[1.0] * 9, [float("nan")] * 9, [3.0] * 9])
    with use(backend):
        assert spmm(a, x, reduce=reduce).isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vector_is_one_column(backend):
    a = random_csr(5, 4, 0.6, seed=9, dtype=torch.float32)
    x = torch.randn(4)
    with use(backend):
        torch.testing.assert_close(spmm(a, x), a.dense() @ x)


def test_a_strided_x_is_read_rightly():
    a = random_csr(5, 4, 0.6, seed=9, dtype=torch.float32)
    x = torch.randn(3, 4).T
    torch.testing.assert_close(spmm(a, x), a.dense() @ x)


def test_mistakes_name_the_value():
    a = random_csr(5, 4, 0.6, seed=9, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"\[4, w\], not \(5, 2\)"):
        spmm(a, torch.ones(5, 2))
    with pytest.raises(ValueError, match=r"float64 but A's values are torch\.float32"):
        spmm(a, torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(UserError, match="Did you mean 'mean'"):
        spmm(a, torch.ones(4, 2), reduce="meen")


def test_the_extension_is_what_serves():
    assert native.extension is not None
    assert native.served(torch.ones(1))
    assert not native.served(torch.ones(1, dtype=torch.float16))

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels import (
    add_pair_products_,
    add_rows_,
    gather_rows,
    pack_rows,
    pair_products,
    scatter_add,
    use,
)

BACKENDS = ("native", "torch")


@given(
    n=st.integers(1, 12), m=st.integers(0, 30), width=st.sampled_from([1, 3, 8, 17]),
    index=st.sampled_from([torch.int32, torch.int64]), backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_gather_and_scatter_are_dual(n, m, width, index, backend, seed):
    g = torch.Generator().manual_seed(seed)
    where = torch.randint(n, (m,), generator=g).to(index)
    x = torch.randn(n, width, dtype=torch.float64, generator=g, requires_grad=True)
    s = torch.randn(m, width, dtype=torch.float64, generator=g, requires_grad=True)
    with use(backend):
        picked, summed = gather_rows(x, where), scatter_add(where, s, n)
        (dx,) = torch.autograd.grad(picked, x, s)
        (ds,) = torch.autograd.grad(summed, s, x)
    assert torch.equal(picked, x[where.long()])
    wanted = torch.zeros(n, width, dtype=torch.float64).index_add(0, where.long(), s)
    torch.testing.assert_close(summed, wanted)
    torch.testing.assert_close(dx, wanted)
    assert torch.equal(ds, x[where.long()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradcheck(backend):
    where = torch.tensor([2, 0, 2])
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    s = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    with use(backend):
        assert torch.autograd.gradcheck(lambda x: gather_rows(x, where), (x,))
        assert torch.autograd.gradcheck(lambda s: scatter_add(where, s, 4), (s,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_are_packed_and_added_in_place(backend):
    x, where = torch.randn(5, 7), torch.tensor([4, 1], dtype=torch.int32)
    buffer = torch.empty(2, 7)
    with use(backend):
        assert pack_rows(x, where, out=buffer) is buffer
        assert torch.equal(buffer, x[[4, 1]])
        y = add_rows_(x.clone(), where, buffer)
    assert torch.equal(y[[4, 1]], 2 * x[[4, 1]])
    assert torch.equal(y[[0, 2, 3]], x[[0, 2, 3]])


@given(
    n=st.integers(1, 9), m=st.integers(0, 40), width=st.sampled_from([0, 1, 3, 8, 16, 37]),
    index=st.sampled_from([torch.int32, torch.int64]), backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_products_of_pairs_and_their_gradient_are_autograds(n, m, width, index, backend, seed):
    g = torch.Generator().manual_seed(seed)
    left, right = torch.randint(n, (2, m), generator=g).to(index)  # repeats, and rows paired with themselves
    x = torch.randn(n, width, dtype=torch.float64, generator=g, requires_grad=True)
    dz = torch.randn(m, width, dtype=torch.float64, generator=g)
    z = x[left.long()] * x[right.long()]
    (dx,) = torch.autograd.grad(z, x, dz)
    start = torch.randn(n, width, dtype=torch.float64, generator=g)
    with use(backend):
        assert torch.equal(pair_products(x.detach(), left, right), z)
        found = add_pair_products_(start.clone(), x.detach(), left, right, dz)
    torch.testing.assert_close(found, start + dx, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_pairs_of_any_layout_and_mixed_types(backend):
    x = torch.randn(6, 8)[:, ::2]
    left, right = torch.tensor([0, 5, 3], dtype=torch.int32), torch.tensor([[1, 0], [2, 0], [3, 0]])[:, 0]
    with use(backend):
        assert torch.equal(pair_products(x, left, right), x[[0, 5, 3]] * x[[1, 2, 3]])
        found = add_pair_products_(torch.zeros(6, 4), x, left, right, torch.ones(3, 4))
    assert torch.equal(found[0], x[1])
    assert torch.equal(found[3], 2 * x[3])


def test_sums_over_pairs_are_the_same_on_any_number_of_threads():
    g = torch.Generator().manual_seed(0)
    left, right = torch.randint(5, (2, 3000), generator=g)
    x, dz = torch.randn(5, 70, generator=g), torch.randn(3000, 70, generator=g)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        found.append(add_pair_products_(torch.zeros(5, 70), x, left, right, dz))
    torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_an_index_outside_is_refused():
    with pytest.raises(ValueError, match=r"0\.\.3, these span 0\.\.4"):
        gather_rows(torch.ones(4, 1), torch.tensor([0, 4]))
    with pytest.raises(ValueError, match="-1"):
        scatter_add(torch.tensor([-1]), torch.ones(1, 1), rows=4)

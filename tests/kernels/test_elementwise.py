from __future__ import annotations

import pytest
import torch

from weft.kernels import add_bias, elu_, native, norms, row_products


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_gradients_are_those_of_differences(backend):
    x, y = torch.randn(2, 7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bias = torch.randn(6, dtype=torch.float64)
    with native.use(backend):
        assert torch.autograd.gradcheck(add_bias, (x.clone().requires_grad_(), bias.requires_grad_()))
        assert torch.autograd.gradcheck(lambda t: elu_(t * 1), (x.clone().requires_grad_(),))
        assert torch.autograd.gradcheck(lambda t: norms(t, 3), (x.clone().requires_grad_(),))
        products = row_products(x, y, 2)
    torch.testing.assert_close(products, (x * y).view(7, 2, 3).sum(2))


def test_a_row_of_zeros_has_length_0_and_gradient_0():
    x = torch.zeros(2, 3, requires_grad=True)
    norms(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros(2, 3))


def test_elu_is_torchs():
    x = torch.randn(5, 3)
    torch.testing.assert_close(elu_(x.clone()), torch.nn.functional.elu(x))


@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_elu_keeps_its_digits_near_0(dtype, apart):
    x = -torch.logspace(-12, 2, 4001, dtype=dtype)
    torch.testing.assert_close(elu_(x.clone()), torch.expm1(x), rtol=apart, atol=0)

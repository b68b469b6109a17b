from __future__ import annotations

import pytest
import torch

from weft.kernels import add_linear_, linear, linears


@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck_of_every_product(bias):
    h, w, v = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in [(5, 3), (3, 4), (3, 4)])
    b = torch.randn(4, dtype=torch.float64, requires_grad=True) if bias else None
    y = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, w: linear(h, w, b), (h, w))
    assert torch.autograd.gradcheck(lambda y, h, w: add_linear_(y * 1, h, w), (y, h, w))
    assert torch.autograd.gradcheck(lambda h, w, v: linears(h, (w, b), (v, None)), (h, w, v))
    assert torch.autograd.gradcheck(lambda h, w, v: linears(h, (w, None), (v, b), (w, b)), (h, w, v))
    if b is not None:
        assert torch.autograd.gradcheck(lambda b: linear(h.detach(), w.detach(), b), (b,))
        others = h.detach(), w.detach(), v.detach()
        assert torch.autograd.gradcheck(lambda b: linears(others[0], (others[1], b), (others[2], b)), (b,))


def test_results_may_be_written_to_in_place():
    h, w = torch.randn(5, 3), torch.randn(3, 4, requires_grad=True)
    first, second = linears(h, (w, None), (w, None))
    first.add_(second).relu_().sum().backward()
    wanted = w.detach().clone().requires_grad_()
    (2 * (h @ wanted)).relu().sum().backward()
    torch.testing.assert_close(w.grad, wanted.grad)

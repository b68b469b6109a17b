"""Dense products whose large results come from the pool."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .memory import empty
from .meter import metered


def linear(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = h W + b.

        h  [n, in]    weight  [in, out]    bias  [out]    y  [n, out]

        forward   y  = h W + b
        backward  dh = dy Wᵀ,  dW = hᵀ dy,  db = Σ_i dy[i]

    >>> linear(torch.ones(1, 2), torch.tensor([[1.], [2.]]), torch.tensor([3.]))
    tensor([[6.]])
    """
    return _Linear.apply(h, weight, bias, None)


def add_linear_(y: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    """y += h W in place.

        backward  dy passes on,  dh = dy Wᵀ,  dW = hᵀ dy

    >>> add_linear_(torch.ones(1, 1), torch.ones(1, 2), torch.ones(2, 1))
    tensor([[3.]])
    """
    return _Linear.apply(h, weight, None, y)


class _Linear(torch.autograd.Function):
    @staticmethod
    @metered("dense")
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor | None) -> Tensor:
        ctx.save_for_backward(h, weight)
        if y is not None:
            ctx.mark_dirty(y)
            y.detach().addmm_(h.detach(), weight.detach())
            return y
        out = empty(h.shape[0], weight.shape[1], like=h)
        if bias is None:
            return torch.mm(h.detach(), weight.detach(), out=out)
        return torch.addmm(bias.detach(), h.detach(), weight.detach(), out=out)

    @staticmethod
    @metered("dense")
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, weight = ctx.saved_tensors
        dy = grads[0]
        dh = dweight = None
        if ctx.needs_input_grad[0]:
            dh = torch.mm(dy, weight.t(), out=empty(dy.shape[0], weight.shape[0], like=dy))
        if ctx.needs_input_grad[1]:
            dweight = h.t() @ dy
        db = dy.sum(0) if ctx.needs_input_grad[2] else None
        return dh, dweight, db, dy if ctx.needs_input_grad[3] else None

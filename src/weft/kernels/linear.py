"""Dense products whose large results come from the pool.

Rows are taken some at a time (`paged.pieces`), the same in memory and in files: so are the bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import left_out, metered
from ..paged import copies, cut, pieces
from .function import Function


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


def linears(h: Tensor, *factors: tuple[Tensor, Tensor | None]) -> tuple[Tensor, ...]:
    """(h W₁ + b₁, h W₂ + b₂, …): products of one h, whose gradients meet in one buffer.

        h  [n, in]    factors  pairs of a weight [in, out_k] and a bias [out_k] or None

        backward  dh = Σ_k dy_k W_kᵀ,  dW_k = hᵀ dy_k,  db_k = Σ_i dy_k[i]

    >>> linears(torch.ones(1, 2), (torch.ones(2, 1), None), (3 * torch.ones(2, 1), torch.ones(1)))
    (tensor([[2.]]), tensor([[7.]]))
    """
    result: tuple[Tensor, ...] = _Linears.apply(h, *(x for factor in factors for x in factor))
    return result


def _product(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """h W + b into a buffer of the pool, without autograd."""
    out = empty(h.shape[0], weight.shape[1], like=h)
    if out.is_meta:
        left_out("product", h, weight)
        return out
    h, weight = h.detach(), weight.detach()
    for piece, (rows,) in copies(h, writes=[out]):
        if bias is None:
            torch.mm(rows, weight, out=cut(out, piece))
        else:
            torch.addmm(bias.detach(), rows, weight, out=cut(out, piece))
    return out


def _add_product_(y: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    """y += h W."""
    for piece in pieces(y, h, always=True):
        cut(y, piece).addmm_(cut(h, piece), weight)
    return y


def _outer(h: Tensor, dy: Tensor) -> Tensor:
    """hᵀ dy. Where dy is thin, BLAS is four times faster the other way round (docs/log.md)."""
    thin = 4 * dy.shape[1] < h.shape[1]
    left, right = (dy, h) if thin else (h, dy)
    total: Tensor | None = None
    for _, (a, b) in copies(left, right):
        part = a.t() @ b
        total = part if total is None else total.add_(part)
    assert total is not None
    return total.t() if thin else total


def _sum(dy: Tensor) -> Tensor:
    """Σ_i dy[i]. [n, w] → [w]"""
    total: Tensor | None = None
    for piece in pieces(dy, always=True):
        part = cut(dy, piece).sum(0)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


class _Linears(Function):
    @staticmethod
    @metered("dense")
    def forward(ctx: Any, h: Tensor, *factors: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = factors[::2], factors[1::2]
        ctx.save_for_backward(h, *weights)
        return tuple(_product(h, w, b) for w, b in zip(weights, biases, strict=True) if w is not None)

    @staticmethod
    @metered("dense")
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, *weights = ctx.saved_tensors
        wanted, found = ctx.needs_input_grad, []
        dh: Tensor | None = None
        for k, (weight, dy) in enumerate(zip(weights, grads, strict=True)):
            if wanted[0]:
                dh = _product(dy, weight.t()) if dh is None else _add_product_(dh, dy, weight.t())
            found.append(_outer(h, dy) if wanted[1 + 2 * k] else None)
            found.append(_sum(dy) if wanted[2 + 2 * k] else None)
        return dh, *found


class _Linear(Function):
    @staticmethod
    @metered("dense")
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor | None) -> Tensor:
        ctx.save_for_backward(h, weight)
        if y is not None:
            ctx.mark_dirty(y)
            if y.is_meta:
                left_out("product", h, weight)
            else:
                _add_product_(y.detach(), h.detach(), weight.detach())
            return y
        return _product(h, weight, bias)

    @staticmethod
    @metered("dense")
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, weight = ctx.saved_tensors
        dy = grads[0]
        dh = dweight = None
        if ctx.needs_input_grad[0]:
            dh = _product(dy, weight.t())
        if ctx.needs_input_grad[1]:
            dweight = _outer(h, dy)
        db = _sum(dy) if ctx.needs_input_grad[2] else None
        return dh, dweight, db, dy if ctx.needs_input_grad[3] else None

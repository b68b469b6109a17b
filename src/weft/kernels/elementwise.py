"""Small steps between the large ones, with results in reused memory (`weft.memory`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import left_out
from . import dry, native
from .csr import CSR
from .function import Function
from .sddmm import sddmm_heads


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """y = x + b, x left as it is. [n, w], [w] → [n, w].

    >>> add_bias(torch.zeros(2, 2), torch.tensor([1., 2.])).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return _AddBias.apply(x, bias)


class _AddBias(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        out = empty(*x.shape, like=x)
        if out.is_meta:
            left_out("add", x)
            return out
        return torch.add(x.detach(), bias.detach(), out=out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], grads[0].sum(0)


def add_scaled(y: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """y + s x, s one number that may be learned. [n, w], twice, [] → [n, w].

        backward  dy and s dz pass on,  ds = Σ_i ⟨dz[i], x[i]⟩, without a product of their size

    >>> add_scaled(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]), torch.tensor(3.0)).tolist()
    [[4.0, 7.0]]
    """
    return _AddScaled.apply(y, x, scale)


class _AddScaled(Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        out = empty(*y.shape, like=y)
        if out.is_meta:
            left_out("add", y)
            return out
        return torch.add(y.detach(), x.detach(), alpha=float(scale), out=out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, scale), dz = ctx.saved_tensors, grads[0].contiguous()
        dx = ds = None
        if ctx.needs_input_grad[1]:
            dx = empty(*dz.shape, like=dz)
            if dx.is_meta:
                left_out("mul", dz)
            else:
                torch.mul(dz, float(scale), out=dx)
        if ctx.needs_input_grad[2]:
            ds = row_products(dz, x.contiguous()).sum()
        return dz, dx, ds


def elu_(x: Tensor) -> Tensor:
    """y = x where x > 0, else e^x − 1; in place. Backward reads its slope from y: 1, or y + 1.

    >>> elu_(torch.tensor([-1e9, 0.0, 2.0]))
    tensor([-1.,  0.,  2.])
    """
    return _Elu.apply(x)


class _Elu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        if native.served(x) and x.is_contiguous():
            native.kernel("elu", x)(native.address(x), x.numel(), native.threads(x.numel()))
        elif x.is_meta:
            left_out("elu", x)
        else:
            torch.nn.functional.elu_(x.detach())
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (y,), dy = ctx.saved_tensors, grads[0]
        out = empty(*dy.shape, like=dy)
        if out.is_meta:
            left_out("elu", dy)
            return (out,)
        torch.ops.aten.elu_backward.grad_input(dy, 1.0, 1.0, 1.0, True, y, grad_input=out)
        return (out,)


def row_products(x: Tensor, y: Tensor, heads: int = 1) -> Tensor:
    """⟨x[i], y[i]⟩ in each head, no temporary of their size. [n, heads · w], twice → [n, heads].

    >>> row_products(torch.ones(2, 4), torch.ones(2, 4), heads=2).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    n, width = x.shape
    if dry.is_dry(x, y):
        return dry.blank(n, heads, dtype=x.dtype)
    index = torch.int32 if n < 2**31 else torch.int64
    indptr, indices = torch.arange(n + 1, device=x.device), torch.arange(n, dtype=index, device=x.device)
    diagonal = CSR(indptr, indices, None, (n, n))
    return sddmm_heads(diagonal, x, y, 0, max(width // heads, 1), heads)


def norms(x: Tensor, heads: int = 1) -> Tensor:
    """The length of each row in each head. [n, heads · w] → [n, heads]. A row of zeros has gradient 0.

    >>> norms(torch.tensor([[3., 4.]])).tolist()
    [[5.0]]
    """
    return _Norms.apply(x, heads)


class _Norms(Function):
    """forward |x|, backward dx = x · d|x| / |x|."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int) -> Tensor:
        x = x.detach().contiguous()
        length = row_products(x, x, heads).sqrt_()
        ctx.save_for_backward(x, length)
        return length

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, length = ctx.saved_tensors
        n, heads = length.shape
        factor = torch.where(length == 0, 0.0, grads[0] / length)
        shape = (n, heads, x.shape[1] // heads)
        dx = empty(*x.shape, like=x)
        torch.mul(x.view(shape), factor[:, :, None], out=dx.view(shape))
        return dx, None

"""Cross entropy and its gradient in one pass over the rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import left_out
from . import native
from .function import Function


def cross_entropy(x: Tensor, labels: Tensor, share: float = 1.0, over: bool = False) -> Tensor:
    """share · Σ_i (log Σ_j exp(x[i, j]) − x[i, labels[i]]), one number.

        x       [m, c]
        labels  [m] int64, in 0..c-1
        over    x is read by nobody else, now or in backward: its gradient is written over it
        backward  dx[i] = share · (softmax(x[i]) − onehot(labels[i])) · dy

    The gradient is made with the loss, while a row is at hand, in memory that is used again (`weft.memory`).

    >>> float(cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 1]), share=1 / 3))  # = log 2
    0.693...
    """
    return _CrossEntropy.apply(x, labels, share, over)


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor, share: float, over: bool) -> Tensor:
        x = x.detach().contiguous()
        m, c = x.shape
        dx = (x if over else empty(m, c, like=x)) if ctx.needs_input_grad[0] else None
        if x.is_meta:
            left_out("loss", x)
            loss = x.new_empty(())
        elif native.served(x, labels) and labels.dtype == torch.int64:
            _check(labels, c)
            each = empty(m, like=x)
            native.kernel("cross_entropy", x)(
                native.address(x), native.address(labels.contiguous()), m, c, share, native.address(each),
                native.address(dx), native.threads(8 * x.numel()),
            )  # fmt: skip
            loss = each.sum() * share
        else:
            each = torch.sub(x, x.logsumexp(dim=1, keepdim=True), out=dx)
            loss = each.gather(1, labels.view(-1, 1)).sum() * -share
            if dx is not None:
                dx.exp_().mul_(share)
                dx.scatter_add_(1, labels.view(-1, 1), dx.new_full((m, 1), -share))
        ctx.dx = dx
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dx, ctx.dx = ctx.dx, None
        if dx is None:
            raise RuntimeError("the gradient of a cross entropy was used; take the loss anew for another one")
        if not dx.is_meta and not (dx.is_cpu and float(grads[0]) == 1.0):  # 1: it is the last step of all
            dx.mul_(grads[0])
        return dx, None, None, None


def _check(labels: Tensor, classes: int) -> None:
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        raise ValueError(
            f"labels must lie in 0..{classes - 1}, these span {int(labels.min())}..{int(labels.max())}"
        )

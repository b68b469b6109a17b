"""What the operations with a backward of their own have in common."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import place


class Function(torch.autograd.Function):
    """An operation with first derivatives. Second ones are refused.

    A kernel writes its gradient into plain memory, where autograd sees no operations: the derivative of that
    gradient would be taken for 0, and nobody told.

    >>> from weft.kernels import CSR, spmm
    >>> x = torch.ones(1, 1, requires_grad=True)
    >>> y = spmm(CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1)), x)
    >>> torch.autograd.grad(y.sum(), x, create_graph=True)
    Traceback (most recent call last):
        ...
    NotImplementedError: weft has first derivatives only. Call grad or backward without create_graph=True.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        compute, forward = cls.backward, cls.forward

        @functools.wraps(forward)
        def remember(ctx: Any, *args: Any) -> Any:
            ctx.place = place.current()  # a rank that waits on its way back says for which layer
            return forward(ctx, *args)

        @functools.wraps(compute)
        def backward(ctx: Any, *grads: Tensor) -> Any:
            if torch.is_grad_enabled():  # in backward, that is what create_graph=True does
                raise NotImplementedError(
                    "weft has first derivatives only. Call grad or backward without create_graph=True."
                )
            with place.at(ctx.place):
                return compute(ctx, *grads)

        cls.forward = staticmethod(remember)  # type: ignore[method-assign]
        cls.backward = staticmethod(backward)  # type: ignore[method-assign]

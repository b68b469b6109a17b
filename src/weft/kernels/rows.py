"""Rows picked out of a matrix, and rows added into one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import left_out
from . import dry, native
from .csr import CSR
from .function import Function
from .spmm import multiply


def gather_rows(x: Tensor, index: Tensor, distinct: bool = False) -> Tensor:
    """y[k] = x[index[k]]; backward adds each row's gradients up.

        x         [n, w]
        index     [m]  int32 or int64, in 0..n-1; repeats allowed
        distinct  a promise that no index occurs twice: a cheaper backward
        y         [m, w]

    >>> gather_rows(torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([1, 1]))
    tensor([[3., 4.],
            [3., 4.]])
    """
    if not dry.is_dry(x, index):
        _check(index, x.shape[0])
    return _Gather.apply(x, index, distinct)


def scatter_add(index: Tensor, src: Tensor, rows: int) -> Tensor:
    """y[i] = Σ over k with index[k] = i of src[k], summed in the order of k; the dual of `gather_rows`.

        index  [m]  in 0..rows-1; repeats allowed
        src    [m, w]
        y      [rows, w]

    >>> scatter_add(torch.tensor([1, 1]), torch.tensor([[1.], [2.]]), rows=3).ravel()
    tensor([0., 3., 0.])
    """
    if not dry.is_dry(src, index):
        _check(index, rows)
    if index.shape[0] != src.shape[0]:
        raise ValueError(f"{index.shape[0]} indices for {src.shape[0]} rows")
    return _Scatter.apply(src, index, rows)


def add_rows_(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """x[index[k]] += src[k] in place, where no index occurs twice (a received message). No autograd.

    >>> add_rows_(torch.zeros(2, 1), torch.tensor([1]), torch.tensor([[5.]])).ravel()
    tensor([0., 5.])
    """
    if native.served(x, index, src):
        native.kernel("add_rows", x, index)(
            native.address(x), native.address(index), index.numel(), x.shape[1],
            native.address(src.contiguous()), native.threads(src.numel()),
        )  # fmt: skip
        return x
    if dry.is_dry(x, index, src):
        left_out("add_rows", src)
        return dry.written(x)
    return x.index_add_(0, index, src)


def scatter_rows_(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """x[index[k]] += src[k] in place, one after the other: an index may occur twice. No autograd.

    >>> scatter_rows_(torch.zeros(2, 1), torch.tensor([1, 1]), torch.tensor([[5.], [6.]])).ravel()
    tensor([ 0., 11.])
    """
    if native.served(x, index, src) and x.dtype == src.dtype:
        src, index = src.contiguous(), index.contiguous()
        native.kernel("scatter_rows", x, index)(
            native.address(x), native.address(index), index.numel(), x.shape[1], native.address(src),
            native.threads(src.numel()),
        )  # fmt: skip
        return x
    if dry.is_dry(x, index, src):
        left_out("add_rows", src)
        return dry.written(x)
    return x.index_add_(0, index, src)


def pack_rows(x: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """out[k] = x[index[k]] without autograd or checks, into `out` where given: packs a message."""
    if native.served(x, index) and x.is_floating_point():
        x = x.contiguous()
        out = empty(index.numel(), x.shape[1], like=x) if out is None else out
        native.kernel("gather_rows", x, index)(
            native.address(x), native.address(index), index.numel(), x.shape[1], native.address(out),
            native.threads(out.numel()),
        )  # fmt: skip
        return out
    if dry.is_dry(x, index, out):
        left_out("pack_rows", x[: index.numel()])
        return dry.blank(index.numel(), *x.shape[1:], dtype=x.dtype) if out is None else dry.written(out)
    return torch.index_select(x, 0, index) if out is None else torch.index_select(x, 0, index, out=out)


def pair_products(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """z[k] = x[left[k]] ∘ x[right[k]], without autograd or checks. [n, w], [m], [m] → [m, w].

    >>> pair_products(torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([0]), torch.tensor([1]))
    tensor([[3., 8.]])
    """
    if native.served(x, left, right) and x.is_floating_point() and left.dtype == right.dtype:
        x, left, right = x.contiguous(), left.contiguous(), right.contiguous()
        out = empty(left.numel(), x.shape[1], like=x)
        native.kernel("pair_products", x, left)(
            *map(native.address, (x, left, right)), left.numel(), x.shape[1], native.address(out),
            native.threads(out.numel()),
        )  # fmt: skip
        return out
    if dry.is_dry(x, left, right):
        return dry.blank(left.numel(), x.shape[1], dtype=x.dtype)
    return x[left] * x[right]


def add_pair_products_(y: Tensor, x: Tensor, left: Tensor, right: Tensor, dz: Tensor) -> Tensor:
    """The gradient of `pair_products`, added to y in place: each end gets dz times the other's row.

        y[left[k]] += dz[k] ∘ x[right[k]],  y[right[k]] += dz[k] ∘ x[left[k]]

    Pair after pair in their order, on any number of threads.

    >>> x = torch.tensor([[1., 2.], [3., 4.]])
    >>> add_pair_products_(torch.zeros(2, 2), x, torch.tensor([0]), torch.tensor([1]), torch.ones(1, 2))
    tensor([[3., 4.],
            [1., 2.]])
    """
    alike = y.dtype == x.dtype == dz.dtype and left.dtype == right.dtype
    if native.served(y, x, left, right, dz) and alike:
        x, left, right, dz = x.contiguous(), left.contiguous(), right.contiguous(), dz.contiguous()
        native.kernel("add_pair_products", x, left)(
            *map(native.address, (y, x, left, right)), left.numel(), x.shape[1], native.address(dz),
            native.threads(dz.numel()),
        )  # fmt: skip
        return y
    if dry.is_dry(y, x, left, right, dz):
        return dry.written(y)
    return y.index_add_(0, left, dz * x[right]).index_add_(0, right, dz * x[left])


def _check(index: Tensor, rows: int) -> None:
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= rows):
        raise ValueError(
            f"row indices must lie in 0..{rows - 1}, these span {int(index.min())}..{int(index.max())}"
        )


def _sum_rows(src: Tensor, index: Tensor, rows: int) -> Tensor:
    if dry.is_dry(src, index):
        return dry.blank(rows, src.shape[1], dtype=src.dtype)
    # One column of ones per message row: its transpose, a SpMM, adds up in a fixed order on any threads.
    m = index.numel()
    picks = CSR(torch.arange(m + 1, device=index.device), index, None, (m, rows))
    return multiply(picks.T, src.contiguous(), None)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, distinct: bool) -> Tensor:
        ctx.rows, ctx.distinct = x.shape[0], distinct
        ctx.save_for_backward(index)
        return pack_rows(x.detach(), index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy, (index,) = grads[0].contiguous(), ctx.saved_tensors
        if not ctx.distinct:
            return _sum_rows(dy, index, ctx.rows), None, None
        dx = empty(ctx.rows, dy.shape[1], like=dy).zero_()
        return add_rows_(dx, index, dy), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: Tensor, index: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(index)
        return _sum_rows(src.detach(), index, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return pack_rows(grads[0], *ctx.saved_tensors), None, None

"""Sparse matrix times dense matrix over a semiring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import unknown
from ..memory import empty, in_file
from ..meter import metered
from . import dry, native, walked
from .csr import CSR
from .function import Function
from .sddmm import sddmm

REDUCTIONS = ("sum", "mean", "max", "min")


def spmm(a: CSR, x: Tensor, values: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """y[i] = ⊕ over the stored (i, j) of a_ij · x[j].

        a       [rows, columns]  sparse
        x       [columns, w]     or [columns]
        values  [arcs]           in place of a.values; may ask for a gradient
        y       [rows, w]        rows without entries are 0
        ⊕       sum, mean (by the number of entries), max, min (ties: the smallest j; no j twice in a row)

        forward   y  = A x
        backward  dx = Aᵀ dy,  dvalues = dy xᵀ at A's entries;  max and min: to the winner alone

    >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))
    >>> x = torch.tensor([[1., 8.], [3., 4.]])
    >>> spmm(a, x).tolist(), spmm(a, x, reduce="mean").tolist(), spmm(a, x, reduce="max").tolist()
    ([[4.0, 12.0], [0.0, 0.0]], [[2.0, 6.0], [0.0, 0.0]], [[3.0, 8.0], [0.0, 0.0]])
    """
    if reduce not in REDUCTIONS:
        raise unknown("reduction", reduce, REDUCTIONS)
    if x.dim() == 1:
        return spmm(a, x[:, None], values, reduce)[:, 0]
    if x.dim() != 2 or x.shape[0] != a.shape[1]:
        raise ValueError(
            f"A is {a.shape[0]}x{a.shape[1]}, so x must be [{a.shape[1]}, w], not {tuple(x.shape)}"
        )
    values = a.values if values is None else values
    if values is not None and values.dtype != x.dtype:
        raise ValueError(f"x is {x.dtype} but A's values are {values.dtype}. Use a.to(dtype=...).")
    if reduce in ("max", "min"):
        return _Extremum.apply(values, x, a, reduce == "max")
    return _Sum.apply(values, x, a, reduce == "mean")


@metered("spmm")
def multiply(
    a: CSR,
    x: Tensor,
    values: Tensor | None,
    mean: bool = False,
    out: Tensor | None = None,
    accumulate: bool = False,
) -> Tensor:
    """A x without autograd, into `out` where given, added to it where `accumulate`."""
    rows, width = a.shape[0], x.shape[1]
    if native.served(x, a.indices, values):
        x, values = x.contiguous(), None if values is None else values.contiguous()
        if in_file(x) and rows and width:
            return walked.multiply(a, x, values, mean, out, accumulate, _product)
        out = empty(rows, width, like=x) if out is None else out
        _product(a.indptr, a.indices, values, x, out, mean, accumulate)
        return out
    if dry.is_dry(x, a.indices, values, out):
        return dry.blank(rows, width, dtype=x.dtype) if out is None else dry.written(out)
    messages = x[a.indices.long()]
    if values is not None:
        messages = messages * values[:, None]
    y = x.new_zeros(rows, width).index_add_(0, a.row_of, messages)
    if mean:
        y = y / a.counts.clamp(min=1)[:, None].to(y.dtype)
    if out is None:
        return y
    return out.add_(y) if accumulate else out.copy_(y)


def _product(
    indptr: Tensor, indices: Tensor, values: Tensor | None, x: Tensor, out: Tensor, mean: bool,
    accumulate: bool,
) -> None:  # fmt: skip
    """The kernel, for as many rows as out has."""
    rows, width = out.shape
    native.kernel("spmm", x, indices)(
        rows, *map(native.address, (indptr, indices, values, x)), width, native.address(out),
        mean, accumulate, native.threads((indices.numel() + rows) * width),
    )  # fmt: skip


class _Sum(Function):
    """forward y = S A x, backward dx = Aᵀ S dy; S = 1/entries of the row for the mean, else 1."""

    @staticmethod
    def forward(ctx: Any, values: Tensor | None, x: Tensor, a: CSR, mean: bool) -> Tensor:
        ctx.a, ctx.mean = a, mean
        ctx.own = values is a.values
        # x is needed for the gradient of the values only: else its memory can go.
        wants_values = values is not None and values.requires_grad
        ctx.save_for_backward(None if ctx.own else values, x if wants_values else None)
        return multiply(a, x.detach(), None if values is None else values.detach(), mean)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        a, dy = ctx.a, grads[0].contiguous()
        if dry.is_dry(dy):
            return _blank_gradients(ctx, dy)
        if ctx.mean:
            dy = dy / a.counts.clamp(min=1)[:, None].to(dy.dtype)
        dvalues = dx = None
        if ctx.needs_input_grad[0]:
            dvalues = sddmm(a, dy, x)
        if ctx.needs_input_grad[1]:
            dx = multiply(a.T, dy, a.T.values if ctx.own else values[a.permutation])
        return dvalues, dx, None, None


@metered("spmm")
def best_values(a: CSR, x: Tensor, values: Tensor | None, largest: bool, plus: bool = False) -> Tensor:
    """y of `extremum` alone, where no gradient is asked for: nobody needs to know who won. [rows, w]

    >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))
    >>> best_values(a, torch.tensor([[1.0], [3.0]]), None, largest=True, plus=True).ravel()
    tensor([4., 0.])
    """
    if native.served(x, a.indices, values):
        return _extremum(a, x, values, largest, plus, None)
    return extremum(a, x, values, largest, plus)[0]


def _extremum(
    a: CSR, x: Tensor, values: Tensor | None, largest: bool, plus: bool, arg: Tensor | None
) -> Tensor:
    x, values = x.contiguous(), None if values is None else values.contiguous()
    rows, width = a.shape[0], x.shape[1]
    y = empty(rows, width, like=x)
    native.kernel("spmm_extremum", x, a.indices)(
        rows, *map(native.address, (a.indptr, a.indices, values, x)), width, native.address(y),
        native.address(arg), largest, plus, _never_nan(a, x, values, plus),
        native.threads((a.arcs + rows) * width),
    )  # fmt: skip
    return y


def _never_nan(a: CSR, x: Tensor, values: Tensor | None, plus: bool) -> bool:
    """Whether no a_ij ⊗ x[j] is NaN: one look at x is cheaper than one at every message."""
    if not x.numel():
        return True
    low, high = x.aminmax()
    # NaN is neither; a product of 0 and infinity is NaN, a sum of a finite number and infinity is not.
    fine = bool(low == low) if plus else bool(torch.isfinite(low) & torch.isfinite(high))
    return fine and (values is None or _finite(a, values))


def _finite(a: CSR, values: Tensor) -> bool:
    """Whether all of them are; of A's own values it is found once."""
    if values is not a.values:
        return bool(torch.isfinite(values).all())
    if "finite_values" not in a.__dict__:
        a.__dict__["finite_values"] = bool(torch.isfinite(values).all())
    return bool(a.__dict__["finite_values"])


@metered("spmm")
def extremum(
    a: CSR, x: Tensor, values: Tensor | None, largest: bool, plus: bool = False
) -> tuple[Tensor, Tensor]:
    """(y, arg): the largest or smallest a_ij x[j] per row and column, and its j; of equals the first arc.

    y [rows, w], arg [rows, w] of the indices' type; rows without entries give 0 and -1. With `plus`, the
    tropical product a_ij + x[j]; entries that have no value are 1 there, too.
    """
    rows, width = a.shape[0], x.shape[1]
    if native.served(x, a.indices, values):
        arg = empty(rows, width, like=x, dtype=a.indices.dtype)
        return _extremum(a, x, values, largest, plus, arg), arg
    if dry.is_dry(x, a.indices, values):
        return dry.blank(rows, width, dtype=x.dtype), dry.blank(rows, width, dtype=a.indices.dtype)
    messages = x[a.indices.long()]
    if plus:
        messages = messages + (1 if values is None else values[:, None])
    elif values is not None:
        messages = messages * values[:, None]
    row = a.row_of[:, None].expand(-1, width)
    y = x.new_zeros(rows, width).scatter_reduce(
        0, row, messages, "amax" if largest else "amin", include_self=False
    )
    # NaN equals nothing, so it is matched by being NaN.
    best = y[a.row_of]
    wins = (messages == best) | (messages.isnan() & best.isnan())
    # Of equals the first arc of the row wins, whatever its column is called.
    arc = torch.arange(a.arcs, device=x.device)[:, None].expand(-1, width)
    first = torch.full((rows, width), a.arcs, dtype=torch.int64, device=x.device)
    first = first.scatter_reduce(0, row, torch.where(wins, arc, a.arcs), "amin")
    winner = torch.cat([a.indices, a.indices.new_full((1,), -1)])
    return y, winner[first]


class _Extremum(Function):
    """forward y = max or min over j of a_ij x[j]; backward: to the arc that won, per column."""

    @staticmethod
    def forward(ctx: Any, values: Tensor | None, x: Tensor, a: CSR, largest: bool) -> Tensor:
        y, arg = extremum(a, x.detach(), None if values is None else values.detach(), largest)
        ctx.a = a
        wants_values = values is not None and values.requires_grad
        ctx.save_for_backward(values, x if wants_values else None, arg)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, x, arg = ctx.saved_tensors
        dy = grads[0].contiguous()
        if dry.is_dry(dy):
            return _blank_gradients(ctx, dy)
        dx = dvalues = None
        if ctx.needs_input_grad[0]:
            dvalues = _winning_values(ctx.a, dy, arg, x)
        if ctx.needs_input_grad[1]:
            a = ctx.a
            own = values is None or values is a.values
            dx = extremum_backward(a.T, dy, arg, a.T.values if own else values[a.permutation])
        return dvalues, dx, None, None


@metered("spmm")
def extremum_backward(
    t: CSR, dy: Tensor, arg: Tensor, values: Tensor | None, labels: Tensor | None = None
) -> Tensor:
    """dx[j,c] = Σ over the rows i that j won in column c of a_ij dy[i,c].

    t       [columns, rows]  the transpose of A, with its `values`
    arg     [rows, w]        the winners, as `extremum` gives them
    labels  [columns]        what the winners call column j, where not j itself
    """
    width = dy.shape[1]
    if native.served(dy, t.indices) and values is None and labels is None and arg.dtype == t.indices.dtype:
        # Rows go straight to their winners: n · w numbers are touched, not arcs · w.
        dx = empty(t.shape[0], width, like=dy)
        native.kernel("add_to_winners", dy, arg)(
            native.address(arg.contiguous()), dy.shape[0], width, native.address(dy.contiguous()), t.shape[0],
            native.address(dx), native.threads(dy.numel()),
        )  # fmt: skip
        return dx
    if native.served(dy, t.indices, values):
        dx = empty(t.shape[0], width, like=dy)
        values = None if values is None else values.contiguous()
        native.kernel("spmm_extremum_backward", dy, t.indices)(
            t.shape[0], *map(native.address, (t.indptr, t.indices, values, labels, dy, arg)),
            width, native.address(dx), native.threads((t.arcs + t.shape[0]) * width),
        )  # fmt: skip
        return dx
    if dry.is_dry(dy, arg, t.indices, values, labels):
        return dry.blank(t.shape[0], width, dtype=dy.dtype)
    name = t.row_of if labels is None else labels[t.row_of]
    messages = torch.where(arg[t.indices.long()] == name[:, None], dy[t.indices.long()], 0)
    if values is not None:
        messages = messages * values[:, None]
    return dy.new_zeros(t.shape[0], width).index_add_(0, t.row_of, messages)


def _blank_gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """(dvalues, dx) of a dry dy: not even Aᵀ is built."""
    a, (values, x, *_) = ctx.a, ctx.needs_input_grad
    dvalues = dry.blank(a.arcs, dtype=dy.dtype) if values else None
    dx = dry.blank(a.shape[1], dy.shape[1], dtype=dy.dtype) if x else None
    return dvalues, dx, None, None


def _winning_values(a: CSR, dy: Tensor, arg: Tensor, x: Tensor) -> Tensor:
    """dvalues[e] = Σ over the columns c that arc e = (i, j) won of dy[i,c] x[j,c]."""
    won = arg[a.row_of] == a.indices[:, None]
    return torch.where(won, dy[a.row_of] * x[a.indices.long()], 0).sum(1)

"""Dropout from a counter-based generator, alone or after ReLU.

The mask is a function of (seed, epoch, layer, global row, column) and of nothing else: not of the number of
threads or ranks, nor of which rank holds the row. The generator is Philox4x32-10 (Salmon et al., SC'11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import left_out
from ..paged import cut, pieces
from . import dry, native
from .function import Function

_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Stream:
    """Which random numbers: one stream per (seed, epoch, layer).

    >>> Stream(seed=1, epoch=2, layer=0).key == Stream(seed=1, epoch=2, layer=1).key
    False
    """

    seed: int
    epoch: int
    layer: int

    @property
    def key(self) -> int:
        """The generator's 64-bit key: the three numbers, mixed one after the other (splitmix64)."""
        state = 0
        for number in (self.seed, self.epoch, self.layer):
            state = (state + number + 0x9E3779B97F4A7C15) & (1 << 64) - 1
            state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
            state = ((state ^ state >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
            state ^= state >> 31
        return state


def dropout(x: Tensor, p: float, stream: Stream, rows: Tensor | None = None, first: int = 0) -> Tensor:
    """y = keep ∘ x / (1 − p), keep[r, c] = 1 with probability 1 − p, from the stream alone.

        x     [m, w]
        rows  [m] int64: the global number of each row; by default first, first + 1, …

        forward   y  = keep ∘ x  / (1 − p)
        backward  dx = keep ∘ dy / (1 − p), the mask made anew rather than stored

    >>> x = torch.ones(4, 3)
    >>> whole = dropout(x, 0.5, Stream(0, 0, 0))
    >>> torch.equal(whole[2:], dropout(x[2:], 0.5, Stream(0, 0, 0), first=2))
    True
    """
    _check(x, p, rows)
    return x if p == 0 else _Dropout.apply(x, p, stream.key, rows, first)


def relu_dropout_(x: Tensor, p: float, stream: Stream, rows: Tensor | None = None, first: int = 0) -> Tensor:
    """y = keep ∘ max(x, 0) / (1 − p), in place: x's memory becomes y's.

        backward  dx = [y > 0] ∘ dy / (1 − p): the mask of both is read from y, nothing else is kept

    >>> relu_dropout_(torch.tensor([[-1., 2.]]), 0.0, Stream(0, 0, 0))
    tensor([[0., 2.]])
    """
    _check(x, p, rows)
    return _ReluDropout.apply(x, p, stream.key, rows, first)


def relu_(x: Tensor) -> Tensor:
    """y = max(x, 0), in place: x's memory becomes y's, and backward reads the mask from y.

    >>> relu_(torch.tensor([[-1., 2.]]))
    tensor([[0., 2.]])
    """
    return _ReluDropout.apply(x, 0.0, 0, None, 0)


def _check(x: Tensor, p: float, rows: Tensor | None) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"dropout must lie in [0, 1), not {p}")
    if rows is not None and rows.shape != (x.shape[0],):
        raise ValueError(f"{x.shape[0]} rows, but {tuple(rows.shape)} row numbers")


def _threshold(p: float) -> int:
    return min(round(p * 2**32), _WORD)


def philox(counter: tuple[Any, Any, Any, Any], key: int) -> tuple[Any, ...]:
    """Philox4x32-10: four 32-bit words (as int64) from a counter of four words and a 64-bit key.

    Each word of the counter is a tensor or a number; one tensor, and all four words of the result are.
    """
    # A word that is one number for all stays Python's: no tensor on a device that the others are not on.
    c0, c1, c2, c3 = (c.long() if isinstance(c, Tensor) else c for c in counter)
    k0, k1 = key & _WORD, key >> 32
    for _ in range(10):
        # The products need 64 bits without sign; int64 wraps to the same bits.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & _WORD) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32 & _WORD) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def keep_mask(
    shape: tuple[int, int], p: float, key: int, rows: Tensor | None, first: int, device: Any
) -> Tensor:
    """keep [m, w] as booleans: the reference of the C++ kernel, and the path on CUDA."""
    row = torch.arange(first, first + shape[0], device=device) if rows is None else rows.to(device)
    column = torch.arange(shape[1], device=device)
    counter = column.div(32, rounding_mode="floor") * 8 + column % 8
    words = philox((counter[None, :], (row & _WORD)[:, None], (row >> 32)[:, None], 0), key)
    word = (column // 8 % 4).expand(shape)
    return torch.stack([w.expand(shape) for w in words]).gather(0, word[None])[0] >= _threshold(p)


def _apply(x: Tensor, y: Tensor, relu: bool, p: float, key: int, rows: Tensor | None, first: int) -> Tensor:
    if native.served(x) and (rows is None or rows.device.type == "cpu"):
        rows = None if rows is None else rows.to(torch.int64).contiguous()
        for piece in pieces(x, writes=[y]):
            a, b, own = cut(x, piece), cut(y, piece), None if rows is None else cut(rows, piece)
            native.kernel("dropout", x)(
                native.address(a), native.address(b), a.shape[0], a.shape[1], native.address(own),
                first + piece.start, key, _threshold(p), 1 / (1 - p), relu, native.threads(4 * a.numel()),
            )  # fmt: skip
        return y
    if dry.is_dry(x, y, rows):
        left_out("dropout" if p else "relu", x)
        return dry.written(y)
    scaled = x * (1 / (1 - p))
    if relu:
        scaled = scaled.relu()
    if p:
        scaled = torch.where(keep_mask((x.shape[0], x.shape[1]), p, key, rows, first, x.device), scaled, 0)
    return y.copy_(scaled)


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int, rows: Tensor | None, first: int) -> Tensor:
        ctx.mask = p, key, rows, first
        x = x.detach().contiguous()
        return _apply(x, empty(*x.shape, like=x), False, *ctx.mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy = grads[0].contiguous()
        return _apply(dy, empty(*dy.shape, like=dy), False, *ctx.mask), None, None, None, None


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int, rows: Tensor | None, first: int) -> Tensor:
        ctx.mark_dirty(x)
        data = x.detach()
        if native.served(x) and p == 0:
            for piece in pieces(data):
                cut(data, piece).relu_()
        else:
            _apply(data, data, True, p, key, rows, first)
        ctx.scale = 1 / (1 - p)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (y,) = ctx.saved_tensors
        dy = grads[0].contiguous()
        if native.served(y, dy):
            dx = empty(*dy.shape, like=dy)
            for piece in pieces(y, dy, writes=[dx]):
                a, b, c = cut(y, piece), cut(dy, piece), cut(dx, piece)
                native.kernel("relu_backward", y)(
                    native.address(a), native.address(b), b.numel(), ctx.scale, native.address(c),
                    native.threads(b.numel()),
                )  # fmt: skip
        elif dry.is_dry(y, dy):
            left_out("relu", dy)
            dx = dry.blank(*dy.shape, dtype=dy.dtype)
        else:
            dx = torch.where(y > 0, dy * ctx.scale, 0)
        return dx, None, None, None, None

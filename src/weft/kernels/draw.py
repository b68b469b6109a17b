"""Random whole numbers, uniform numbers and shuffles, each a function of (key, index) and of nothing else.

So every rank can draw just those that it needs, and all ranks together draw what one process would.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import dry
from .dropout import philox

_WORD = 0xFFFFFFFF
_MIX = (0xD6E8FEB86659FD93 - (1 << 64), 0x9E3779B97F4A7C15 - (1 << 64))
"""Odd multipliers of the shuffle's rounds, as int64."""


def draw(index: Tensor, below: int, key: int) -> Tensor:
    """r[k] in 0..below-1, the number that belongs to index[k]. [m] int64 → [m] int64.

    62 random bits modulo `below`: no number is likelier than another by more than below / 2⁶².

    >>> from weft.kernels import Stream
    >>> whole = draw(torch.arange(6), 10, Stream(0, 1, 2).key)
    >>> torch.equal(whole[4:], draw(torch.tensor([4, 5]), 10, Stream(0, 1, 2).key))
    True
    """
    if below < 1:
        raise ValueError(f"nothing lies in 0..{below - 1}")
    low, high, _, _ = philox((index & _WORD, index >> 32, 0, 0), key)
    return ((high & 0x3FFFFFFF) << 32 | low) % below


def uniform(rows: Tensor, width: int, bound: float, key: int) -> Tensor:
    """x[k, c] in [−bound, bound), the numbers that belong to row rows[k]. [m] → [m, width] float64.

    >>> from weft.kernels import Stream
    >>> x = uniform(torch.arange(5), 3, 0.1, Stream(0, 0, 0).key)
    >>> x.shape, bool((x.abs() <= 0.1).all())
    (torch.Size([5, 3]), True)
    """
    quads = torch.arange(-(-width // 4), device=rows.device)
    row = rows[:, None]
    words = torch.stack(philox((quads[None, :], row & _WORD, row >> 32, 1), key), dim=2)
    return (words.reshape(rows.numel(), -1)[:, :width].double() / 2**31 - 1) * bound


def shuffled(index: Tensor, n: int, key: int) -> Tensor:
    """Where index[k] comes to stand in a random order of 0..n-1: a permutation known point by point.

        index  [m] int64, in 0..n-1        result  [m] int64, in 0..n-1, distinct where index is

    A Feistel network of six rounds over the next power of four; what falls outside 0..n-1 goes through
    again until it falls inside.

    >>> sorted(shuffled(torch.arange(7), 7, key=5).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    if dry.is_dry(index):  # which would have to go through again, nobody knows
        return dry.blank(*index.shape, dtype=index.dtype)
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    keys = [int(k) for k in draw(torch.arange(6, device="cpu"), 1 << 62, key)]

    def turn(x: Tensor) -> Tensor:
        left, right = x >> half, x & mask
        for k in keys:
            mixed = (right + k) * _MIX[0]
            mixed = (mixed ^ (mixed >> 32 & _WORD)) * _MIX[1]
            left, right = right, left ^ (mixed >> 40 & mask)
        return left << half | right

    out = turn(index)
    wild = (out >= n).nonzero().ravel()
    while wild.numel():
        again = turn(out[wild])
        out[wild] = again
        wild = wild[again >= n]
    return out

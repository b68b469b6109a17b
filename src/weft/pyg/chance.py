"""Dropout by vertex and arc: a mask follows from the seed, the call and the row in one process."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..kernels import Stream, dropout
from .call import Call, put, rule
from .space import Tag, tag_of


class Chance:
    """Streams of random numbers, one a call. `torch.manual_seed` starts them anew, as it does in one process.

    >>> chance = Chance(7)
    >>> chance.stream() == chance.stream()
    False
    """

    def __init__(self, seed: int):
        self._seed, self._seen, self._calls = seed, torch.initial_seed(), 0

    def stream(self) -> Stream:
        """The numbers of the next call."""
        if torch.initial_seed() != self._seen:
            self._seed = self._seen = torch.initial_seed()
            self._calls = 0
        self._calls += 1
        return Stream(self._seed, 0, self._calls)


@rule("dropout")
def drop(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    p = float(call.get(1, "p", 0.5))
    training = call.get(2, "training", call.kwargs.get("train", True))
    in_place = call.get(3, "inplace", False) or call.in_place
    call.no_names()
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        out = x
    elif p == 1:
        out = x * 0
    else:
        out = dropped(x, tag, p, call.home.chance.stream())
    out = x.copy_(out) if in_place and out is not x else out
    return put(out, None if tag is None else Tag(tag.space, tag.dim))


def dropped(x: Tensor, tag: Tag | None, p: float, stream: Stream) -> Tensor:
    """y = keep ∘ x / (1 − p); keep[r, c] follows from where the number stands in the tensor of one process.

    r   its place in the first dim;   c   its place in the others
    """
    wide = x.reshape(x.shape[0] if x.dim() else 1, -1 if x.numel() else 1)
    if tag is None:
        return dropout(wide, p, stream).view(x.shape)
    if tag.dim == 0:
        return dropout(wide, p, stream, tag.space.places.to("cpu")).view(x.shape)
    # Own numbers lie between those of others in every row: rows of all are made, one at a time.
    shape = [tag.space.total if d == tag.dim else size for d, size in enumerate(x.shape)][1:]
    places = tag.space.places.to(x.device)
    out = []
    for k, row in enumerate(x):
        whole = dropout(x.new_ones(1, math.prod(shape)), p, stream, first=k).view(shape)
        out.append(row * whole.index_select(tag.dim - 1, places))
    return torch.stack(out) if out else x

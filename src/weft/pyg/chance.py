"""Dropout by vertex and arc: a mask follows from the seed, the call and the row's number, not from ranks."""

from __future__ import annotations

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
        out = dropped(x, None if tag is None else (tag.dim, tag.space.ids), p, call.home.chance.stream())
    out = x.copy_(out) if in_place and out is not x else out
    return put(out, None if tag is None else Tag(tag.space, tag.dim))


def dropped(x: Tensor, rows: tuple[int, Tensor] | None, p: float, stream: Stream) -> Tensor:
    """Dropout with the mask of the rows' numbers; of a tensor that all ranks have, of its places."""
    if rows is None:
        return dropout(x.reshape(-1, 1), p, stream).view(x.shape)
    dim, ids = rows
    front = x.movedim(dim, 0)
    flat = front.reshape(front.shape[0], -1 if x.numel() else 1)
    return dropout(flat, p, stream, ids.to("cpu")).view(front.shape).movedim(0, dim)

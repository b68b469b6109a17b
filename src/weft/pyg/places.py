"""Rows by their places in the tensor of one process: x[idx], where idx is the same on every rank.

idx   [k]    places among all rows, such as the `train_idx` of a split; the same numbers on every rank
x[idx]       row i lies with whoever has the row idx[i] of x: nothing moves
"""

from __future__ import annotations

import weakref
import zlib

import torch
from torch import Tensor

from .call import Call
from .space import Space


class Chosen(Space):
    """Rows of `of` that an index names, in its order: `at` are their places here, `which` those in the index.

    Two indices with the same numbers make rows that lie side by side, so that x[idx] and y[idx] agree.
    """

    def __init__(self, of: Space, at: Tensor, which: Tensor, total: int, mark: int):
        super().__init__(
            of.comm, which.numel(), total, f"chosen {of.name}", (of.family, "chosen", total, mark)
        )
        self.of, self.at, self._ids, self._total = of, at, which, total

    def _place(self) -> Tensor:
        return self.ids


def chosen(call: Call, idx: Tensor, space: Space) -> Chosen:
    """Those of the rows that an index names which are here. Every rank calls it.

    What is found is kept for as long as the index lives and is not written to: with the space, since virtual
    ranks may have one index together.
    """
    known = space.indices
    found = known.get(id(idx))
    if found is not None and found[0]() is idx and found[1] == idx._version:
        return found[2]
    for dead in [key for key, (of, _, _) in known.items() if of() is None]:
        del known[dead]
    made = _choose(call, idx, space)
    known[id(idx)] = (weakref.ref(idx), idx._version, made)
    return made


def _choose(call: Call, idx: Tensor, space: Space) -> Chosen:
    if idx.dim() != 1 or idx.is_floating_point():
        raise call.refuse(f"picks rows of {space} by numbers that are not one list. Use idx.view(-1)")
    numbers, n = idx.detach().cpu().long(), space.total
    mark = zlib.crc32(numbers.contiguous().numpy().tobytes())
    if len({tuple(m) for m in space.comm.all_gather_json([idx.numel(), mark])}) > 1:
        raise call.refuse(
            f"picks rows of {space} by numbers that differ from rank to rank. "
            "Use the places of one process, the same on every rank; or a mask"
        )
    wrong = (numbers < -n) | (numbers >= n)
    if bool(wrong.any()):
        raise IndexError(f"index {int(numbers[wrong][0])} is out of bounds for {n} rows")
    numbers = torch.where(numbers < 0, numbers + n, numbers)
    places, order = space.places.cpu().sort()
    if not places.numel():
        none = numbers[:0]
        return Chosen(space, none.to(idx.device), none, numbers.numel(), mark)
    spot = torch.searchsorted(places, numbers).clamp_(max=places.numel() - 1)
    which = (places[spot] == numbers).nonzero().ravel()
    return Chosen(space, order[spot[which]].to(idx.device), which, numbers.numel(), mark)

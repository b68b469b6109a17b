"""Names of rows that stand after others: edge_index + offset, and edge_indexes of several kinds put together.

    rows      [a_own + b_own, …]    torch.cat of the rows of two kinds
    names     of b's rows, + a.size(0)

One process adds the offset. Here a name is that of an own row, or of one in a halo; so values stay, the
offset is remembered beside them, and both become places when it is known which rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .call import Call, names_of, put
from .space import Count, Halo, Joined, Names, Several, Space, Tag, agree, everywhere, here, tag_of


def shifted(call: Call) -> Tensor | None:
    """Names + a number of rows; None where this is no such sum."""
    x: Any = call.x
    by = call.get(1, "other")
    x, by = (by, x) if isinstance(x, int) else (x, by)
    tag = tag_of(x)
    names = names_of(tag)
    if tag is None or names is None or not isinstance(by, int) or call.kwargs.get("alpha", 1) != 1:
        return None
    if not isinstance(by, Count) and by != 0:
        return None
    out = x if call.in_place else x.clone()
    if everywhere(by) == 0:
        return put(out, tag)
    parts = names.parts if isinstance(names, Several) else [(tag.space.size, names, 0)]
    return put(out, Tag(tag.space, tag.dim, Several([(m, kind, begin + by) for m, kind, begin in parts])))


def together(names: Sequence[Names], sizes: Sequence[int]) -> Names:
    """Names of some arcs, then of others, `sizes` of them."""
    halos = {id(n.halo): n for n in names if n.halo is not None}
    if len({id(n.space) for n in names}) == 1 and len(halos) < 2:
        return next(iter(halos.values()), names[0])  # own rows' names are names of those with a halo too
    parts: list[tuple[int, Names, int]] = []
    for kind, size in zip(names, sizes, strict=True):
        parts += kind.parts if isinstance(kind, Several) else [(size, kind, 0)]
    return Several(parts)


def resolved(call: Call, index: Tensor, space: Space) -> tuple[Tensor, Names]:
    """(places, names) of what an index names among rows of `space`; refused where it names others."""
    tag = tag_of(index)
    names = names_of(tag)
    if tag is None or names is None:
        raise call.refuse(_OTHER.format(space))
    if not isinstance(names, Several):
        if not agree(names.space, space):
            raise call.refuse(_OTHER.format(space))
        return index, names
    kept = index.__dict__.get("_weft_resolved")
    if kept is None or kept[0] is not space:
        kept = index.__dict__["_weft_resolved"] = (space, *_resolve(call, index, tag, names, space))
    return kept[1], kept[2]


_OTHER = (
    "picks rows of {} by numbers, and on ranks these are not row numbers. "
    "Use a mask, or the rows of edge_index"
)


def _resolve(call: Call, index: Tensor, tag: Tag, names: Several, space: Space) -> tuple[Tensor, Names]:
    out: list[Tensor] = []
    halos: list[tuple[Halo, int]] = []
    away = space.size
    for values, (_, kind, offset) in zip(
        index.split([size for size, _, _ in names.parts], tag.dim), names.parts, strict=True
    ):
        begin = _begins(space, kind.space, offset)
        if begin is None:
            raise call.refuse(_OTHER.format(space))
        if kind.halo is None:
            out.append(values + begin)
            continue
        n = kind.space.size
        out.append(torch.where(values < n, values + begin, values + (away - n)))
        away += kind.halo.ids.numel()
        halos.append((kind.halo, begin))
    places = torch.cat(out, tag.dim)
    if not halos:
        return places, Names(space)
    return places, Names(space, Halo(space, torch.cat([halo.ids for halo, _ in halos]), Halos(halos)))


def _begins(space: Space, kind: Space, offset: int) -> int | None:
    """Where the rows of a kind begin among those of a space; None where they do not begin at this offset."""
    local = world = 0
    for part in space.parts if isinstance(space, Joined) else [space]:
        if (local, world) == (here(offset), everywhere(offset)) and agree(part, kind):
            return local
        local, world = local + part.size, world + part.total
    return None


class Halos:
    """Halos of several kinds of rows, one after the other, as one: each is read from its part of x.

    halos   (which, where its rows begin in x)
    """

    def __init__(self, halos: Sequence[tuple[Halo, int]]):
        self._halos = list(halos)

    def rows(self, x_own: Tensor) -> Tensor:
        """[n_own, w] → [Σ n_halo, w]"""
        parts = [halo.plan.rows(x_own.narrow(0, begin, halo.space.size)) for halo, begin in self._halos]
        return torch.cat(parts)

    def sums(self, y: Tensor, rows: int) -> Tensor:
        """The dual. [Σ n_halo, w] → [n_own, w]"""
        out = y.new_zeros(rows, y.shape[1])
        for (halo, begin), part in zip(
            self._halos, y.split([halo.ids.numel() for halo, _ in self._halos]), strict=True
        ):
            n = halo.space.size
            added = halo.plan.sums(part, n)
            out = out + torch.nn.functional.pad(added, (0, 0, begin, rows - begin - n))
        return out

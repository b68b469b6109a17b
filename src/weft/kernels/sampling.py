"""Neighbours picked at random, and the relabelling of what was picked.

Draw t of a vertex is a word of Philox4x32-10 with the counter (t, vertex) and a key for everything else
(seed, step, hop). So a sample depends neither on threads nor on ranks, nor on who asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import dry, native
from .dropout import philox

ALL = -1
"""The fan-out that takes every neighbour."""


@dataclass(frozen=True)
class Picked:
    """What was picked: row i's neighbours are `neighbours[indptr[i]:indptr[i + 1]]`."""

    indptr: Tensor
    """[rows + 1] int64."""
    neighbours: Tensor
    """[picks]: vertices, of the type of the graph's indices."""
    arcs: Tensor | None
    """[picks] int64: the place of each in `indices`, -1 for a loop; where asked for."""


def sample_rows(
    indptr: Tensor, indices: Tensor, rows: Tensor, vertices: Tensor, fanout: int, key: int,
    replace: bool = False, loops: bool = False, want_arcs: bool = False,
) -> Picked:  # fmt: skip
    """Up to `fanout` neighbours of each row, at random.

        rows      [m]  rows of the CSR (indptr, indices)
        vertices  [m]  the vertex that each row is: the random numbers are those of (key, vertex)
        fanout    at most so many a row, each set of them equally likely; ALL (-1): every neighbour, in order
        replace   draw `fanout` times, repeats allowed, from every row that is not empty
        loops     put the vertex itself before its picks (the CSR should then hold no loops)

    >>> indptr, indices = torch.tensor([0, 3, 3]), torch.tensor([5, 7, 9])
    >>> both = torch.tensor([0, 1])
    >>> sample_rows(indptr, indices, both, both, ALL, key=0).neighbours.tolist()
    [5, 7, 9]
    >>> sample_rows(indptr, indices, both, both, 2, key=0).indptr.tolist()
    [0, 2, 2]
    """
    _check(fanout)
    rows, vertices = _typed(rows, indices), _typed(vertices, indices)
    if not native.served(indices, rows):
        _refuse_dry(indptr, indices, rows)
        return _reference(indptr, indices, rows, vertices, fanout, key, replace, loops, want_arcs)
    begins, total = _begins(indptr, indices, rows, fanout, replace, loops)
    neighbours = indices.new_empty(total)
    arcs = indptr.new_empty(total) if want_arcs else None
    native.kernel("sample_rows", indices)(
        *map(native.address, (indptr, indices, rows, vertices)), rows.numel(), fanout, replace, loops, key,
        *map(native.address, (begins, neighbours, arcs)), native.threads(16 * total),
    )  # fmt: skip
    return Picked(begins, neighbours, arcs)


def sample_block(
    indptr: Tensor, indices: Tensor, targets: Tensor, fanout: int, key: int, place: Tensor,
    replace: bool = False, loops: bool = False, want_arcs: bool = False,
) -> tuple[Picked, Tensor, Tensor]:  # fmt: skip
    """`sample_rows` of rows that are vertices, and `relabel` of what it picks: (picked, sources, local).

    One worker gives labels while the others still draw.

    >>> indptr, indices = torch.tensor([0, 2, 2, 2]), torch.tensor([2, 1])
    >>> targets, place = torch.tensor([1, 0]), torch.zeros(4, dtype=torch.int64)
    >>> picked, sources, local = sample_block(indptr, indices, targets, ALL, 0, place)
    >>> picked.neighbours.tolist(), sources.tolist(), local.tolist()
    ([2, 1], [1, 0, 2], [2, 0])
    """
    _check(fanout)
    targets = _typed(targets, indices)
    if place.dtype != indices.dtype or place.numel() != indptr.numel():
        raise ValueError(
            f"place is {place.dtype} {tuple(place.shape)}, not {indices.dtype} [{indptr.numel()}]"
        )
    if not native.served(indices, targets, place):
        picked = sample_rows(indptr, indices, targets, targets, fanout, key, replace, loops, want_arcs)
        return picked, *relabel(targets, picked.neighbours, place)
    begins, total = _begins(indptr, indices, targets, fanout, replace, loops)
    neighbours, local = indices.new_empty(total), indices.new_empty(total)
    sources = indices.new_empty(targets.numel() + total)
    arcs = indptr.new_empty(total) if want_arcs else None
    found = native.kernel("sample_block", indices)(
        *map(native.address, (indptr, indices, targets)), targets.numel(), fanout, replace, loops, key,
        *map(native.address, (begins, neighbours, arcs)), place.numel() - 1,
        *map(native.address, (place, sources, local)), native.threads(16 * total),
    )  # fmt: skip
    return Picked(begins, neighbours, arcs), sources[:found], local


def _begins(
    indptr: Tensor, indices: Tensor, rows: Tensor, fanout: int, replace: bool, loops: bool
) -> tuple[Tensor, int]:
    """(where each row's picks begin, how many there are in all)."""
    begins = indptr.new_empty(rows.numel() + 1)
    total = native.kernel("sample_counts", indices)(
        native.address(indptr), native.address(rows), rows.numel(), fanout, replace, loops,
        native.address(begins),
    )  # fmt: skip
    return begins, total


def _check(fanout: int) -> None:
    if fanout < ALL:
        raise ValueError(f"a fan-out is 0 or more, or {ALL} for all neighbours, not {fanout}")


def _typed(x: Tensor, like: Tensor) -> Tensor:
    """x, contiguous and of the type of `like`. Conversions that do nothing still take time."""
    return x if x.dtype == like.dtype and x.is_contiguous() else x.to(like.dtype).contiguous()


def relabel(targets: Tensor, neighbours: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """(sources, local): every vertex once, the targets first; `sources[local] == neighbours`.

        targets     [m]  vertices; of one that comes twice, `local` names the last place
        neighbours  [e]
        place       [n + 1]  scratch of the same type, all 0 before its first use

    >>> sources, local = relabel(torch.tensor([4, 2]), torch.tensor([2, 0, 0]), torch.zeros(6).long())
    >>> sources.tolist(), local.tolist()
    ([4, 2, 0], [1, 2, 2])
    """
    targets = _typed(targets, neighbours)
    if place.dtype != neighbours.dtype or not place.numel():
        raise ValueError(f"place is {place.dtype} {tuple(place.shape)}, not {neighbours.dtype} [n + 1]")
    if native.served(neighbours, place):
        sources = neighbours.new_empty(targets.numel() + neighbours.numel())
        local = torch.empty_like(neighbours)
        found = native.kernel("relabel", neighbours)(
            native.address(targets), targets.numel(), native.address(neighbours), neighbours.numel(),
            place.numel() - 1, *map(native.address, (place, sources, local)),
        )  # fmt: skip
        return sources[:found], local
    _refuse_dry(targets, neighbours)
    m, e = targets.numel(), neighbours.numel()
    values, inverse = torch.unique(torch.cat([targets, neighbours]), return_inverse=True)
    places = torch.arange(m + e, device=values.device)
    label = torch.full_like(values, -1, dtype=torch.int64).scatter_reduce(0, inverse[:m], places[:m], "amax")
    first = torch.full_like(values, e, dtype=torch.int64).scatter_reduce(0, inverse[m:], places[:e], "amin")
    fresh = (label < 0).nonzero().ravel()
    fresh = fresh[torch.argsort(first[fresh])]
    label[fresh] = places[m : m + fresh.numel()]
    return torch.cat([targets, values[fresh]]), label[inverse[m:]].to(neighbours.dtype)


def _refuse_dry(*tensors: Tensor) -> None:
    if dry.is_dry(*tensors):
        raise ValueError("how much a sample holds is known once it is drawn: sampling takes no meta tensors")


def _reference(
    indptr: Tensor, indices: Tensor, rows: Tensor, vertices: Tensor, fanout: int, key: int,
    replace: bool, loops: bool, want_arcs: bool,
) -> Picked:  # fmt: skip
    """The very same picks in torch, a draw for all rows at a time."""
    rows, vertices = rows.long(), vertices.long()
    begin = indptr[rows]
    degree = indptr[rows + 1] - begin
    if fanout < 0:
        count = degree
    else:
        count = torch.where(degree > 0, fanout, 0) if replace else degree.clamp(max=fanout)
    width = int(count.max()) if count.numel() else 0
    columns = torch.arange(width, device=rows.device)
    chosen = columns.expand(rows.numel(), width).clone()
    drawn = (degree > 0) if replace and fanout >= 0 else (degree > fanout) & (fanout >= 0)
    who = drawn.nonzero().ravel()
    for t in range(fanout if who.numel() else 0):
        words = philox((t // 4, vertices[who] & 0xFFFFFFFF, vertices[who] >> 32, 0), key)[t % 4]
        if replace:
            chosen[who, t] = words * degree[who] >> 32
            continue
        # Floyd: the drawn position, or the last one allowed where that was drawn before.
        last = degree[who] - fanout + t
        position = words * (last + 1) >> 32
        taken = (chosen[who, :t] == position[:, None]).any(1)
        chosen[who, t] = torch.where(taken, last, position)
    there = columns < count[:, None]
    arcs = (begin[:, None] + chosen)[there]
    neighbours = indices[arcs]
    if loops:
        ends = count.cumsum(0)
        order = torch.arange(max(arcs.numel(), rows.numel()), device=rows.device)
        ranks = order[: rows.numel()]
        slots = order[: arcs.numel()] + torch.repeat_interleave(ranks + 1, count)
        home = ranks + ends - count
        whole, names = arcs.new_full((arcs.numel() + rows.numel(),), -1), neighbours
        whole[slots] = arcs
        neighbours = names.new_empty(whole.numel())
        neighbours[slots], neighbours[home] = names, vertices.to(names.dtype)
        arcs, count = whole, count + 1
    begins = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return Picked(begins, neighbours, arcs if want_arcs else None)

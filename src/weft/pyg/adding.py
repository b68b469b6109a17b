"""Rows added up where an index says: `scatter_add_` and its kin, which PyG aggregates with.

index is                 self                   what moves
names of own rows        rows of that space     nothing: an arc lies with its target
names with a halo        rows of that space     what was added up for other ranks' rows goes to them
other numbers            the same everywhere    every rank's sums are added up: a reduction over all rows
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..parallel import Fetch, Partial, Replicated, redistribute
from .call import Call, names_of, positive, put, rule
from .halo import extremes, gathered
from .naming import resolved
from .space import Halo, Several, Tag, agree, tag_of

_SUMS = ("sum", "add")


@rule("scatter_add", "scatter_reduce", "scatter", "index_add")
def scatter(call: Call) -> Any:
    out, dim = call.x, positive(call.get(1, "dim"), call.x.dim())
    index, src = call.get(2, "index"), call.get(3, "src", call.kwargs.get("source"))
    by = tag_of(index)
    tag = tag_of(src)
    if call.kwargs.get("alpha", 1) != 1:
        raise call.refuse("is given alpha. Multiply first")
    if by is None and tag is None:
        return _plain(call, out)
    if by is None or (tag is not None and not agree(tag.space, by.space)):
        by = _constant(call, index, tag)
    if by.dim != (0 if index.dim() == 1 else dim) or (tag is not None and tag.dim != dim):
        return _number_by_number(call, out, by, tag, dim)
    names = names_of(by)
    if names is None:
        return _everywhere(call, out, dim, index, src)
    here = tag_of(out)
    if isinstance(names, Several):
        if here is None:
            raise call.refuse("adds to rows by names of several kinds. Give num_nodes")
        index, names = resolved(call, index, here.space)
        call = call.given(2, "index", index)
    if here is not None and (here.dim != dim or not agree(here.space, names.space)):
        raise call.refuse(f"adds to rows of {here.space} by names of {names.space}")
    if out.shape[dim] != names.space.size:
        raise call.refuse(f"adds rows of {names.space} to {out.shape[dim]} rows. Give num_nodes")
    result = call.run() if names.halo is None else _away(call, out, dim, index, src, names.halo)
    return put(result, Tag(names.space, dim))


def _plain(call: Call, out: Tensor) -> Any:
    if tag_of(out) is not None:
        raise call.refuse("writes numbers into rows that are spread over ranks")
    return call.run()


def _constant(call: Call, index: Tensor, tag: Tag | None) -> Tag:
    """An index of nobody's making, such as all zeros, beside rows: it may not differ from rank to rank."""
    if tag is None or tag_of(index) is not None or (index.numel() and bool((index != 0).any())):
        raise call.refuse("adds rows that are spread over ranks by an index that is not")
    return Tag(tag.space, 0 if index.dim() == 1 else tag.dim)


def _number_by_number(call: Call, out: Tensor, by: Tag, tag: Tag | None, dim: int) -> Any:
    """Along another dim than that of the rows, every rank does it with its own."""
    here = tag_of(out)
    if by.names is not None or here is None or here.dim == dim or here.dim != by.dim:
        raise call.refuse("adds along a dim in a way that is not known")
    call.one_space([here.space, by.space, *([] if tag is None else [tag.space])])
    return put(call.run(), here)


def _how(call: Call) -> str:
    """sum, amax, …"""
    if call.name in ("scatter_add", "index_add"):
        return "sum"
    return str(call.get(4, "reduce", "write"))


def _away(call: Call, out: Tensor, dim: int, index: Tensor, src: Tensor, halo: Halo) -> Tensor:
    """Some rows lie on other ranks."""
    how = _how(call)
    room = list(out.shape)
    room[dim] = halo.size
    if how in _SUMS:
        if call.kwargs.get("include_self", True) is False:
            raise call.refuse("adds without what is there. Use scatter_add_")
        whole = src.new_zeros(room)
        whole = (
            whole.index_add(dim, index, src)
            if call.name == "index_add"
            else whole.scatter_add(dim, index, src)
        )
        return _write(call, out, out + gathered(whole, dim, halo))
    ends = how in ("amax", "amin") and isinstance(halo.plan, Fetch)
    if ends and not src.requires_grad and not call.kwargs.get("include_self", True):
        whole = src.new_zeros(room).scatter_reduce(dim, index, src, how, include_self=False)
        touched = torch.zeros(room, dtype=torch.bool, device=src.device).scatter_(dim, index, True)
        return _write(call, out, extremes(whole, touched, dim, halo, how == "amax"))
    raise call.refuse(f"({how}) into rows that lie on other ranks is not there, but for sums")


def _write(call: Call, out: Tensor, result: Tensor) -> Tensor:
    return out.copy_(result) if call.in_place else result


def _everywhere(call: Call, out: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """Slots that every rank has, such as one per graph or class: added up over all rows."""
    if tag_of(out) is not None:
        raise call.refuse("adds rows to rows by numbers that are no vertices'")
    if _how(call) not in _SUMS:
        raise call.refuse(f"({_how(call)}) over rows that are spread over ranks is not there, but for sums")
    mine = torch.zeros_like(out)
    mine = mine.index_add(dim, index, src) if call.name == "index_add" else mine.scatter_add(dim, index, src)
    total = redistribute(mine, Partial(call.comm), Replicated(call.comm), phase="sum")
    return _write(call, out, out + total)


@rule("index_copy")
def index_copy(call: Call) -> Any:
    """Own rows written where names say."""
    out, dim = call.x, positive(call.get(1, "dim"), call.x.dim())
    index, src = call.get(2, "index"), call.get(3, "source")
    by, tag = tag_of(index), tag_of(src)
    names = names_of(by)
    if by is None or names is None or names.halo is not None or out.shape[dim] != names.space.size:
        raise call.refuse("writes rows that are spread over ranks in a way that is not known")
    if tag is not None:
        call.one_space([by.space, tag.space])
    return put(call.run(), Tag(names.space, dim))

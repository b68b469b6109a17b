"""Rows picked by a mask or by names: x[mask], x[col], and x[row], which reads other ranks' rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .call import Call, names_of, positive, put, rule
from .halo import extended
from .local import adopt
from .naming import resolved
from .places import chosen
from .space import Count, Names, Several, Space, Tag, agree, cut, here, tag_of


class _Index:
    """An index taken apart: for each item the dim of x that it reads, and the dim of the result it makes."""

    def __init__(self, call: Call, x: Tensor, index: Any):
        items = list(index) if isinstance(index, tuple) else [index]
        items = [_as_index(call, i, x) for i in items]
        reads = [_reads(item) for item in items]
        if any(item is Ellipsis for item in items):
            at = next(k for k, item in enumerate(items) if item is Ellipsis)
            missing = x.dim() - sum(reads)
            items[at : at + 1] = [slice(None)] * missing
        else:
            items += [slice(None)] * (x.dim() - sum(reads))
        self.items = items
        self.dims, self.makes = [], []
        dim = made = 0
        for item in items:
            self.dims.append(dim)
            self.makes.append(made)
            dim += _reads(item)
            made += item.dim() if isinstance(item, Tensor) and item.dtype != torch.bool else _makes(item)
        self.advanced = [k for k, item in enumerate(items) if isinstance(item, Tensor)]

    def item_at(self, dim: int) -> int:
        """Which item reads a dim of x."""
        return next(k for k, d in enumerate(self.dims) if d == dim and _reads(self.items[k]))


def _as_index(call: Call, item: Any, x: Tensor) -> Any:
    if isinstance(item, (list, np.ndarray)):
        return torch.as_tensor(item, device=x.device)
    if item is None or item is Ellipsis or isinstance(item, (int, slice, Tensor)):
        return item
    raise call.refuse(f"is given a {type(item).__name__} as index")


def _reads(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1


def _makes(item: Any) -> int:
    if isinstance(item, Tensor):
        return 1
    return 1 if item is None or isinstance(item, slice) else 0


def _whole(item: Any, size: int) -> bool:
    """A slice that leaves nothing out."""
    return (
        isinstance(item, slice)
        and item.start in (None, 0)
        and item.step in (None, 1)
        and (item.stop is None or here(item.stop) == size)
    )


@rule("getitem")
def getitem(call: Call) -> Any:
    x, tag = call.args[0], tag_of(call.args[0])
    index = _Index(call, x, call.args[1])
    if len(index.advanced) > 1:
        return _several(call, x, tag, index)
    if index.advanced:
        k = index.advanced[0]
        return _picked(call, x, index.dims[k], index.items[k], index)
    if tag is None:
        return call.run()
    k = index.item_at(tag.dim)
    if not _whole(index.items[k], x.shape[tag.dim]):
        return _some(call, x, tag, index, k)
    names = tag.names
    if isinstance(names, tuple):
        first = index.items[index.item_at(0)]
        names = names[first] if isinstance(first, int) else names if _whole(first, 2) else None
        if names is None:
            raise call.refuse("takes part of edge_index in a way that is not known")
    return put(call.run(), Tag(tag.space, index.makes[k], names))


def _some(call: Call, x: Tensor, tag: Tag, index: _Index, k: int) -> Any:
    """x[begin:end] of rows that were put together, where these are whole parts."""
    item = index.items[k]
    if isinstance(item, slice) and item.step in (None, 1) and tag.names is None:
        start = 0 if item.start is None else item.start
        stop = Count(tag.space) if item.stop is None else item.stop
        if start >= 0 and stop >= 0 and (found := cut(tag.space, start, stop)) is not None:
            return put(call.run(), Tag(found, index.makes[k]))
    raise call.refuse(f"takes some rows of {tag.space} by their place. Use a mask")


def _picked(call: Call, x: Tensor, dim: int, picks: Tensor, index: _Index) -> Any:
    """One index of several rows, at `dim` of x."""
    tag, by = tag_of(x), tag_of(picks)
    made = index.makes[index.dims.index(dim) if picks.dtype != torch.bool else index.advanced[0]]
    if tag is None and by is not None:
        _must_fit(call, x, dim, picks, by)
        tag = tag_of(x)
    if tag is not None and tag.dim != dim:
        if by is not None:
            raise call.refuse("picks by rows in a dim that is not that of the rows")
        return _beside(call, x, tag, dim, picks, index)
    items = [picks if k == index.advanced[0] else item for k, item in enumerate(index.items)]
    if tag is None:  # x is the same everywhere: the rows are the index's
        assert by is not None
        taken = x[tuple(items)] if picks.dtype == torch.bool else _take(x, dim, picks, items)
        return put(taken, Tag(by.space, made + by.dim))
    if picks.dtype == torch.bool:
        if picks.dim() != 1:
            raise call.refuse("picks single numbers by a mask. Use where(mask, x, 0), or a mask of rows")
        if by is not None:
            call.one_space([tag.space, by.space])
        space = tag.space.subset(picks)
        return put(x[tuple(items)], Tag(space, made, _of_one_kind(call, tag.names)))
    return _by_names(call, x, tag, picks, items, made)


def _of_one_kind(call: Call, names: Any) -> Any:
    """Names that stay names where some are left out: those of several kinds are known by their place."""
    if any(isinstance(n, Several) for n in (names if isinstance(names, tuple) else (names,))):
        raise call.refuse(
            "takes some of the vertex numbers of several kinds. Do it before they are put together"
        )
    return names


def _must_fit(call: Call, x: Tensor, dim: int, picks: Tensor, by: Tag) -> None:
    """A tensor without a tag, read by rows: as many rows as there are here, or the same on every rank."""
    names = names_of(by)
    space = by.space if picks.dtype == torch.bool else names.space if names is not None else None
    if space is None:
        return
    if x.shape[dim] != space.size or (x.is_leaf and x.requires_grad):
        raise call.refuse(
            f"reads rows of {space} from a tensor of {x.shape[dim]} rows that was not shared. "
            "Share it with the graph, as an attribute of data"
        )
    adopt(x, space, dim)


def _by_names(call: Call, x: Tensor, tag: Tag, picks: Tensor, items: list[Any], made: int) -> Any:
    by = tag_of(picks)
    if by is None:
        space = chosen(call, picks, tag.space)
        items = [space.at if item is picks else item for item in items]
        return put(_take(x, tag.dim, space.at, items), Tag(space, made, _of_one_kind(call, tag.names)))
    places, names = resolved(call, picks, tag.space)
    if places is not picks:
        items = [places if item is picks else item for item in items]
    whole = x if names.halo is None else extended(x, tag.dim, names.halo)
    kept = _of_one_kind(call, tag.names) if isinstance(tag.names, Names) else None
    return put(_take(whole, tag.dim, places, items), Tag(by.space, made + by.dim, kept))


def _take(x: Tensor, dim: int, picks: Tensor, items: list[Any]) -> Tensor:
    """x[…, picks, …]; the backward of `index_select` adds, that of an index sorts first."""
    whole = len(items) == x.dim() and all(item is picks or item == slice(None) for item in items)
    return x.index_select(dim, picks) if whole and picks.dim() == 1 else x[tuple(items)]


def _beside(call: Call, x: Tensor, tag: Tag, dim: int, picks: Tensor, index: _Index) -> Any:
    """Columns of rows: the same on every rank."""
    names = tag.names
    if isinstance(names, tuple):
        order = picks.tolist()
        if picks.dtype == torch.bool or len(order) != 2 or not all(0 <= k < 2 for k in order):
            raise call.refuse("takes part of edge_index in a way that is not known")
        names = (names[order[0]], names[order[1]])
    k = index.item_at(tag.dim)
    if not _whole(index.items[k], x.shape[tag.dim]):
        raise call.refuse(f"takes some rows of {tag.space} by their place. Use a mask")
    return put(call.run(), Tag(tag.space, index.makes[k], names))


def _several(call: Call, x: Tensor, tag: Tag | None, index: _Index) -> Any:
    """x[a, b]: number by number; a, b of one space. The one at x's rows names own rows."""
    picks = [index.items[k] for k in index.advanced]
    tags = [tag_of(p) for p in picks]
    adjacent = index.advanced == list(range(index.advanced[0], index.advanced[-1] + 1))
    if any(t is None or p.dim() != 1 or p.dtype == torch.bool for t, p in zip(tags, picks, strict=True)):
        raise call.refuse("picks by several indices in a way that is not known")
    known = [t for t in tags if t is not None]
    space = call.one_space([t.space for t in known])
    for k, by in zip(index.advanced, known, strict=True):
        at_rows = tag is not None and index.dims[k] == tag.dim
        names = names_of(by)
        own = names is not None and names.halo is None and tag is not None and agree(names.space, tag.space)
        if at_rows != (names is not None) or (at_rows and not own):
            raise call.refuse("picks by several indices in a way that is not known")
    if tag is not None and index.item_at(tag.dim) not in index.advanced:
        raise call.refuse("picks by several indices in a way that is not known")
    return put(call.run(), Tag(space, index.makes[index.advanced[0]] if adjacent else 0))


@rule("index_select")
def index_select(call: Call) -> Any:
    x, dim, picks = call.x, call.get(1, "dim"), call.get(2, "index")
    items: list[Any] = [slice(None)] * x.dim()
    items[positive(dim, x.dim())] = picks
    index = _Index(call, x, tuple(items))
    made = Call(torch.Tensor.__getitem__, (x, tuple(items)), {}, call.home)
    return _picked(made, x, positive(dim, x.dim()), picks, index)


@rule("select")
def select(call: Call) -> Any:
    x, dim, k = call.x, call.get(1, "dim"), call.get(2, "index")
    items: list[Any] = [slice(None)] * x.dim()
    items[dim] = k
    return getitem(Call(torch.Tensor.__getitem__, (x, tuple(items)), {}, call.home))


@rule("narrow")
def narrow(call: Call) -> Any:
    x, dim, start, count = call.x, call.get(1, "dim"), call.get(2, "start"), call.get(3, "length")
    items: list[Any] = [slice(None)] * x.dim()
    items[dim] = slice(start, start + count)
    return getitem(Call(torch.Tensor.__getitem__, (x, tuple(items)), {}, call.home))


@rule("gather", "take_along_dim")
def gather(call: Call) -> Any:
    """Number by number along a dim that is not that of the rows."""
    x, tag = call.x, tag_of(call.x)
    picks = call.get(1, "indices") if call.name == "take_along_dim" else call.get(2, "index")
    dim = call.get(2, "dim") if call.name == "take_along_dim" else call.get(1, "dim")
    by = tag_of(picks)
    call.no_names()
    if tag is None or by is None or tag.dim != by.dim or positive(dim, x.dim()) == tag.dim:
        raise call.refuse("picks along rows that are spread over ranks")
    return put(call.run(), Tag(call.one_space([tag.space, by.space]), tag.dim))


@rule("setitem")
def setitem(call: Call) -> Any:
    x, value = call.args[0], call.args[2]
    index = _Index(call, x, call.args[1])
    by = next((t for k in index.advanced if (t := tag_of(index.items[k])) is not None), None)
    if tag_of(x) is None and by is not None:
        k = index.advanced[0]
        _must_fit(call, x, index.dims[k], index.items[k], by)
    tag = tag_of(x)
    if tag is None:
        if by is not None or tag_of(value) is not None:
            raise call.refuse("writes rows that are spread over ranks into a tensor that is not")
        return call.run()
    if tag.names is not None:
        return _rename(call, x, tag, index, value)
    if index.advanced and index.items[index.advanced[0]].dtype == torch.bool:
        return _set_where(call, x, tag, index, value)
    k = index.item_at(tag.dim)
    if not index.advanced:
        if not _whole(index.items[k], x.shape[tag.dim]):
            raise call.refuse(f"writes some rows of {tag.space} by their place. Use a mask")
        _values_fit(call, tag.space, value)
        return call.run()
    if by is None and index.advanced == [k]:
        return _set_chosen(call, x, tag, index, value)
    names = names_of(by)
    if index.advanced != [k] or by is None or names is None or not agree(names.space, tag.space):
        raise call.refuse(f"writes rows of {tag.space} by numbers, and on ranks these are not row numbers")
    if names.halo is not None and bool((index.items[k] >= tag.space.size).any()):
        raise call.refuse("writes rows that lie on other ranks")
    _values_fit(call, by.space, value)
    return call.run()


def _rename(call: Call, x: Tensor, tag: Tag, index: _Index, value: Any) -> Any:
    """edge_index[0] = names: one of its two rows, as `edge_index[0] += offset` writes it."""
    names, by = tag.names, tag_of(value)
    new = names_of(by)
    row = index.items[0]
    whole = len(index.items) == 2 and tag.dim == 1 and _whole(index.items[1], x.shape[1])
    if not (isinstance(names, tuple) and isinstance(row, int) and whole and new is not None):
        raise call.refuse("writes vertex numbers")
    assert by is not None
    call.one_space([tag.space, by.space])
    pair = (new, names[1]) if row in (0, -2) else (names[0], new)
    put(x, Tag(tag.space, 1, pair))
    return call.run()


def _set_where(call: Call, x: Tensor, tag: Tag, index: _Index, value: Any) -> Any:
    mask = index.items[index.advanced[0]]
    by = tag_of(mask)
    if len(index.advanced) > 1 or (by is not None and index.dims[index.advanced[0]] + by.dim != tag.dim):
        raise call.refuse("writes by several indices in a way that is not known")
    if by is not None:
        call.one_space([tag.space, by.space])
    if mask.dim() > 1:
        if isinstance(value, Tensor) and value.dim():
            raise call.refuse("writes single numbers by a mask. Use where(mask, value, x)")
    else:
        space = tag.space.subset(mask)
        _values_fit(call, space, value)
        if _of_all_rows(call, value, space):
            # One value for every row of all ranks, such as torch.rand(int(mask.sum())): each takes its own.
            return call.func(x, call.args[1], value[space.places.to(value.device)])
    return call.run()


def _set_chosen(call: Call, x: Tensor, tag: Tag, index: _Index, value: Any) -> Any:
    """x[idx] = value, by places in one process: every rank writes the rows that it has."""
    k = index.advanced[0]
    space = chosen(call, index.items[k], tag.space)
    _values_fit(call, space, value)
    if tag.dim == 0 and _of_all_rows(call, value, space):
        value = value[space.ids.to(value.device)]
    elif tag.dim and isinstance(value, Tensor) and value.dim() and tag_of(value) is None:
        raise call.refuse("writes rows by their place in a dim that is not the first. Use a mask")
    items = [space.at if i == k else item for i, item in enumerate(index.items)]
    return call.func(x, tuple(items), value)


def _of_all_rows(call: Call, value: Any, space: Space) -> bool:
    if not isinstance(value, Tensor) or tag_of(value) is not None or not value.dim() or value.shape[0] == 1:
        return False
    if value.shape[0] != space.total:
        raise call.refuse(
            f"writes {value.shape[0]} rows that are not spread where {space.total} are on all ranks"
        )
    return True


def _values_fit(call: Call, space: Space, value: Any) -> None:
    tag = tag_of(value)
    if tag is not None:
        call.one_space([space, tag.space])


@rule("masked_select")
def masked_select(call: Call) -> Any:
    return getitem(Call(torch.Tensor.__getitem__, (call.x, call.get(1, "mask")), {}, call.home))


@rule("nonzero", "argwhere")
def nonzero(call: Call) -> Any:
    """Where a mask of rows holds: names of own rows."""
    x, tag = call.x, tag_of(call.x)
    if tag is None or x.dim() != 1 or tag.names is not None:
        raise call.refuse("looks for numbers that are not zero in a tensor that is no mask of rows")
    mask = x if x.dtype == torch.bool else x != 0
    found = Tag(tag.space.subset(mask), 0, Names(tag.space))
    return put(call.run(), found)


@rule("embedding")
def embedding(call: Call) -> Any:
    tag = tag_of(call.x)
    call.no_names()
    if tag is None or tag_of(call.get(1, "weight")) is not None:
        raise call.refuse("looks up rows that are spread over ranks")
    return put(call.run(), Tag(tag.space, tag.dim))


@rule("item", "int", "float", "bool", "index", "tolist", "numpy", "array", "iter", "complex", "contains")
def leave(call: Call) -> Any:
    """Numbers that leave torch would be this rank's."""
    name = str(getattr(call.func, "__name__", ""))
    if name in ("int", "float", "bool"):  # casts of a tensor, not Python's questions
        tag = tag_of(call.x)
        if tag is not None and name != "int":
            call.no_names()
        return put(call.run(), tag)
    if not call.tagged():
        return call.run()
    raise call.refuse("of rows that are spread over ranks gives this rank's only. Use job.collect(x)")

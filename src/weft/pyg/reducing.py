"""Sums, means, extremes and norms over rows: over those of all ranks.

y = Σ_k x[k]     forward: this rank's sum, then all-reduce; backward: all-reduce of the gradient, which
                 every rank has a part of, for every rank used y
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..parallel import Partial, Replicated, redistribute
from .call import Call, positive, put, rule
from .space import Names, Several, Tag, tag_of


def total(call: Call, x: Tensor) -> Tensor:
    """Σ over ranks, with gradient."""
    if x.dtype == torch.bool or not (x.is_floating_point() or x.dtype in (torch.int32, torch.int64)):
        x = x.long()
    return redistribute(x, Partial(call.comm), Replicated(call.comm), phase="sum")


def _dims(call: Call, place: int = 1) -> list[int]:
    """The dims that go, from the front; all where none is named."""
    given = call.get(place, "dim", call.kwargs.get("axis"))
    if given is None or (isinstance(given, (tuple, list)) and not given):
        return list(range(call.x.dim()))
    return [positive(d, call.x.dim()) for d in ([given] if isinstance(given, int) else given)]


def _local(call: Call, tag: Tag, dims: Sequence[int], keepdim: bool) -> Any:
    """The rows stay: every rank has its own."""
    dim = tag.dim if keepdim else tag.dim - sum(d < tag.dim for d in dims)
    return put(call.run(), Tag(tag.space, dim))


def _rows_each(x: Tensor, tag: Tag, dims: Sequence[int]) -> int:
    """How many numbers one row puts into a sum over `dims`."""
    return math.prod(x.shape[d] for d in dims if d != tag.dim)


@rule("sum", "nansum", "count_nonzero")
def sums(call: Call) -> Any:
    tag, dims = tag_of(call.x), _dims(call)
    if tag is None:
        return call.run()
    call.no_names()
    if tag.dim not in dims:
        return _local(call, tag, dims, bool(call.get(2, "keepdim", False)))
    return total(call, call.run())


@rule("mean")
def mean(call: Call) -> Any:
    x, tag, dims = call.x, tag_of(call.x), _dims(call)
    if tag is None:
        return call.run()
    call.no_names()
    keepdim = bool(call.get(2, "keepdim", False))
    if tag.dim not in dims:
        return _local(call, tag, dims, keepdim)
    whole = total(call, x.sum(dims, keepdim, dtype=call.kwargs.get("dtype")))
    return whole / (tag.space.total * _rows_each(x, tag, dims))


@rule("var", "std", "var_mean", "std_mean")
def var(call: Call) -> Any:
    """var = Σ (x − mean)² / (N − correction)"""
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    call.no_names()
    unbiased = call.kwargs.get("unbiased", True)
    place = 1
    if len(call.args) > 1 and isinstance(call.args[1], bool):  # x.std(unbiased)
        unbiased, place = call.args[1], 99
    dims, keepdim = _dims(call, place), bool(call.kwargs.get("keepdim", False))
    if len(call.args) > 2:
        raise call.refuse("is called in a way that is not known. Name its arguments")
    if tag.dim not in dims:
        out = call.run()
        kept = tag.dim if keepdim else tag.dim - sum(d < tag.dim for d in dims)
        return put(out, Tag(tag.space, kept))
    correction = call.kwargs.get("correction", 1 if unbiased else 0)
    count = tag.space.total * _rows_each(x, tag, dims)
    centre = total(call, x.sum(dims, keepdim=True)) / count
    spread = total(call, (x - centre).square().sum(dims, keepdim)) / max(count - correction, 0)
    out = spread.sqrt() if call.name.startswith("std") else spread
    return (out, centre if keepdim else centre.squeeze(tuple(dims))) if call.name.endswith("_mean") else out


@rule("any", "all")
def truth(call: Call) -> Any:
    tag, dims = tag_of(call.x), _dims(call)
    if tag is None:
        return call.run()
    call.no_names()
    if tag.dim not in dims:
        return _local(call, tag, dims, bool(call.get(2, "keepdim", False)))
    out = call.run()
    return call.comm.all_reduce(out, "max" if call.name == "any" else "min", phase="sum")


@rule("max", "min", "amax", "amin")
def extreme(call: Call) -> Any:
    """The largest of all ranks. Where several are, the gradient is shared out, as torch does it."""
    x, tag = call.x, tag_of(call.x)
    other = call.get(1, "other")
    if isinstance(other, Tensor):
        from .local import elementwise

        return elementwise(call)
    if tag is None:
        return call.run()
    if tag.names is not None:
        return _last_name(call, x, tag)
    dims = _dims(call)
    keepdim = bool(call.get(2, "keepdim", False))
    if tag.dim not in dims:
        return _local(call, tag, dims, keepdim)
    if call.name in ("max", "min") and call.get(1, "dim") is not None:
        raise call.refuse("over rows that are spread over ranks tells which row. Use amax or amin")
    largest = call.name.endswith("max")
    if x.shape[tag.dim]:
        here = x.detach().amax(dims, keepdim=True) if largest else x.detach().amin(dims, keepdim=True)
    else:
        shape = [1 if d in dims else s for d, s in enumerate(x.shape)]
        limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        worst = (float("-inf") if largest else float("inf")) if x.is_floating_point() else (
            limits.min if largest else limits.max
        )  # fmt: skip
        here = x.new_full(shape, worst)
    best = call.comm.all_reduce(here.contiguous(), "max" if largest else "min", phase="sum")
    if x.requires_grad and torch.is_grad_enabled():
        hit = (x == best).to(x.dtype)
        best = total(call, (x * hit).sum(dims, keepdim=True)) / total(call, hit.sum(dims, keepdim=True))
    return best if keepdim else best.squeeze(tuple(dims))


def _last_name(call: Call, x: Tensor, tag: Tag) -> Any:
    """`int(edge_index.max()) + 1` asks for the number of rows: as many as there are here.

    One process would leave out vertices after the last one that has an arc; this is refused, not imitated.
    """
    pairs = [(x, tag.names)] if isinstance(tag.names, Names) else list(zip(x, tag.names or (), strict=True))
    spaces = {None if isinstance(names, Several) else names.space for _, names in pairs}
    if None in spaces or call.name != "max" or call.get(1, "dim") is not None or len(spaces) != 1:
        raise call.refuse("looks for one of the vertex numbers, which differ from rank to rank")
    space = spaces.pop()
    assert space is not None
    most = max((int(names.numbers(v).max()) for v, names in pairs if v.numel()), default=-1)
    last = call.comm.all_reduce(x.new_tensor([most], dtype=torch.int64), "max", phase="sum")
    if int(last) != space.total - 1:
        raise call.refuse(
            f"is {int(last)}, and there are {space.total} vertices: those after it would be left out. "
            "Give num_nodes"
        )
    if space not in call.home.numbered:
        call.home.numbered.append(space)
    return x.new_tensor(space.size - 1)


@rule("norm", "linalg_norm", "linalg_vector_norm", "vector_norm")
def norm(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    call.no_names()
    order = call.get(1, "p", call.kwargs.get("ord", None if call.name == "linalg_norm" else 2))
    given = call.get(2, "dim")
    dims = _dims(call, 2) if given is not None else list(range(x.dim()))
    keepdim = bool(call.get(3, "keepdim", False))
    if tag.dim not in dims:
        return _local(call, tag, dims, keepdim)
    if call.name == "linalg_norm" and x.dim() == 2 and given is None and order is not None:
        raise call.refuse("of a matrix, with an order, is not there. Use x.norm()")
    if order not in (2, 2.0, None, "fro", 1, 1.0):
        raise call.refuse(f"of order {order} over rows that are spread over ranks is not there. Use 1 or 2")
    if order in (1, 1.0):
        return total(call, x.abs().sum(dims, keepdim))
    return total(call, x.square().sum(dims, keepdim)).sqrt()


@rule("logsumexp", "prod")
def other(call: Call) -> Any:
    tag, dims = tag_of(call.x), _dims(call)
    if tag is None:
        return call.run()
    call.no_names()
    if tag.dim in dims:
        raise call.refuse(f"over rows of {tag.space}, which are spread over ranks, is not there")
    return _local(call, tag, dims, bool(call.get(2, "keepdim", False)))


@rule("bincount")
def bincount(call: Call) -> Any:
    """How often each number stands in the rows of all ranks."""
    x, tag = call.x, tag_of(call.x)
    weights = call.get(1, "weights")
    if tag is None:
        return call.run()
    call.no_names()
    most = torch.stack([x.max() if x.numel() else x.new_tensor(-1)])
    least = max(int(call.get(2, "minlength", 0)), int(call.comm.all_reduce(most, "max", phase="sum")) + 1)
    return total(call, torch.bincount(x, weights, least))

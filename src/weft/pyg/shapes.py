"""Where the dim of the rows goes when a tensor is seen in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .call import Call, positive, put, rule
from .local import tag_of_shape
from .naming import together
from .space import Count, Joined, Names, Space, Tag, Times, joined, set_tag, tag_of


@rule("size", "shape.get")
def size(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    sizes: list[int] = list(x.shape)
    if tag is not None:
        sizes[tag.dim] = Count(tag.space)
    dim = call.get(1, "dim")
    return torch.Size(sizes) if dim is None else sizes[dim]


@rule("numel", "nelement")
def numel(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    return Count(tag.space, math.prod(s for d, s in enumerate(x.shape) if d != tag.dim))


@rule("len")
def length(call: Call) -> Any:
    tag = tag_of(call.x)
    if tag is not None and tag.dim == 0:
        raise call.refuse("of rows that are spread over ranks is this rank's. Use x.size(0)")
    return call.run()


@rule(
    "t",
    "T.get",
    "mT.get",
    "H.get",
    "transpose",
    "permute",
    "movedim",
    "moveaxis",
    "swapaxes",
    "swapdims",
    "unsqueeze",
)
def turned(call: Call) -> Any:
    tag = tag_of(call.x)
    if tag is None:
        return call.run()
    if isinstance(tag.names, tuple) and call.name != "unsqueeze":
        raise call.refuse("turns edge_index. Take its rows with row, col = edge_index")
    # What becomes of a tensor whose dims have different sizes tells where a dim goes.
    probe = torch.empty(tuple(range(2, call.x.dim() + 2)), device="meta")
    went = call.func(probe, *call.args[1:], **call.kwargs)
    names = tag.names if isinstance(tag.names, Names) else None
    return put(call.run(), Tag(tag.space, list(went.shape).index(tag.dim + 2), names))


@rule("squeeze")
def squeeze(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    asked = call.get(1, "dim")
    asked = range(x.dim()) if asked is None else [asked] if isinstance(asked, int) else asked
    # A rank with one row keeps it.
    dims = sorted(d for d in {positive(d, x.dim()) for d in asked} if d != tag.dim and x.shape[d] == 1)
    names = tag.names if isinstance(tag.names, Names) else None
    return put(x.squeeze(tuple(dims)), Tag(tag.space, tag.dim - sum(d < tag.dim for d in dims), names))


@rule("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel")
def view(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    if call.name == "view" and len(call.args) == 2 and isinstance(call.args[1], torch.dtype):
        raise call.refuse("reads numbers as another type")
    if isinstance(tag.names, tuple):
        if call.name in ("view", "reshape") and list(call.args[1:]) == [2, -1]:
            return put(call.run(), tag)
        raise call.refuse("changes the shape of edge_index. Take its rows with row, col = edge_index")
    asked = call.args[1] if len(call.args) == 2 else call.args[1:]
    if call.name in ("view", "reshape") and isinstance(asked, (tuple, list)) and not x.numel():
        out = x.reshape([s if s != -1 else _left(x, asked) for s in asked])
    else:
        out = call.run()
    asked = asked if isinstance(asked, (tuple, list)) else ()
    space, dim = _reshaped(call, x, tag, out, asked)
    return put(out, Tag(space, dim, tag.names))


def _left(x: Tensor, asked: Sequence[int]) -> int:
    """What −1 stands for where there are no rows: torch cannot tell, the other dims can."""
    known = math.prod(s for s in asked if s not in (-1, 0))
    return 0 if 0 not in asked else math.prod(s for s in x.shape if s) // max(known, 1)


def _reshaped(call: Call, x: Tensor, tag: Tag, out: Tensor, asked: Sequence[Any]) -> tuple[Space, int]:
    """Which rows, in which dim, a tensor has in its new shape."""
    space, rows = tag.space, x.shape[tag.dim]
    before = math.prod(x.shape[: tag.dim])
    after = math.prod(x.shape[tag.dim + 1 :])
    same = [
        d
        for d in range(out.dim())
        if out.shape[d] == rows
        and math.prod(out.shape[:d]) == before
        and math.prod(out.shape[d + 1 :]) == after
    ]
    marked = [d for d, s in enumerate(asked) if isinstance(s, Count) or s == -1]
    for candidates in ([d for d in marked if d in same], [tag.dim] if tag.dim in same else [], same):
        if candidates:
            return space, candidates[0]
    if before == 1 and tag.dim == 0 and out.dim():
        rest = math.prod(out.shape[1:])
        if rest and after % rest == 0 and out.shape[0] == rows * (after // rest):
            return space.times(after // rest), 0
        if isinstance(space, Times) and rest == after * space.k and out.shape[0] == space.of.size:
            return space.of, 0
        if isinstance(space, Joined) and out.dim() > 1 and math.prod(out.shape[2:]) == after:
            part, times = space.parts[0], len(space.parts)
            if tuple(out.shape[:2]) == (times, part.size) and all(p is part for p in space.parts):
                return part, 1
    if out.dim() and out.shape[0] == before * rows and math.prod(out.shape[1:]) == after:
        return joined([space] * before), 0
    raise call.refuse(
        f"{tuple(x.shape)} → {tuple(out.shape)} mixes rows of {space} that lie on different ranks"
    )


@rule("expand", "expand_as", "broadcast_to")
def expand(call: Call) -> Any:
    x, tag, out = call.x, tag_of(call.x), call.run()
    if tag is not None:
        if isinstance(tag.names, tuple):
            raise call.refuse("changes the shape of edge_index")
        return put(out, tag.at(out.dim() - (x.dim() - tag.dim)))
    if call.name == "expand_as":
        other = tag_of(call.get(1, "other"))
        return put(out, None if other is None else Tag(other.space, other.dim))
    shape = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (tuple, list)) else call.args[1:]
    return put(out, tag_of_shape(call, shape))


@rule("repeat", "tile")
def repeat(call: Call) -> Any:
    x, tag, out = call.x, tag_of(call.x), call.run()
    reps = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (tuple, list)) else call.args[1:]
    if tag is None:
        return put(out, tag_of_shape(call, reps) if 1 in x.shape or x.dim() == 0 else None)
    dim = tag.dim + out.dim() - x.dim()
    if isinstance(tag.names, tuple) or reps[tag.dim + len(reps) - x.dim()] != 1:
        raise call.refuse(f"repeats all rows of {tag.space}, which lie on different ranks")
    return put(out, tag.at(dim))


@rule("repeat_interleave")
def repeat_interleave(call: Call) -> Any:
    x, tag, times, dim = call.x, tag_of(call.x), call.get(1, "repeats"), call.get(2, "dim")
    if tag is None or not isinstance(times, int) or dim is None:
        raise call.refuse("repeats rows in a way that is not known")
    space = tag.space.times(times) if positive(dim, x.dim()) == tag.dim else tag.space
    return put(call.run(), Tag(space, tag.dim, tag.names if isinstance(tag.names, Names) else None))


@rule("chunk", "split", "unbind", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split")
def split(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    if tag is None:
        return call.run()
    place = 1 if call.name == "unbind" else 2
    dim = positive(call.get(place, "dim", 0), x.dim())
    if dim == tag.dim:
        raise call.refuse(f"parts rows of {tag.space}, which are spread over ranks")
    parts = call.run()
    gone = call.name == "unbind"
    for k, part in enumerate(parts):
        names = tag.names
        if isinstance(names, tuple):
            names = names[k] if gone else None
        set_tag(part, Tag(tag.space, tag.dim - (gone and dim < tag.dim), names))
    return parts


@rule("cat", "concat", "concatenate")
def cat(call: Call) -> Any:
    parts = call.get(0, "tensors")
    dim = call.get(1, "dim", call.kwargs.get("axis", 0))
    tagged = [(t, tag) for t in parts if (tag := tag_of(t)) is not None]
    dims = {tag.dim for _, tag in tagged}
    if len(dims) != 1:
        raise call.refuse("puts together tensors whose rows are spread over ranks in different dims")
    d = dims.pop()
    out = call.run()
    if positive(dim, out.dim()) != d:
        space = call.one_space([tag.space for _, tag in tagged])
        if any(t.dim() == out.dim() and t.shape[d] != space.size for t in parts):
            raise call.refuse(f"puts rows of {space} beside a tensor that has other rows")
        call.no_names()
        return put(out, Tag(space, d))
    spaces = []
    for t in parts:
        if t.dim() != out.dim():
            continue  # torch lets empty tensors of one dim pass
        if (tag := tag_of(t)) is not None:
            spaces.append(tag.space)
            continue
        # Loops of all vertices, whose number somebody has from `edge_index.max()`.
        known = next((v for v in call.home.numbered if v.size == t.shape[d]), None)
        if known is None or any(known is space for space in spaces):
            raise call.refuse("puts together rows that are spread over ranks with others that are not")
        spaces.append(known)
    names = _joined_names(call, [tag.names for _, tag in tagged], [tag.space.size for _, tag in tagged])
    return put(out, Tag(joined(spaces), d, names))


def _joined_names(call: Call, names: list[Any], sizes: list[int]) -> Any:
    """What all of them name: of one kind, or of several."""
    if any(n is None for n in names):
        if any(n is not None for n in names):
            raise call.refuse("puts vertex numbers beside other numbers")
        return None
    if any(isinstance(n, tuple) for n in names):
        pairs = [n if isinstance(n, tuple) else (n, n) for n in names]
        return tuple(together([pair[k] for pair in pairs], sizes) for k in range(2))
    return together(names, sizes)


@rule("stack")
def stack(call: Call) -> Any:
    parts = call.get(0, "tensors")
    tags = [tag for t in parts if (tag := tag_of(t)) is not None]
    if len({tag.dim for tag in tags}) != 1 or len(tags) != len(parts):
        raise call.refuse("puts together rows that are spread over ranks with others that are not")
    space = call.one_space([tag.space for tag in tags])
    out = call.run()
    dim = positive(call.get(1, "dim", 0), out.dim())
    names: Any = None
    if any(tag.names is not None for tag in tags):
        if dim != 0 or len(tags) != 2 or not all(isinstance(tag.names, Names) for tag in tags):
            raise call.refuse("puts vertex numbers together in a way that is not known")
        names = (tags[0].names, tags[1].names)
    return put(out, Tag(space, tags[0].dim + (dim <= tags[0].dim), names))

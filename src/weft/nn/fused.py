"""The shapes of attention that the fused kernels know, found in what its entries are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .adjacency import Adjacency
from .nodes import Apply, Dot, Drop, Entries, Given, Rep, Softmax, is_entry

_UNKNOWN = (
    "no kernel has this shape; known are X @ Y.T with factors, and leaky_relu(rep(u) + rep(v).T + arcs(e))"
)


@dataclass
class _Factors:
    """A product, taken apart: dots and others above the line, vectors and numbers above or below it."""

    dots: list[Dot] = field(default_factory=list)
    vectors: list[tuple[Rep, bool]] = field(default_factory=list)
    numbers: list[tuple[Any, bool]] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    fits: bool = True


def _factors(node: Any, plain: bool, above: bool = True, found: _Factors | None = None) -> _Factors:
    found = _Factors() if found is None else found
    if isinstance(node, Apply) and node.name == "mul":
        for arg in node.args:
            _factors(arg, plain, above, found)
    elif isinstance(node, Apply) and node.name == "div" and not node.options:
        _factors(node.args[0], plain, above, found)
        _factors(node.args[1], plain, not above, found)
    elif isinstance(node, Apply) and node.name == "neg":
        found.numbers.append((-1.0, True))
        _factors(node.args[0], plain, above, found)
    elif isinstance(node, Entries):
        found.fits &= plain
    elif isinstance(node, Rep):
        found.vectors.append((node, above))
    elif isinstance(node, Dot) and above:
        found.dots.append(node)
    elif not is_entry(node):
        found.numbers.append((node, above))
    else:
        found.others.append(node)
    return found


def recognise(A: Adjacency, node: Any, x: Tensor) -> Tensor | str:
    """Ψ x through the fused kernels, where Ψ has one of their shapes; else why not."""
    drop = None
    if isinstance(node, Drop):
        drop, node = (node.p, node.stream), node.of
    softmax = isinstance(node, Softmax)
    node = node.of if softmax else node
    found = _factors(node, A.entries.plain)
    if not found.fits:
        return "A has values of its own"
    if len(found.dots) == 1 and not found.others:
        return _dot(A, found, x, softmax, drop)
    if len(found.others) == 1 and not (found.dots or found.vectors or found.numbers):
        return _additive(A, found.others[0], x, softmax, drop)
    return _UNKNOWN


def _dot(A: Adjacency, found: _Factors, x: Tensor, softmax: bool, drop: Any) -> Tensor | str:
    """Vectors on the row side and numbers scale the row operand; those on the column side are the gain."""
    dot = found.dots[0]
    heads = dot.heads
    if A.in_columns(dot.y):
        return "X lies in columns: its dot products are added up over the ranks first"
    if x.shape[1] % heads:
        return f"{heads} heads do not divide the {x.shape[1]} columns of X"
    scale: Any = None
    gain: Any = None
    for vector, above in found.vectors:
        if vector.x.shape[1] not in (1, heads):
            return f"a vector has {vector.x.shape[1]} columns for {heads} heads"
        side = A.own(vector.x) if vector.side == "row" else vector.x
        factor = side if above else 1 / side
        if vector.side == "row":
            scale = factor if scale is None else scale * factor
        else:
            gain = factor if gain is None else gain * factor
    for number, above in found.numbers:
        if isinstance(number, Tensor) and number.numel() not in (1, heads):
            return f"a factor has {number.numel()} numbers for {heads} heads"
        factor = number if above else 1 / number
        scale = factor if scale is None else scale * factor
    row = A.own(dot.x)
    if scale is not None:
        scale = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
        scale = (scale if scale.dim() == 2 else scale.view(1, -1)).expand(row.shape[0], heads)
    gain = None if gain is None else gain.to(x.dtype).expand(dot.y.shape[0], heads)
    return A.attend(
        row, dot.y, x, gain=gain, scale=scale, kind="dot", heads=heads, softmax=softmax, drop=drop
    )


def _additive(A: Adjacency, node: Any, x: Tensor, softmax: bool, drop: Any) -> Tensor | str:
    slope = 1.0
    if isinstance(node, Apply) and node.name == "leaky_relu":
        names = dict(zip(("input", "negative_slope", "inplace"), node.args, strict=False)) | node.options
        slope, node = names.get("negative_slope", 0.01), names["input"]
        if not isinstance(slope, float | int) or slope < 0:
            return f"a slope of {slope}; the kernels know numbers from 0"
    terms = _terms(node)
    sides = {a.side: a.x for a in terms if isinstance(a, Rep)}
    given = [a.e for a in terms if isinstance(a, Given)]
    if len(terms) < 2 or len(sides) + len(given) != len(terms) or len(given) > 1:
        return _UNKNOWN
    if len(sides) != 2:
        return "the sum is not one of rep(u) and rep(v).T"
    heads = max(u.shape[1] for u in [*sides.values(), *given])
    if any(u.shape[1] not in (1, heads) for u in [*sides.values(), *given]) or x.shape[1] % heads:
        return f"{heads} heads do not fit the sides or the {x.shape[1]} columns of X"
    row, column = (sides[side].to(x.dtype).expand(-1, heads) for side in ("row", "column"))
    bias = given[0].to(x.dtype).expand(-1, heads) if given else None
    return A.attend(
        row, column, x, kind="additive", heads=heads, slope=slope, softmax=softmax, drop=drop, bias=bias
    )


def _terms(node: Any) -> list[Any]:
    """The summands of a sum."""
    if isinstance(node, Apply) and node.name == "add" and not node.options and len(node.args) == 2:
        return [*_terms(node.args[0]), *_terms(node.args[1])]
    return [node]

"""What an entry (i, j) of a virtual matrix is made of, and its numbers where A has entries.

A row operand has a row for each source, as a column operand has; A knows which of them are its rows' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..kernels import Stream
from .adjacency import Adjacency


@dataclass(eq=False, frozen=True)
class Rep:
    """x[i] (side "row") or x[j] (side "column")."""

    x: Tensor
    side: str


@dataclass(eq=False, frozen=True)
class Dot:
    """⟨x[i], y[j]⟩ in each head."""

    x: Tensor
    y: Tensor
    heads: int


@dataclass(eq=False, frozen=True)
class Apply:
    """An elementwise function of other entries and of numbers."""

    name: str
    function: Callable[..., Tensor]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


class Entries:
    """a_ij itself."""


@dataclass(eq=False, frozen=True)
class Given:
    """Numbers that A's entries have already, [arcs, heads]."""

    e: Tensor


@dataclass(eq=False, frozen=True)
class Turned:
    """Entry (j, i) of what is sampled at A, seen at (i, j) of Aᵀ."""

    A: Adjacency
    of: Any


@dataclass(eq=False, frozen=True)
class Softmax:
    of: Any


@dataclass(eq=False, frozen=True)
class Drop:
    of: Any
    p: float
    stream: Stream


def is_entry(x: object) -> bool:
    return isinstance(x, Rep | Dot | Apply | Entries | Given | Turned | Softmax | Drop)


def numbers_at(A: Adjacency, node: Any, known: dict[Any, Any]) -> Tensor:
    """The numbers of a node at A's entries, [entries, heads]; `known` are those found before."""
    found = _evaluate(A, node, known)
    if not isinstance(found, Tensor) or found.dim() < 2:
        likes = [v.dtype for v in known.values() if isinstance(v, Tensor)] or [torch.get_default_dtype()]
        found = A.entries.values(found.dtype if isinstance(found, Tensor) else likes[0]) * found
    return found


def _evaluate(A: Adjacency, node: Any, known: dict[Any, Any]) -> Any:
    """The numbers of a node at A's entries, [entries, heads]; what occurs twice is computed once."""
    if not is_entry(node):
        return node
    key = (id(node.x), node.side) if isinstance(node, Rep) else id(node)
    if key not in known:
        known[key] = _compute(A, node, known)
    return known[key]


def _compute(A: Adjacency, node: Any, known: dict[Any, Any]) -> Any:
    if isinstance(node, Rep):
        x = A.own(node.x) if node.side == "row" else node.x
        return A.entries.spread(x, node.side)
    if isinstance(node, Dot):
        return A.entries.dots(A.own(node.x), node.y, node.heads)
    if isinstance(node, Given):
        return node.e
    if isinstance(node, Turned):
        return node.A.entries.turned(numbers_at(node.A, node.of, {}))
    if isinstance(node, Entries):
        return 1.0 if A.entries.plain else A.entries.values()
    if isinstance(node, Softmax):
        return A.entries.softmax(numbers_at(A, node.of, known))
    if isinstance(node, Drop):
        return A.entries.drop(numbers_at(A, node.of, known), node.p, node.stream)
    args = [A.entries.number(a) if isinstance(a, Tensor) else _evaluate(A, a, known) for a in node.args]
    if not any(isinstance(a, Tensor) for a in args):  # numbers alone: torch's functions want a tensor
        args[0] = torch.tensor(args[0], device=A.rows.device)
    if node.name == "mul" and isinstance(node.args[0], Entries):
        args = [args[0].to(args[1]) if isinstance(args[0], Tensor) else args[0], *args[1:]]
        return args[1] if isinstance(args[0], float) else torch.mul(*args)
    return node.function(*args, **node.options)

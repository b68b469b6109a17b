"""An edge_index as weft's operator: built once for a tensor and its version, in one process and on ranks.

    edge_index [2, m]    arc e goes from edge_index[0, e] to edge_index[1, e]
    A [t, s]             row = target, column = source; numbers per arc go to A's entries by `order`

What is built is remembered beside the tensor that it was built from, and goes with it. A tensor that was
written to since, or another one, is looked at anew; one of the same numbers finds the pattern again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..kernels import CSR
from ..parallel import Operator
from ..parallel.source import Arcs
from .space import Halo, Names, Root, Space, Tag, tag_of

FEATURES = "features"
"""The name under which A's entries carry edge_attr."""


class Unfit(Exception):
    """Why a call runs as PyG's own: what weft's kernels do not do, as the end of a sentence."""


class Beside:
    """What was made from a tensor, kept as long as the tensor lives and is not written to.

    >>> beside, x = Beside(), torch.ones(2)
    >>> beside.get("sum", (x,), lambda: float(x.sum())), beside.get("sum", (x,), lambda: None)
    (2.0, 2.0)
    >>> _ = x.add_(1)
    >>> beside.get("sum", (x,), lambda: float(x.sum()))
    4.0
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, dict[Hashable, tuple[Any, Any]]]] = {}

    def get(self, key: Hashable, of: tuple[Tensor | None, ...], make: Callable[[], Any]) -> Any:
        """`make()`, or what it gave for these very tensors; the first is the one that it is kept beside."""
        with torch._C.DisableTorchFunction():
            unknown = any(t is not None and t.is_inference() for t in of)
            # An inference tensor has no version: nobody knows whether it was written to.
            marks = [None if t is None or unknown else (weakref.ref(t), t._version) for t in of]
            found = self._known(of[0])
            kept = found.get(key)
        if unknown:
            return make()
        # Compared by identity: == of tensors, and so of references to them, is by number.
        if kept is None or any(not _alike(a, b) for a, b in zip(kept[0], marks, strict=True)):
            kept = found[key] = (marks, make())
        return kept[1]

    def _known(self, first: Tensor | None) -> dict[Hashable, tuple[Any, Any]]:
        assert first is not None
        number = id(first)
        known = self._found.get(number)
        if known is None or known[0]() is not first:
            known = self._found[number] = weakref.ref(first, lambda _: self._found.pop(number, None)), {}
        return known[1]


def _alike(a: tuple[Any, int] | None, b: tuple[Any, int] | None) -> bool:
    if a is None or b is None:
        return a is b
    return a[1] == b[1] and a[0]() is b[0]()


BESIDE = Beside()


@dataclass
class View:
    """A and the way to its entries.

    order [m]   entry k of A is arc order[k] of the edge_index; None on a grid, where other ranks have some
    twice       whether some arc is there twice, on any rank
    """

    A: Operator
    order: Tensor | None
    twice: bool

    def numbers(self, e: Tensor) -> Tensor:
        """Numbers per arc, [m, …], by entries of A; with gradient."""
        assert self.order is not None
        return e.index_select(0, self.order)


def view(
    edge_index: Tensor,
    sizes: tuple[int, int],
    dtype: torch.dtype,
    weight: Tensor | None = None,
    attr: Tensor | None = None,
    forwards: bool = True,
    like: Last | None = None,
) -> View:
    """A of these arcs: [targets, sources], with values `weight` [m] and data `attr` [m, d], of type `dtype`.

    sizes      (sources, targets)
    forwards   whether arcs go from row 0 of edge_index to row 1; else `flow` is target_to_source
    like       the last one that was built here: an equal edge_index shares its pattern
    """
    key = ("view", sizes, dtype, weight is None, attr is None, forwards)

    def make() -> View:
        with torch._C.DisableTorchFunction():
            found = None if like is None else like.find(edge_index, sizes, dtype, weight, attr, forwards)
            if found is None:
                tag = tag_of(edge_index)
                build = _alone if tag is None else _on_ranks
                found = build(edge_index, tag, sizes, dtype, weight, attr, forwards)
            if like is not None:
                like.keep(found, edge_index, sizes, dtype, weight, attr, forwards)
            return found

    return BESIDE.get(key, (edge_index, weight, attr), make)


class Last:
    """The last view that a module asked for: some make a new edge_index in every call, with the same arcs."""

    def __init__(self) -> None:
        self._of: Any = None

    def __deepcopy__(self, memo: Any) -> Last:
        return Last()

    def __reduce__(self) -> Any:
        return Last, ()

    def keep(self, found: View, edge_index: Tensor, *rest: Any) -> None:
        self._of = found, edge_index, rest

    def find(
        self, edge_index: Tensor, sizes: tuple[int, int], dtype: torch.dtype, weight: Tensor | None,
        attr: Tensor | None, forwards: bool,
    ) -> View | None:  # fmt: skip
        if self._of is None or tag_of(edge_index) is not None:
            return None
        found, old, (old_sizes, old_dtype, old_weight, old_attr, old_forwards) = self._of
        same = (sizes, dtype, forwards) == (old_sizes, old_dtype, old_forwards) and attr is None is old_attr
        if not same or (weight is None) != (old_weight is None) or not torch.equal(edge_index, old):
            return None
        if weight is None or torch.equal(weight, old_weight):
            return found
        a = found.A.plan.matrix(0)
        values = weight.detach()[found.order].to(dtype)
        return View(
            Operator.local(CSR(a.indptr, a.indices, values.contiguous(), a.shape)), found.order, found.twice
        )


def check_span(edge_index: Tensor, sizes: tuple[int, int], forwards: bool) -> None:
    """Refuse an edge_index that names vertices which are not there; it is read once."""

    def ends() -> list[tuple[int, int]]:
        return [(int(side.min()), int(side.max())) if side.numel() else (0, -1) for side in edge_index]

    found = BESIDE.get("ends", (edge_index,), ends)
    for (least, most), count in zip(found, sizes if forwards else sizes[::-1], strict=True):
        if least < 0 or most >= count:
            raise UserError(
                f"edge_index names vertex {least if least < 0 else most}, but x has {count} rows. "
                "Is it of another graph?"
            )


def _alone(
    edge_index: Tensor, tag: Tag | None, sizes: tuple[int, int], dtype: torch.dtype, weight: Tensor | None,
    attr: Tensor | None, forwards: bool,
) -> View:  # fmt: skip
    source, target = edge_index if forwards else edge_index.flip(0)
    order, twice = _sorted(target, source, sizes[0])
    counts = torch.bincount(target, minlength=sizes[1])
    index = torch.int32 if max(sizes) < 2**31 else torch.int64
    a = CSR(
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]), source[order].to(index),
        None if weight is None else weight.detach()[order].to(dtype), (sizes[1], sizes[0]),
        _carried(attr, order, dtype),
    )  # fmt: skip
    return View(Operator.local(a), order, twice)


def near_view(
    edge_index: Tensor, dtype: torch.dtype, weight: Tensor | None, forwards: bool
) -> tuple[View, Halo | None]:
    """(A of this rank's arcs, [n_own, n_own + n_halo], the halo that its columns have): rows are whole here.

    For what is not a sum, and so is not made of parts: every rank computes its own rows, on any grid.
    """
    tag = tag_of(edge_index)
    assert tag is not None
    assert isinstance(tag.names, tuple)
    source, target = tag.names if forwards else tag.names[::-1]
    sizes = source.space.size if source.halo is None else source.halo.size, target.space.size

    def make() -> View:
        with torch._C.DisableTorchFunction():
            return _alone(edge_index, None, sizes, dtype, weight, None, forwards)

    key = ("near", dtype, weight is None, forwards)
    return BESIDE.get(key, (edge_index, weight), make), source.halo


def _on_ranks(
    edge_index: Tensor, tag: Tag | None, sizes: tuple[int, int], dtype: torch.dtype, weight: Tensor | None,
    attr: Tensor | None, forwards: bool,
) -> View:  # fmt: skip
    assert tag is not None
    if not isinstance(tag.names, tuple):
        raise Unfit("its edge_index does not name vertices")
    source, target = tag.names if forwards else tag.names[::-1]
    first, second = edge_index if forwards else edge_index.flip(0)
    if not fits_ranks(source, target):
        raise Unfit("arcs do not lie with their targets here")
    space = target.space
    assert isinstance(space, Root)
    assert space.blocks is not None
    vertex = source.numbers(first)
    order, twice = _sorted(second, vertex, space.total)
    twice = any(space.comm.all_gather_json(twice))
    arcs = Arcs(
        second[order], vertex[order], None if weight is None else weight.detach()[order],
        _carried(attr, order, dtype) | {"arc": order},
    )  # fmt: skip
    rows = by_rows(space)
    A = Operator.of_arcs(
        arcs if rows else _of_slab(arcs, space), space.blocks, space.comm, space.sparse, dtype
    )
    places = torch.cat([a.data.pop("arc") for a in A.plan.blocks()])
    return View(A, places if rows else None, twice)


def by_rows(space: Space) -> bool:
    """Whether a rank's arcs are those of A that it holds: it alone has its rows of A."""
    assert isinstance(space, Root)
    assert space.blocks is not None
    return space.blocks.grid.row == space.comm.size


def _of_slab(arcs: Arcs, space: Root) -> Arcs:
    """The arcs into all vertices of this rank's slab, from those that each rank has into its own.

    A slab's ranks are neighbours, and so are their rows: one after the other they are in order.
    """
    assert space.blocks is not None
    grid = space.blocks.grid
    i, _, _ = grid.place(space.comm.rank)
    line = space.comm.split(color=i, key=space.comm.rank, name="slab")
    assert line is not None
    begin = space.blocks.own(space.comm.rank)[0] - space.blocks.slab(i)[0]

    def all_of(x: Tensor) -> Tensor:
        return line.all_gather(x.contiguous(), phase="plan")

    return Arcs(
        all_of(arcs.row + begin), all_of(arcs.vertex), None if arcs.value is None else all_of(arcs.value),
        {name: all_of(x) for name, x in arcs.data.items()},
    )  # fmt: skip


def fits_ranks(source: Names, target: Names) -> bool:
    """Whether arcs lie with their targets, between vertices of one shared graph."""
    space = target.space
    return (
        target.halo is None and source.space is space and isinstance(space, Root) and space.blocks is not None
    )


def _sorted(row: Tensor, column: Tensor, columns: int) -> tuple[Tensor, bool]:
    """(order by row, then column; whether some pair is there twice)."""
    pair = row * columns + column
    pair, order = torch.sort(pair, stable=True)
    return order, bool((pair.diff() == 0).any())


def _carried(attr: Tensor | None, order: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    if attr is None:
        return {}
    wide = attr.detach()[order].to(dtype)
    return {FEATURES: (wide if wide.dim() == 2 else wide[:, None]).contiguous()}

"""Rows of the normalised matrix, read from a graph in memory or from a store, and only those rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..graph.arrays import as_read, is_kind, key_of, largest, of_loops
from ..graph.rows import arc_pieces, index_dtype
from .fetch import Fetch, Owners

Source = Graph | Store
Keep = Callable[[Tensor], Tensor]
"""Vertices → which of them are wanted, [m] → [m] bool."""
_SOME_ROWS, SOME_ARCS = 1 << 14, 1 << 18
"""Looked at together, where not all need be held."""


@dataclass(frozen=True)
class Arcs:
    """Some rows of A as a list of arcs: by row, within a row by vertex.

    row [arcs] in 0..rows-1;  vertex [arcs] the in-neighbour;  value [arcs] or None: all 1
    data  name → what they carry, as `graph.arrays.as_read` gives it: [arcs, d] floating point, or int64
    """

    row: Tensor
    vertex: Tensor
    value: Tensor | None
    data: dict[str, Tensor] = field(default_factory=dict)

    def pick(self, where: Tensor) -> Arcs:
        """Those at these places, or where a mask is true; all of them without a copy."""
        if where.dtype == torch.bool and bool(where.all()):
            return self
        value = None if self.value is None else self.value[where]
        data = {name: x[where] for name, x in self.data.items()}
        return Arcs(self.row[where], self.vertex[where], value, data)


def data_names(source: Source) -> list[str]:
    """The names of what the arcs carry."""
    return source.arc_names if isinstance(source, Store) else list(source.arc_data)


def check_data(source: Source, names: Collection[str]) -> None:
    """Refuse a name that the graph's arcs have nothing under."""
    known = data_names(source)
    for name in names:
        if name not in known:
            shown = ", ".join(known) or "none"
            raise UserError(
                f"the arcs of {source.name} carry no {name!r}; what they carry: {shown}. "
                "Give the graph such arc data, or choose a model that reads none."
            )


def data_bytes(source: Source, names: Collection[str], dtype: torch.dtype) -> int:
    """What these data take for one arc, as `read_arcs` gives them."""
    check_data(source, names)
    if isinstance(source, Store):
        found = {name: source.schema[key_of("arc", name)] for name in names}
    else:
        found = {name: (source.arc_data[name].dtype, tuple(source.arc_data[name].shape)) for name in names}
    return sum(
        math.prod(shape[1:]) * (torch.int64 if is_kind(name, kind.is_floating_point) else dtype).itemsize
        for name, (kind, shape) in found.items()
    )


def read_arcs(
    source: Source,
    vertices: Tensor,
    data: Collection[str] = (),
    dtype: torch.dtype = torch.float32,
    keep: Keep | None = None,
    index: torch.dtype = torch.int64,
) -> Arcs:
    """The arcs into these vertices, in their order, and of what they carry that which `data` names.

    Floating-point data, and features of any type, come as [arcs, d] of type `dtype`, whole numbers as int64.
    `keep` says which
    in-neighbours are wanted; of a store the others' arcs are never held. `index` is the type of `row` and
    `vertex`.
    """
    check_data(source, data)
    if isinstance(source, Store):
        only = ("indices", "weights", *(key_of("arc", name) for name in data))
        if keep is None:
            rows = source.rows(vertices, only=only)
        else:
            rows = source.block(vertices, lambda found: keep(torch.from_numpy(found)).numpy(), only)
        counts, indices, weights, carried = rows.indptr.diff(), rows.indices, rows.weights, rows.arc_data
    else:
        counts = source.indptr[vertices + 1] - source.indptr[vertices]
        carried = {name: x for name, x in source.arc_data.items() if name in data}
        indices, weights = source.indices, source.weights
        if vertices.numel() != source.num_nodes or not bool((vertices.diff() == 1).all()):
            indices, *others = _picked(source, vertices, [indices, weights, *carried.values()])
            weights, carried = others[0], dict(zip(carried, others[1:], strict=True))
    row = torch.arange(vertices.numel(), dtype=index, device=counts.device)
    found = {name: as_read(name, carried[name], dtype) for name in dict.fromkeys(data)}
    arcs = Arcs(torch.repeat_interleave(row, counts), indices.to(index), weights, found)
    return arcs if keep is None or isinstance(source, Store) else arcs.pick(keep(arcs.vertex))


def _picked(graph: Graph, vertices: Tensor, per_arc: list[Tensor | None]) -> list[Any]:
    """Of these arrays the rows of the arcs into some vertices, some arcs at a time."""
    starts, ends = (graph.indptr[v].cpu().numpy() for v in (vertices, vertices + 1))
    total, at = int((ends - starts).sum()), 0
    out = [None if x is None else x.new_empty(total, *x.shape[1:]) for x in per_arc]
    for _, places in arc_pieces(starts, ends):
        where = torch.from_numpy(places).to(graph.indptr.device)
        for x, into in zip(per_arc, out, strict=True):
            if x is not None and into is not None:
                into[at : at + len(places)] = x[where]
        at += len(places)
    return out


def count_arcs(source: Source, first: int, last: int) -> int:
    """How many arcs go into the vertices first..last-1; only two pointers are read."""
    if isinstance(source, Store):
        return source.count_arcs(first, last)
    return int(source.indptr[last] - source.indptr[first])


def row_starts(source: Source) -> Tensor:
    """[n + 1] int64: the arcs into row v are numbered starts[v]..starts[v + 1] - 1, in the graph's order.

    >>> from weft.graph import karate
    >>> row_starts(karate())[-1].item()
    156
    """
    if isinstance(source, Store):
        return source.rows(0, source.num_nodes, only=("indptr",)).indptr
    return source.indptr.cpu()


def first_arcs(source: Source, vertices: Tensor) -> Tensor:
    """The number of the first arc into each of these vertices, in the graph's order. [m] int64

    >>> from weft.graph import karate
    >>> first_arcs(karate(), torch.tensor([0, 2])).tolist()
    [0, 25]
    """
    if isinstance(source, Store):
        return source.first_arcs(vertices)
    return source.indptr[vertices.to(source.indptr.device)].cpu()


def count_arcs_of(source: Source, vertices: Tensor) -> int:
    """How many arcs go into these vertices; only their pointers are read."""
    if isinstance(source, Store):
        return int(source.rows(vertices, only=("indptr",)).indptr[-1])
    return int((source.indptr[vertices + 1] - source.indptr[vertices]).sum())


def read_vertices(source: Source, vertices: Tensor, key: str) -> Tensor | None:
    """The features, labels or a mask of these vertices; None where the graph has none."""
    if isinstance(source, Store):
        found: Tensor | None = getattr(source.rows(vertices, only=(key,)), key)
        return found
    whole: Tensor | None = getattr(source, key)
    return None if whole is None else whole[vertices]


def _row_sums(arcs: Arcs, rows: int) -> Tensor:
    """Float64 sums: a hub's thousands of terms then cost no digits."""
    if arcs.value is None:
        return torch.bincount(arcs.row, minlength=rows).double()
    total = torch.zeros(rows, dtype=torch.float64, device=arcs.row.device)
    total.index_add_(0, arcs.row, arcs.value.double())
    check_sums(total)
    return total


def check_sums(total: Tensor) -> None:
    """Refuse sums of weights that are infinite: divided by them, arcs would become 0 without a word."""
    if not bool(torch.isfinite(total).all()):
        raise UserError("the weights of a row of arcs add up to more than float64 holds. Scale the weights.")


def scale_of(total: Tensor, how: str) -> Tensor:
    """What an entry is multiplied by for its row, and by gcn for its column too. [rows] float64."""
    if how == "mean":
        return torch.where(total != 0, 1 / total, 0.0)
    return torch.where(total > 0, total.clamp(min=0).rsqrt(), 0.0)


def loop_data(arcs: Arcs, vertices: Tensor, comm: Communicator) -> dict[str, Tensor]:
    """What the loop of each of these rows carries (`weft.graph.arrays.of_loops`). name → [rows, …]

    Ranks tell each other the largest of their whole numbers.
    """
    if not arcs.data:
        return {}
    loop, tops = arcs.vertex == vertices[arcs.row], dict.fromkeys(arcs.data, -1)
    whole = [name for name, x in arcs.data.items() if not x.is_floating_point()]
    if whole:
        own = torch.tensor([largest(arcs.data[name]) for name in whole], device="cpu")
        tops |= zip(whole, comm.all_reduce(own, "max", phase="plan").tolist(), strict=True)
    rows = vertices.numel()
    return {name: of_loops(x, arcs.row, loop, rows, tops[name]) for name, x in arcs.data.items()}


def with_loops(
    arcs: Arcs,
    vertices: Tensor,
    loops: Mapping[str, Tensor] | None = None,
    wanted: Tensor | None = None,
) -> Arcs:
    """The loop (v, v) of weight 1 added to the rows that have none, each at its place in the row.

    `loops` is what every loop carries then, also those that were there: `loop_data`. `wanted` [rows] bool:
    which rows get one; by default all.
    """
    n_rows, device = vertices.numel(), vertices.device
    counts = torch.bincount(arcs.row, minlength=n_rows)
    has = torch.zeros(n_rows, dtype=torch.bool, device=device) if wanted is None else ~wanted
    lower = torch.zeros(n_rows, dtype=torch.int64, device=device)  # arcs of a row before its loop's place
    for part in _parts(arcs):
        row, vertex = arcs.row[part], arcs.vertex[part]
        own = vertices[row]
        has[row[vertex == own]] = True
        # Of the rows that the part has alone: of all rows, parts times rows would be walked.
        first, last = int(row[0]), int(row[-1]) + 1
        lower[first:last] += torch.bincount(row[vertex < own] - first, minlength=last - first)
    lacking = ~has
    new = lacking.cumsum(0) - lacking.long()  # loops that the rows before get
    total = arcs.row.numel() + int(lacking.sum())
    out = Arcs(
        arcs.row.new_empty(total), arcs.vertex.new_empty(total),
        None if arcs.value is None else arcs.value.new_ones(total),
        {name: x.new_empty(total, *x.shape[1:]) for name, x in arcs.data.items()},
    )  # fmt: skip
    for part in _parts(arcs):
        row, vertex = arcs.row[part], arcs.vertex[part]
        own = vertices[row]
        at = torch.arange(part.start, part.stop, device=device) + new[row] + (lacking[row] & (vertex > own))
        out.row[at], out.vertex[at] = row, vertex
        if out.value is not None and arcs.value is not None:
            out.value[at] = arcs.value[part]
        loop = vertex == own
        for name, x in arcs.data.items():
            assert loops is not None
            out.data[name][at] = x[part]
            out.data[name][at[loop]] = loops[name][row[loop]]
    lacks = lacking.nonzero().ravel()
    at = (counts.cumsum(0) - counts + lower + new)[lacks]
    out.row[at], out.vertex[at] = lacks.to(out.row.dtype), vertices[lacks].to(out.vertex.dtype)
    for name, x in out.data.items():
        assert loops is not None
        x[at] = loops[name][lacks]
    return out


def _parts(arcs: Arcs) -> Iterator[slice]:
    """Some arcs at a time: what stands between has not the size of all."""
    count = arcs.row.numel()
    for begin in range(0, count, SOME_ARCS):
        yield slice(begin, min(begin + SOME_ARCS, count))


def check_how(how: str) -> None:
    """Refuse a normalisation that nobody knows."""
    if how not in ("gcn", "mean", "none", "loops"):
        raise unknown("normalisation", how, ["gcn", "mean", "none", "loops"])


def read_normalised(
    source: Source,
    vertices: Tensor,
    how: str,
    comm: Communicator,
    own: tuple[int, int],
    owners: Owners,
    data: Collection[str] = (),
    dtype: torch.dtype = torch.float32,
    keep: Keep | None = None,
) -> Arcs:
    """Rows of the matrix that `weft.graph.normalise(graph, how)` would give, without making it.

    vertices  the rows wanted;  own = (begin, end) of this rank's among them
    owners    who has which vertex: gcn needs the degree of every in-neighbour, and ranks tell each other
    data      the names of what their arcs carry and is wanted;  dtype  of its floating-point numbers
    keep      vertices → which of them are wanted as in-neighbours; None: all. Others may be left out

    Where only some in-neighbours are wanted, a rank sums up its own rows, some at a time, and asks the owners
    of the others for their sums: what it holds is what it keeps.
    """
    check_how(how)
    loops = how in ("gcn", "loops")
    if data and loops:  # what a loop carries follows from all of its row
        keep = None
    arcs = read_arcs(source, vertices, data, dtype, keep, index_dtype(source.num_nodes))
    if how == "none":
        return arcs
    if loops:
        reads_itself = None if keep is None else keep(vertices)
        arcs = with_loops(arcs, vertices, loop_data(arcs, vertices, comm), reads_itself)
    if how == "loops":
        return replace(arcs, value=None)
    if keep is None:
        total = _row_sums(arcs, vertices.numel())
    else:
        mine = _own_sums(source, vertices[own[0] : own[1]], loops)
        total = Fetch(comm, owners, vertices, distinct=True).rows(mine[:, None]).ravel()
    scale, value = scale_of(total, how), None
    if how == "gcn":
        value = _of_columns(source, scale[own[0] : own[1]].contiguous(), arcs.vertex, comm, owners)
    return replace(arcs, value=_scaled(arcs, scale, value))


def _scaled(arcs: Arcs, scale: Tensor, value: Tensor | None) -> Tensor:
    """scale[row] · value · the arc's weight, in float64."""
    out = torch.empty(arcs.row.numel(), dtype=torch.float64, device=scale.device) if value is None else value
    for part in _parts(arcs):
        by_row = scale[arcs.row[part]]
        out[part] = by_row if value is None else by_row * value[part]
        if arcs.value is not None:
            out[part] *= arcs.value[part].double()
    return out


def _own_sums(source: Source, vertices: Tensor, loops: bool) -> Tensor:
    """The sums of whole rows, some rows at a time. [rows] float64."""
    total = torch.zeros(vertices.numel(), dtype=torch.float64, device=vertices.device)
    begin = 0
    for part in vertices.split(_SOME_ROWS):
        arcs = read_arcs(source, part)
        arcs = with_loops(arcs, part) if loops else arcs
        total[begin : begin + part.numel()] = _row_sums(arcs, part.numel())
        begin += part.numel()
    return total


def _of_columns(source: Source, own: Tensor, ids: Tensor, comm: Communicator, owners: Owners) -> Tensor:
    """What the owners of these vertices have for them. [n_own], [arcs] → [arcs]."""
    if source.num_arcs < comm.size * source.num_nodes:
        return Fetch(comm, owners, ids).rows(own[:, None]).ravel()
    # A rank has more arcs than the graph has vertices: n numbers are the least of what it holds.
    sizes = comm.all_gather(torch.tensor([own.numel()], device="cpu"), phase="plan").tolist()
    whole = comm.all_gather(own, sizes, phase="plan")
    begin = torch.tensor([0, *sizes], device="cpu").cumsum(0)
    out = torch.empty(ids.numel(), dtype=own.dtype, device=own.device)
    for part, into in zip(ids.split(SOME_ARCS), out.split(SOME_ARCS), strict=True):
        owner, place = owners.find(part.long())
        into.copy_(whole[begin[owner] + place])
    return out

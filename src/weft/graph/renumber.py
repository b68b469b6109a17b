"""The same graph with its vertices in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from weft.errors import UserError
from weft.graph.graph import MASKS, PAIRS, Graph
from weft.graph.rows import index_dtype
from weft.graph.store import Store
from weft.graph.writer import Writer, replacing

_SOME_ROWS, _SOME_ARCS = 1 << 16, 1 << 21
"""Read together where a store is written anew."""


def renumbered(graph: Graph, order: Tensor) -> Graph:
    """The graph whose vertex p is `order[p]` of the given one: P A Pᵀ, and P x of all that vertices carry.

        order  [n] int64, each vertex once

    `ids` keep the vertices' names: those of before, or their numbers.

    >>> g = renumbered(Graph.from_arcs([0, 2], [1, 1]), torch.tensor([2, 0, 1]))
    >>> g.ids.tolist(), g.rows.tolist(), g.indices.tolist()
    ([2, 0, 1], [2, 2], [0, 1])
    """
    n = graph.num_nodes
    _check(order, n)
    place = torch.empty_like(order)
    place[order] = torch.arange(n, device=order.device)
    per_vertex = {
        key: x[order] for key in ("features", "labels", *MASKS) if (x := getattr(graph, key)) is not None
    }
    pairs = {key: place[x] for key in PAIRS if (x := getattr(graph, key)) is not None}
    return Graph.from_arcs(
        place[graph.indices.long()], place[graph.rows], n, graph.weights, graph.arc_data,
        vertex_data={name: x[order] for name, x in graph.vertex_data.items()},
        ids=order if graph.ids is None else graph.ids[order], name=graph.name,
        num_classes=graph.num_classes, **per_vertex, **pairs,
    )  # fmt: skip


def renumber_store(store: Store, order: Tensor, path: str | Path, parts: Sequence[int] | None = None) -> Path:
    """Write the store whose vertex p is `order[p]` of the given one, as `renumbered` makes it, row by row.

        order  [n] int64, each vertex once;   parts  sizes of parts that then lie one after the other

    Held are some rows, and 4 or 8 bytes a vertex beside `order`.

    >>> import tempfile
    >>> from weft.graph import karate, open_store, write_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(write_store(karate(), Path(folder) / "club.weft"))
    ...     made = renumber_store(store, torch.arange(33, -1, -1), Path(folder) / "back.weft")
    ...     open_store(made).rows(33, 34).ids.tolist()
    [0]
    """
    n, path = store.num_nodes, Path(path)
    _check(order, n)
    place = torch.empty(n, dtype=index_dtype(n), device="cpu")
    place[order] = torch.arange(n, dtype=place.dtype, device="cpu")
    schema = store.schema
    per_arc = [
        key for key, (_, shape) in schema.items() if key in ("indices", "weights") or key[:4] == "arc_"
    ]
    with replacing(path) as file:
        writer = Writer(file)
        grows = writer.grow("indptr", "<i8", rows=n + 1)
        last = torch.zeros(1, dtype=torch.int64, device="cpu")
        grows.append(last.numpy())
        arcs = {}
        for key in per_arc:
            kind, shape = schema[key]
            arcs[key] = writer.grow(key, _little(kind), shape[1:], rows=store.num_arcs)
        for some in _pieces(store, order):
            rows = store.rows(some, only=per_arc)
            column = place[rows.indices.long()]
            row = torch.repeat_interleave(torch.arange(some.numel(), device="cpu"), rows.indptr.diff())
            sort = torch.argsort(row * n + column)
            found = {"indices": column, "weights": rows.weights}
            found |= {f"arc_{name}": x for name, x in rows.arc_data.items()}
            for key, section in arcs.items():
                x = found[key]
                assert x is not None
                section.append(x[sort].numpy())
            grows.append((rows.indptr[1:] + last).numpy())
            last = last + rows.indptr[-1]
        grows.end()
        for section in arcs.values():
            section.end()
        for key, (kind, shape) in schema.items():
            if key in PAIRS:
                writer.add(key, place[store.pairs(key)].long().numpy())
            elif key not in ("indptr", "ids", *per_arc):
                vertex = writer.grow(key, _little(kind), shape[1:], rows=n)
                for some in order.split(_SOME_ROWS):
                    rows = store.rows(some, only=(key,))
                    x = rows.vertex_data[key[7:]] if key.startswith("vertex_") else getattr(rows, key)
                    vertex.append(x.numpy())
                vertex.end()
        ids = writer.grow("ids", "<i8", rows=n)
        for some in order.split(_SOME_ROWS):
            named = store.rows(some, only=("ids",)).ids
            ids.append((some if named is None else named).numpy())
        ids.end()
        writer.finish(store.name, store.num_classes, parts)
    return path


def _check(order: Tensor, n: int) -> None:
    known = order.shape == (n,) and (n == 0 or (int(order.min()) >= 0 and int(order.max()) < n))
    if known:
        seen = torch.zeros(n, dtype=torch.bool, device=order.device)
        seen[order] = True
        known = bool(seen.all())
    if not known:
        raise UserError(f"an order of {n} vertices names each of them once. Give such a one.")


def _little(kind: torch.dtype) -> str:
    return torch.empty(0, dtype=kind).numpy().dtype.newbyteorder("<").str


def _pieces(store: Store, order: Tensor) -> Iterator[Tensor]:
    """Stretches of the order that read some arcs each."""
    for some in order.split(_SOME_ROWS):
        ends = store.rows(some, only=("indptr",)).indptr[1:]
        at = 0
        while at < some.numel():
            done = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(torch.searchsorted(ends, done + _SOME_ARCS, right=True)))
            yield some[at:stop]
            at = stop

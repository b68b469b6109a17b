"""The same graph with its vertices in another order."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.errors import UserError
from weft.graph.graph import MASKS, PAIRS, Graph


def renumbered(graph: Graph, order: Tensor) -> Graph:
    """The graph whose vertex p is `order[p]` of the given one: P A Pᵀ, and P x of all that vertices carry.

        order  [n] int64, each vertex once

    `ids` keep the vertices' names: those of before, or their numbers.

    >>> g = renumbered(Graph.from_arcs([0, 2], [1, 1]), torch.tensor([2, 0, 1]))
    >>> g.ids.tolist(), g.rows.tolist(), g.indices.tolist()
    ([2, 0, 1], [2, 2], [0, 1])
    """
    n = graph.num_nodes
    if order.shape != (n,) or not torch.equal(order.sort().values, torch.arange(n, device=order.device)):
        raise UserError(f"an order of {n} vertices names each of them once. Give such a one.")
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

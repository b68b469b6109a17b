"""To and from PyG's `Data`. torch_geometric is imported only when a graph goes there."""

from __future__ import annotations

from typing import Any

import torch

from weft.errors import UserError
from weft.graph.graph import MASKS, Graph


def from_pyg(data: Any, name: str = "pyg") -> Graph:
    """The graph of a PyG `Data`: edge_index [2, nnz] is (source, target), so row = target.

        x → features, y → labels ([n], [n, 1] or [n, c] for many), train_mask, val_mask, test_mask → same,
        edge_weight or an edge_attr of width 1 → weights

    An arc given twice is merged, its weights summed.

    >>> from types import SimpleNamespace
    >>> from_pyg(SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)).rows
    tensor([1, 2])
    """
    edges = getattr(data, "edge_index", None)
    if edges is None or edges.dim() != 2 or len(edges) != 2:
        raise UserError(
            "this PyG object has no edge_index of shape 2 x arcs. Give a homogeneous Data with edge_index."
        )
    weights = getattr(data, "edge_weight", None)
    if (
        weights is None
        and (attr := getattr(data, "edge_attr", None)) is not None
        and attr.numel() == edges.shape[1]
    ):
        weights = attr
    if weights is not None:
        weights = weights.reshape(-1)
    graph = Graph.from_arcs(edges[0], edges[1], data.num_nodes, weights, name=name)
    found: dict[str, Any] = {}
    if (x := getattr(data, "x", None)) is not None:
        found["features"] = x
    if (y := getattr(data, "y", None)) is not None:
        if y.dim() == 2 and y.shape[1] == 1:
            y = y[:, 0]
        found["labels"] = y != 0 if y.dim() == 2 else y
    for key in MASKS:
        mask = getattr(data, key, None)
        if mask is None:
            continue
        if mask.dim() == 2:
            raise UserError(
                f"{key} holds {mask.shape[1]} splits. Choose one, as data.{key} = data.{key}[:, 0]."
            )
        found[key] = mask.bool()
    return graph.replace(**found)


def to_pyg(graph: Graph) -> Any:
    """A PyG `Data` of the graph: edge_index, edge_weight, x, y and the masks.

    >>> to_pyg(Graph.from_arcs([0], [1])).edge_index.tolist()        # doctest: +SKIP
    [[0], [1]]
    """
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise UserError("to_pyg needs torch_geometric. Install it with: pip install 'weft[pyg]'") from None
    data = Data(edge_index=torch.stack([graph.indices.long(), graph.rows]), num_nodes=graph.num_nodes)
    pairs = {"edge_weight": graph.weights, "x": graph.features, "y": graph.labels}
    for key, value in (pairs | {key: getattr(graph, key) for key in MASKS}).items():
        if value is not None:
            data[key] = value
    return data

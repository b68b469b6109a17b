"""To and from PyG's `Data`. torch_geometric is imported only when a graph goes there."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from weft.errors import Note, UserError
from weft.graph.arrays import KIND, Of, check_array, coerced
from weft.graph.graph import MASKS, Graph
from weft.graph.readers.merged import merged

_ARCS = {"edge_attr": "features", "edge_type": "type"}
"""PyG's names of what arcs carry → ours; any other `edge_NAME` is NAME."""
_READ = {"edge_index", "edge_weight", "x", "y", "num_nodes", *MASKS}


def from_pyg(data: Any, name: str = "pyg") -> Graph:
    """The graph of a PyG `Data`: edge_index [2, nnz] is (source, target), so row = target.

        x → features, y → labels ([n], [n, 1] or [n, c] for many), train_mask, val_mask, test_mask → same
        edge_weight → weights, edge_attr → arc_data["features"], edge_type → arc_data["type"],
        any other edge_NAME [nnz] or [nnz, d] → arc_data[NAME], any other NAME [n] or [n, d] → vertex_data

    An arc given twice is merged: its weights are summed, of its data the first are kept. A warning says how
    many were, and what else of `data` found no place.

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
    if weights is not None:
        weights = weights.reshape(-1)
    n, given = int(data.num_nodes), edges.shape[1]
    arc_data, vertex_data, dropped = _extras(data, n, given)
    graph = Graph.from_arcs(edges[0], edges[1], n, weights, arc_data, name=name)
    graph = graph.replace(**_belongings(data), vertex_data=vertex_data)
    said = [merged(given, graph)] if merged(given, graph) else []
    if dropped:
        said.append(f"left out: {', '.join(dropped)}")
    if said:
        warnings.warn(f"from_pyg: {'; '.join(said)}.", Note, stacklevel=2)
    return graph


def _belongings(data: Any) -> dict[str, Any]:
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
    return found


def _extras(data: Any, n: int, arcs: int) -> tuple[dict[str, Tensor], dict[str, Tensor], list[str]]:
    """(arc data, vertex data, the keys that are neither)."""
    arc_data: dict[str, Tensor] = {}
    vertex_data: dict[str, Tensor] = {}
    dropped = []
    every: dict[str, Any] = data.to_dict() if hasattr(data, "to_dict") else vars(data)
    for key, x in every.items():
        if key in _READ or x is None:
            continue
        if key in _ARCS:  # what does not fit is an error that names it
            arc_data[_ARCS[key]] = x if _ARCS[key] == KIND else _whole_or_floating(x)
        elif key.startswith("edge_") and _fits(key.removeprefix("edge_"), x, arcs, "arc"):
            arc_data[key.removeprefix("edge_")] = _whole_or_floating(x)
        elif not key.startswith("edge_") and _fits(key, x, n, "vertex"):
            vertex_data[key] = _whole_or_floating(x)
        else:
            dropped.append(key)
    return arc_data, vertex_data, dropped


def _fits(name: str, x: Any, count: int, of: Of) -> bool:
    """Whether x is an array with a row for each, which may have this name."""
    if not isinstance(x, Tensor) or name in ("features", "type") or "index" in name:
        return False
    try:
        check_array(name, coerced({name: _whole_or_floating(x)}, of)[name], count, of)
    except UserError:
        return False
    return True


def _whole_or_floating(x: Tensor) -> Tensor:
    """Whole numbers below 0 are no types: they become floating point."""
    signed = x.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return x.double() if signed and x.numel() and int(x.min()) < 0 else x


def to_pyg(graph: Graph) -> Any:
    """A PyG `Data` of the graph: edge_index, edge_weight, x, y, the masks, arc and vertex data.

    Arc data go back where `from_pyg` finds them: "features" to edge_attr, "type" to edge_type, any other NAME
    to edge_NAME; vertex data keep their names.

    >>> to_pyg(Graph.from_arcs([0], [1])).edge_index.tolist()        # doctest: +SKIP
    [[0], [1]]
    """
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise UserError("to_pyg needs torch_geometric. Install it with: pip install 'weft[pyg]'") from None
    data = Data(edge_index=torch.stack([graph.indices.long(), graph.rows]), num_nodes=graph.num_nodes)
    theirs = {name: key for key, name in _ARCS.items()}
    fields = {"edge_weight": graph.weights, "x": graph.features, "y": graph.labels}
    fields |= {key: getattr(graph, key) for key in MASKS}
    fields |= {theirs.get(name, f"edge_{name}"): x for name, x in graph.arc_data.items()}
    for key in graph.vertex_data:
        if key in _READ or key.startswith("edge_"):
            raise UserError(f"vertex data {key!r} cannot go to PyG, which has another {key}. Rename them.")
    for key, value in (fields | graph.vertex_data).items():
        if value is not None:
            data[key] = value
    return data

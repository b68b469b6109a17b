"""GraphSAINT's layout (Flickr, Yelp, Amazon, Reddit): a folder with a matrix, features, classes and roles.

adj_full.npz      the whole graph, a CSR matrix as scipy saves it; adj_train.npz is not needed
feats.npy         [n, f]
class_map.json    {"vertex": class} or {"vertex": [0, 1, …]} where a vertex has many labels
role.json         {"tr": [vertices], "va": […], "te": […]}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import existing_file, map_array, read_bytes
from weft.graph.readers.npz import read_npz

MATRIX = "adj_full.npz"
_ROLES = {"train_mask": "tr", "val_mask": "va", "test_mask": "te"}


def is_saint(folder: Path) -> bool:
    """Whether a folder holds such a set."""
    return (folder / MATRIX).is_file() and (folder / "role.json").is_file()


def read_saint(folder: str | Path) -> Graph:
    """The graph of such a folder. Weights of the matrix, which are all 1, are left out.

    >>> read_saint("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/folder/adj_full.npz. Check the path.
    """
    folder = Path(folder)
    graph = read_npz(existing_file(folder / MATRIX)).replace(name=folder.name)
    n = graph.num_nodes
    if graph.weights is not None and bool((graph.weights == 1).all()):
        graph = graph.replace(weights=None)
    more: dict[str, Any] = {}
    if (folder / "feats.npy").is_file():
        more["features"] = _features(folder / "feats.npy", n)
    if (folder / "class_map.json").is_file():
        more["labels"] = _labels(folder / "class_map.json", n)
    path = existing_file(folder / "role.json")
    roles = _json(path)
    for mask, key in _ROLES.items():
        more[mask] = torch.zeros(n, dtype=torch.bool)
        more[mask][_ids(roles.get(key), key, path, n)] = True
    with about(folder):
        return graph.replace(**more)


def _features(path: Path, n: int) -> torch.Tensor:
    array = map_array(path, damaged="Fetch it again.")
    if array.ndim != 2 or len(array) != n or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise UserError(f"{path} is {list(array.shape)} {array.dtype} for {n} vertices. Fetch it again.")
    check_fits(4 * array.size, f"{path}: features {n}x{array.shape[1]}")
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(array, dtype=np.float32))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path} is not sound JSON ({reason}). Fetch it again.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is no table of names. Fetch it again.")
    return found


def _ids(given: Any, key: str, path: Path, n: int) -> torch.Tensor:
    if not isinstance(given, list) or not all(type(v) is int for v in given):
        raise UserError(f"{path}: {key} is no list of vertices. Fetch it again.")
    for vertex in given:
        if not 0 <= vertex < n:
            raise UserError(f"{path}: {key} names vertex {vertex}, of {n}. Fetch it again.")
    return torch.tensor(given, dtype=torch.int64)


def _labels(path: Path, n: int) -> torch.Tensor:
    found = _json(path)
    vertices = []
    for key in found:
        if not (key.isdecimal() and key.isascii() and len(key) < 16 and int(key) < n):
            raise UserError(f"{path}: {key[:40]!r} is no vertex below {n}. Fetch it again.")
        vertices.append(int(key))
    values = list(found.values())
    many = bool(values) and isinstance(values[0], list)
    for key, value in found.items():
        row = value if many else [value]
        good = isinstance(row, list) and all(type(v) is int and 0 <= v < (2 if many else 2**31) for v in row)
        if not good or (many and len(row) != len(values[0])):
            sort = f"{len(values[0])} zeros and ones" if many else "a class"
            raise UserError(f"{path}: the label of vertex {key} is not {sort}. Fetch it again.")
    if many:
        check_fits(n * len(values[0]), f"{path}: {len(values[0])} labels", held=path.stat().st_size)
        labels = torch.zeros(n, len(values[0]), dtype=torch.bool)
        labels[vertices] = torch.tensor(values, dtype=torch.bool)
        return labels
    labels = torch.full((n,), -1)
    labels[vertices] = torch.tensor(values, dtype=torch.int64)
    return labels

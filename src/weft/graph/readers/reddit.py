"""Reddit as DGL and GraphSAGE's authors give it: reddit_graph.npz and reddit_data.npz in a folder.

reddit_graph.npz   a COO or CSR matrix as scipy saves it
reddit_data.npz    feature [n, f], label [n], node_types [n]: 1 to train on, 2 to validate, 3 to test
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about
from weft.graph.readers.files import existing_file
from weft.graph.readers.npz import arrays_of, read_npz

MATRIX, DATA = "reddit_graph.npz", "reddit_data.npz"
_TYPES = {"train_mask": 1, "val_mask": 2, "test_mask": 3}


def is_reddit(folder: Path) -> bool:
    """Whether a folder holds such a set."""
    return (folder / MATRIX).is_file() and (folder / DATA).is_file()


def read_reddit(folder: str | Path) -> Graph:
    """The graph of such a folder.

    >>> read_reddit("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/folder/reddit_graph.npz. Check the path.
    """
    folder = Path(folder)
    graph = read_npz(existing_file(folder / MATRIX)).replace(name=folder.name)
    if graph.weights is not None and bool((graph.weights == 1).all()):
        graph = graph.replace(weights=None)
    path, n = existing_file(folder / DATA), graph.num_nodes
    arrays = arrays_of(path)
    columns = {"feature": ("iuf", 2), "label": ("iu", 1), "node_types": ("iu", 1)}
    for name, (kinds, dims) in columns.items():
        array = arrays.get(name)
        if array is None or array.dtype.kind not in kinds or array.ndim != dims or len(array) != n:
            shape = "missing" if array is None else f"{list(array.shape)} {array.dtype}"
            raise UserError(f"{path}: {name} is {shape} for {n} vertices. Fetch it again.")
    with about(path), np.errstate(over="ignore"):
        return graph.replace(
            features=torch.from_numpy(arrays["feature"].astype(np.float32)),
            labels=torch.from_numpy(arrays["label"].astype(np.int64)),
            **{mask: torch.from_numpy(arrays["node_types"] == kind) for mask, kind in _TYPES.items()},
        )

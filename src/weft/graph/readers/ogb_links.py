"""OGB's link data sets as plain files: the edges to train on, and pairs to validate and test with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.columns import read_columns
from weft.graph.readers.files import existing_file, read_bytes
from weft.graph.readers.npz import arrays_of

TRAIN = "train_edges.csv.gz"
HELD = "valid_test.npz"
_KEYS = {
    "val_pairs": "valid_edge", "val_negatives": "valid_edge_neg",
    "test_pairs": "test_edge", "test_negatives": "test_edge_neg",
}  # fmt: skip


def read_ogb_links(folder: str | Path) -> Graph:
    """The graph of a folder with `train_edges.csv.gz` (each edge once) and `valid_test.npz`.

        arcs                          both directions of the training edges
        val_pairs, val_negatives      valid_edge, valid_edge_neg     [m, 2]
        test_pairs, test_negatives    test_edge, test_edge_neg       [m, 2]

    Where `valid_test.npz` is missing, so are the pairs.

    >>> read_ogb_links("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/folder/train_edges.csv.gz. Check the path.
    """
    folder = Path(folder)
    path = existing_file(folder / TRAIN)
    data = read_bytes(path)
    source, target, _ = read_columns(data, path)
    pairs: dict[str, torch.Tensor] = {}
    if (folder / HELD).exists():
        arrays = arrays_of(folder / HELD)
        pairs = {key: _pairs(arrays, name, folder / HELD) for key, name in _KEYS.items()}
    tops = [int(x.max(initial=-1)) for x in (source, target)]
    tops += [int(p.max()) for p in pairs.values() if p.numel()]
    held = len(data) + sum(p.nbytes for p in pairs.values())
    check_fits(8 * (max(tops) + 2), f"{folder}: {max(tops) + 1} vertices", held)
    with about(path):
        graph = Graph.from_arcs(source, target, max(tops) + 1, name=folder.name).symmetrised()
    with about(folder / HELD):
        return graph.replace(**pairs)


def _pairs(arrays: dict[str, np.ndarray], name: str, path: Path) -> torch.Tensor:
    found = arrays.get(name)
    if found is None or found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise UserError(f"{path}: {name} is not a list of pairs [m, 2] of whole numbers. Fetch it again.")
    return torch.from_numpy(found.astype(np.int64))

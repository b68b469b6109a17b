"""OGB's link data sets: the edges to train on, and pairs to validate and test with.

They come as plain files, or as OGB's archives have them.
"""

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
from weft.graph.readers.ogb_nodes import per_line
from weft.graph.readers.tables import read_table
from weft.graph.readers.torch_file import read_torch

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


def is_released(folder: Path) -> bool:
    """Whether a folder holds an archive of OGB's link sets: raw/edge.csv.gz and split/NAME/valid.pt."""
    return (folder / "raw" / "edge.csv.gz").is_file() and any((folder / "split").glob("*/valid.pt"))


def read_released(folder: str | Path) -> Graph:
    """The graph of an archive of ogbl-ddi, -collab or -ppa that is unpacked in `folder`.

        raw/edge.csv.gz                  the training edges, each once: both directions become arcs
        split/NAME/valid.pt, test.pt     edge [m, 2] and edge_neg [m, 2]
        raw/node-feat.csv.gz             a vertex's numbers a line, of -collab and -ppa

    >>> read_released("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/folder/raw/edge.csv.gz. Check the path.
    """
    folder = Path(folder)
    path = existing_file(folder / "raw" / "edge.csv.gz")
    arcs = read_table(path, whole=True, columns=2)
    pairs: dict[str, torch.Tensor] = {}
    for mask, stem in (("val", "valid"), ("test", "test")):
        file = next(iter(sorted((folder / "split").glob(f"*/{stem}.pt"))), folder / "split" / f"{stem}.pt")
        arrays = read_torch(file)
        pairs[f"{mask}_pairs"] = _pairs(arrays, "edge", file)
        pairs[f"{mask}_negatives"] = _pairs(arrays, "edge_neg", file)
    top = max([int(arcs.max(initial=-1)), *(int(p.max()) for p in pairs.values() if p.numel())])
    held = path.stat().st_size + sum(p.nbytes for p in pairs.values())
    listed = folder / "raw" / "num-node-list.csv.gz"
    n = int(read_table(listed, whole=True, columns=1).max(initial=0)) if listed.is_file() else top + 1
    check_fits(8 * (n + 1), f"{folder}: {n} vertices", held)
    features = folder / "raw" / "node-feat.csv.gz"
    with about(path):
        graph = Graph.from_arcs(arcs[:, 0], arcs[:, 1], n, name=folder.name).symmetrised()
    with about(folder):
        graph = graph.replace(**pairs)
    if not features.is_file():
        return graph
    return graph.replace(features=torch.from_numpy(per_line(features, n, "vertices")))


def _pairs(arrays: dict[str, np.ndarray], name: str, path: Path) -> torch.Tensor:
    found = arrays.get(name)
    if found is None or found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise UserError(f"{path}: {name} is not a list of pairs [m, 2] of whole numbers. Fetch it again.")
    return torch.from_numpy(found.astype(np.int64))

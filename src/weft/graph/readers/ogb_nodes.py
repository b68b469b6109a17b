"""OGB's node data sets as their archives have them: raw/ with tables, split/NAME/ with vertex numbers.

    raw/edge.csv.gz                  an arc source,target a line
    raw/num-node-list.csv.gz         n; num-edge-list.csv.gz: the number of lines of edge.csv.gz
    raw/node-feat.csv.gz             f numbers a line, a line a vertex       [features]
    raw/edge-feat.csv.gz             d numbers a line, a line an arc         [arc data "features"]
    raw/node-label.csv.gz            a class a line, or c columns of 0 and 1 (ogbn-proteins: many labels)
    raw/node_year.csv.gz, node_species.csv.gz                                [vertex data "year", "species"]
    split/NAME/{train,valid,test}.csv.gz                                     [masks]

papers100M has the same in binary: raw/data.npz (edge_index [2, m], node_feat [n, f], node_year,
num_nodes_list) and raw/node-label.npz (node_label). mag has tables for each type of vertex and relation: its
graph here is that of all types, one after the other, with `type` on vertices and arcs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import existing_file
from weft.graph.readers.merged import note_merged
from weft.graph.readers.npz import arrays_of
from weft.graph.readers.tables import read_table

UNDIRECTED = frozenset({"ogbn-products", "ogbn-proteins"})
"""Sets whose edges stand in the file once and mean both arcs; of others, an arc is one."""
_SPLITS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_BEYOND = {"year": "node_year", "species": "node_species"}
_NO_CLASS = -1


def is_ogb_nodes(folder: Path) -> bool:
    """Whether a folder holds such a set.

    >>> is_ogb_nodes(Path("no/such/folder"))
    False
    """
    raw = folder / "raw"
    return (
        (raw / "edge.csv.gz").is_file()
        or (raw / "data.npz").is_file()
        or (raw / "triplet-type-list.csv.gz").is_file()
    )


def read_ogb_nodes(folder: str | Path, undirected: bool | None = None) -> Graph:
    """The graph of an OGB archive that is unpacked in `folder`.

    `undirected` adds the other direction of every arc; by default as OGB's list of sets says for the
    folder's name.

    >>> read_ogb_nodes("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/folder/raw/num-node-list.csv.gz. Check the path.
    """
    folder = Path(folder)
    if (folder / "raw" / "triplet-type-list.csv.gz").is_file():
        from weft.graph.readers.ogb_types import read_ogb_types

        return read_ogb_types(folder)
    if (folder / "raw" / "data.npz").is_file():
        graph = _binary(folder)
    else:
        graph = _tables(folder)
    graph = graph.replace(**masks(folder, graph.num_nodes))
    if folder.name.lower().replace("_", "-") in UNDIRECTED if undirected is None else undirected:
        graph = graph.symmetrised()
    return graph


def _tables(folder: Path) -> Graph:
    raw = folder / "raw"
    n = one_number(raw / "num-node-list.csv.gz")
    path = existing_file(raw / "edge.csv.gz")
    arcs = read_table(path, whole=True, columns=2)
    if (raw / "num-edge-list.csv.gz").is_file():
        said = one_number(raw / "num-edge-list.csv.gz")
        if said != len(arcs):
            raise UserError(
                f"{path}: {len(arcs):,} lines, num-edge-list.csv.gz says {said:,}. Fetch it again."
            )
    check_fits(8 * (n + 1), f"{folder}: {n} vertices", held=arcs.nbytes + _held(raw))
    carried = {}
    if (raw / "edge-feat.csv.gz").is_file():
        carried["features"] = per_line(raw / "edge-feat.csv.gz", len(arcs), "arcs")
    with about(path):
        graph = Graph.from_arcs(arcs[:, 0], arcs[:, 1], n, arc_data=carried, name=folder.name)
    note_merged(path, len(arcs), graph)
    return graph.replace(**_belongings(raw, n))


def _belongings(raw: Path, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (raw / "node-feat.csv.gz").is_file():
        found["features"] = torch.from_numpy(per_line(raw / "node-feat.csv.gz", n, "vertices"))
    if (raw / "node-label.csv.gz").is_file():
        path = raw / "node-label.csv.gz"
        found["labels"] = labels_of(per_line(path, n, "vertices"), path)
    beyond = {}
    for name, stem in _BEYOND.items():
        if (raw / f"{stem}.csv.gz").is_file():
            beyond[name] = torch.from_numpy(
                per_line(raw / f"{stem}.csv.gz", n, "vertices")[:, 0].astype(np.int64)
            )
    if beyond:
        found["vertex_data"] = beyond
    return found


def _binary(folder: Path) -> Graph:
    """papers100M's two archives."""
    path = folder / "raw" / "data.npz"
    arrays = arrays_of(path)
    arcs = arrays.get("edge_index")
    if arcs is None or arcs.ndim != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise UserError(f"{path}: edge_index is not [2, m] of whole numbers. Fetch it again.")
    n = _count(arrays, path, arcs)
    check_fits(8 * (n + 1), f"{path}: {n} vertices", held=path.stat().st_size)
    with about(path):
        graph = Graph.from_arcs(arcs[0].astype(np.int64), arcs[1].astype(np.int64), n, name=folder.name)
        more: dict[str, Any] = {}
        if "node_feat" in arrays:
            more["features"] = torch.from_numpy(
                _plain(arrays["node_feat"], n, "node_feat").astype(np.float32, copy=False)
            )
        if "node_year" in arrays:
            year = _plain(arrays["node_year"], n, "node_year").reshape(n, -1)[:, 0]
            more["vertex_data"] = {"year": torch.from_numpy(year.astype(np.int64))}
    note_merged(path, arcs.shape[1], graph)
    labels = folder / "raw" / "node-label.npz"
    if labels.is_file():
        with about(labels):
            given = arrays_of(labels).get("node_label")
            if given is None:
                raise UserError(f"{labels} has no array node_label. Fetch it again.")
            more["labels"] = labels_of(_plain(given, n, "node_label").reshape(n, -1), labels)
    return graph.replace(**more)


def _count(arrays: Mapping[str, np.ndarray], path: Path, arcs: np.ndarray) -> int:
    for name in ("num_nodes_list", "num_nodes"):
        if name in arrays:
            given = arrays[name].reshape(-1)
            if given.size != 1 or given.dtype.kind not in "iu" or int(given[0]) < 0:
                raise UserError(f"{path}: {name} is no number of vertices. Fetch it again.")
            return int(given[0])
    return int(arcs.max(initial=-1)) + 1


def _plain(array: np.ndarray, n: int, name: str) -> np.ndarray:
    if (
        array.dtype.kind not in "iuf"
        or array.dtype.itemsize > 8
        or array.ndim not in (1, 2)
        or len(array) != n
    ):
        raise UserError(f"{name} is {list(array.shape)} {array.dtype} for {n} vertices. Fetch it again.")
    return array


def labels_of(table: np.ndarray, path: Path) -> torch.Tensor:
    """[n] classes, -1 where a number is missing; [n, c] of 0 and 1 as many labels.

    >>> labels_of(np.array([[2.0], [np.nan]]), Path("x")).tolist()
    [2, -1]
    """
    if table.shape[1] > 1:
        if not np.isin(table, (0, 1)).all():
            raise UserError(f"{path}: {table.shape[1]} columns that are not all 0 or 1. Fetch it again.")
        return torch.from_numpy(table.astype(bool))
    column = np.where(np.isnan(table[:, 0].astype(np.float64)), _NO_CLASS, table[:, 0]).astype(np.float64)
    if len(column) and (
        (column != np.floor(column)).any() or column.min() < _NO_CLASS or column.max() >= 2**31
    ):
        raise UserError(f"{path}: a label is no class from 0 on. Fetch it again.")
    return torch.from_numpy(column.astype(np.int64))


def masks(folder: Path, n: int, kind: str = "") -> dict[str, torch.Tensor]:
    """The masks of split/NAME, where there is one split."""
    base = folder / "split"
    if not base.is_dir():
        return {}
    names = sorted(p for p in base.iterdir() if p.is_dir())
    if len(names) != 1:
        raise UserError(f"{base} holds {len(names)} splits. Keep one of them.")
    found = {}
    for mask, name in _SPLITS.items():
        path = names[0] / kind / f"{name}.csv.gz"
        if not path.is_file():
            continue
        ids = read_table(path, whole=True, columns=1)[:, 0]
        if len(ids) and not 0 <= ids.min() <= ids.max() < n:
            wild = int(ids.min() if ids.min() < 0 else ids.max())
            raise UserError(f"{path}: vertex {wild} is out of range for {n} vertices. Fetch it again.")
        chosen = torch.zeros(n, dtype=torch.bool)
        chosen[torch.from_numpy(ids)] = True
        found[mask] = chosen
    return found


def one_number(path: Path) -> int:
    """The single whole number of a table."""
    table = read_table(existing_file(path), whole=True, columns=1)
    if table.size != 1 or table[0, 0] < 0:
        raise UserError(f"{path} holds {table.size} numbers, not one size. Fetch it again.")
    return int(table[0, 0])


def per_line(path: Path, count: int, what: str) -> np.ndarray:
    """The numbers of a table that has a line for each of so many vertices or arcs. [count, columns]"""
    table = read_table(path)
    if len(table) != count:
        raise UserError(f"{path}: {len(table):,} lines for {count:,} {what}. Fetch it again.")
    return table


def _held(raw: Path) -> int:
    """Bytes of the tables: what they may ask for is bound by them."""
    return sum(
        p.stat().st_size for p in raw.iterdir() if p.is_file() and re.search(r"\.(csv\.gz|npz)$", p.name)
    )

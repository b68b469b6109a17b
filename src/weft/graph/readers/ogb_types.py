"""ogbn-mag's archive: tables for each type of vertex, and for each relation between two types.

    raw/num-node-dict.csv.gz                    a line of type names, a line of their counts
    raw/triplet-type-list.csv.gz                a line source type,relation,target type each
    raw/relations/SOURCE___RELATION___TARGET/edge.csv.gz
    raw/node-feat/TYPE/node-feat.csv.gz, raw/node-label/TYPE/node-label.csv.gz
    split/NAME/TYPE/{train,valid,test}.csv.gz

The types stand one after the other in one graph, in the order of the names: vertex data "type" and arc data
"type" say which (of relations the number in the list), so `--model rgcn` reads it. A type without features
has zeros, one without labels -1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import existing_file, read_bytes
from weft.graph.readers.tables import read_table

_MOST_TYPES = 10_000


def read_ogb_types(folder: Path) -> Graph:
    """The graph of all types together."""
    from weft.graph.readers.ogb_nodes import labels_of, masks

    raw = folder / "raw"
    counts = _counts(raw / "num-node-dict.csv.gz")
    starts = dict(zip(counts, np.cumsum([0, *list(counts.values())[:-1]]).tolist(), strict=True))
    n = sum(counts.values())
    held = sum(p.stat().st_size for p in raw.rglob("*.csv.gz"))
    check_fits(24 * (n + 1), f"{folder}: {n} vertices", held=held)
    sources, targets, kinds = [], [], []
    for number, (source, relation, target) in enumerate(_triplets(raw / "triplet-type-list.csv.gz", counts)):
        path = existing_file(raw / "relations" / f"{source}___{relation}___{target}" / "edge.csv.gz")
        arcs = read_table(path, whole=True, columns=2)
        for column, kind in ((0, source), (1, target)):
            ids = arcs[:, column]
            if len(ids) and not 0 <= ids.min() <= ids.max() < counts[kind]:
                wild = int(ids.min() if ids.min() < 0 else ids.max())
                raise UserError(f"{path}: {kind} {wild} is out of range for {counts[kind]}. Fetch it again.")
        sources.append(arcs[:, 0] + starts[source])
        targets.append(arcs[:, 1] + starts[target])
        kinds.append(np.full(len(arcs), number))
    with about(folder):
        graph = Graph.from_arcs(
            np.concatenate(sources), np.concatenate(targets), n,
            arc_data={"type": np.concatenate(kinds)}, name=folder.name,
        )  # fmt: skip
    more: dict[str, Any] = {
        "vertex_data": {"type": torch.from_numpy(np.repeat(np.arange(len(counts)), list(counts.values())))}
    }
    for kind, count in counts.items():
        rows = slice(starts[kind], starts[kind] + count)
        path = raw / "node-feat" / kind / "node-feat.csv.gz"
        if path.is_file():
            table = _of(path, count)
            if "features" not in more:
                check_fits(4 * n * table.shape[1], f"{folder}: features {n}x{table.shape[1]}", held=held)
                more["features"] = torch.zeros(n, table.shape[1])
            if more["features"].shape[1] != table.shape[1]:
                raise UserError(
                    f"{path}: {table.shape[1]} columns, another type has {more['features'].shape[1]}."
                )
            more["features"][rows] = torch.from_numpy(table)
        path = raw / "node-label" / kind / "node-label.csv.gz"
        if path.is_file():
            labels = labels_of(_of(path, count), path)
            if labels.ndim > 1 or "labels" in more:
                raise UserError(f"{path}: labels of several kinds. weft learns one kind. Remove the others.")
            more["labels"] = torch.full((n,), -1)
            more["labels"][rows] = labels
            for name, mask in masks(folder, count, kind).items():
                more[name] = torch.zeros(n, dtype=torch.bool)
                more[name][rows] = mask
    with about(folder):
        return graph.replace(**more)


def _of(path: Path, count: int) -> np.ndarray:
    table = read_table(path)
    if len(table) != count:
        raise UserError(f"{path}: {len(table):,} lines for {count:,} vertices. Fetch it again.")
    return table


def _words(path: Path) -> list[list[str]]:
    try:
        lines = read_bytes(existing_file(path)).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text. Fetch it again.") from None
    return [[word.strip() for word in line.split(",")] for line in lines if line.strip()]


def _counts(path: Path) -> dict[str, int]:
    lines = _words(path)
    if len(lines) != 2 or len(lines[0]) != len(lines[1]) or len(lines[0]) > _MOST_TYPES:
        raise UserError(f"{path} is not a line of types and a line of counts. Fetch it again.")
    if not all(count.isdecimal() and count.isascii() and len(count) < 16 for count in lines[1]):
        raise UserError(f"{path}: line 2 holds something that is no count. Fetch it again.")
    return dict(zip(lines[0], map(int, lines[1]), strict=True))


def _triplets(path: Path, counts: dict[str, int]) -> list[list[str]]:
    found = _words(path)
    for number, words in enumerate(found, 1):
        if (
            len(words) != 3
            or words[0] not in counts
            or words[2] not in counts
            or "/" in words[1] + words[0] + words[2]
        ):
            raise UserError(f"{path}: line {number} is not source type,relation,target type. Fetch it again.")
    if not found:
        raise UserError(f"{path} names no relation. Fetch it again.")
    return found

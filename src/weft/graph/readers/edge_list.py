"""Edge lists: one arc a line, `source target [weight]`, or with columns that the user names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.arrays import check_name
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.columns import SKIP, leading_comments, read_columns, read_named_columns
from weft.graph.readers.files import read_bytes, stem
from weft.graph.readers.merged import note_merged

_HEAD_NODES = re.compile(rb"(?mi)^[#%].*?\bNodes:\s*(\d{1,18})\b")
_HEAD_UNDIRECTED = re.compile(rb"(?mi)^[#%]\s*undirected graph\b")


def read_edge_list(
    path: str | Path,
    undirected: bool | None = None,
    num_nodes: int | None = None,
    arc_columns: Sequence[str] | None = None,
) -> Graph:
    """The graph of an edge list: .txt, .tsv or .csv, perhaps gzip.

        source<sep>target[<sep>weight]      sep: tab, spaces or comma; '#' and '%' begin a comment line

    A first line without any number is a header and skipped. Each arc goes source → target. With
    `undirected` both directions are stored; None asks the comments, as SNAP writes "# Undirected graph".
    Ids that do not fill 0..n-1 are compacted in ascending order and kept in `Graph.ids`; where `num_nodes` or
    a comment "# Nodes: n" says that n is larger than every id, ids stay, and vertices without arcs count.

    `arc_columns` names all columns after the two ids: they become arc data, whole numbers from 0 on as int64,
    others as float64; `weight` gives the weights, `_` skips a column. A name that several columns have is one
    array of them, [arcs, d], in the order of the columns. Of an arc given twice the first line's
    data are kept, and a warning says how many there were.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.txt"
    ...     _ = path.write_text("# a comment\\n10 20\\n20 70\\n")
    ...     g = read_edge_list(path)
    >>> g, g.ids.tolist(), g.indices.tolist()
    (Graph(toy: 3 vertices, 2 arcs), [10, 20, 70], [0, 1])
    """
    data = read_bytes(path)
    head = leading_comments(data)
    if undirected is None:
        undirected = bool(_HEAD_UNDIRECTED.search(head))
    carried: dict[str, np.ndarray] = {}
    if arc_columns is None:
        source, target, weights = read_columns(data, path)
    else:
        (source, target, weights), carried = read_named_columns(data, path, _checked(arc_columns))

    said = _HEAD_NODES.search(head)
    top = int(max(source.max(initial=-1), target.max(initial=-1)))
    if num_nodes is not None and top >= num_nodes:
        raise UserError(f"{path}: vertex id {top} is out of range for {num_nodes} vertices. Correct the id.")
    ids: np.ndarray | None = None
    n = num_nodes
    if n is None and said and top < int(said[1]):
        n = int(said[1])
    if n is None:
        ids, source, target = _compact(source, target, top)
        n = top + 1 if ids is None else len(ids)
    check_fits(8 * (n + 1), f"{path}: {n} vertices", held=len(data))
    kept = None if ids is None else torch.from_numpy(ids)
    with about(path):
        graph = Graph.from_arcs(source, target, n, weights, carried, ids=kept, name=stem(path))
    note_merged(path, len(source), graph)
    return graph.symmetrised() if undirected else graph


def parse_columns(text: str) -> list[str]:
    """The names of columns as people write them.

    >>> parse_columns("weight, time,_")
    ['weight', 'time', '_']
    >>> parse_columns("weight, weight")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: arc column 'weight' is named twice: an arc has one weight. Use another name, or ...
    """
    return _checked([name.strip() for name in text.split(",")])


def _checked(names: Sequence[str]) -> list[str]:
    for name in names:
        if name in (SKIP, "weight"):
            continue
        if name in ("source", "target"):
            raise UserError(
                f"arc column {name!r} stands before the named ones: name those after the two ids."
            )
        check_name(name, "arc")
    if list(names).count("weight") > 1:
        raise UserError(
            "arc column 'weight' is named twice: an arc has one weight. Use another name, or _ to skip one."
        )
    return list(names)


def _compact(
    source: np.ndarray, target: np.ndarray, top: int
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The ids that occur, ascending, and the arcs renumbered; None for the ids 0, 1, …, n-1."""
    if top < 8 * len(source) + 1024:
        present = np.zeros(top + 1, dtype=bool)
        present[source] = True
        present[target] = True
        if present.all():
            return None, source, target
        rank = np.cumsum(present) - 1
        return np.nonzero(present)[0], rank[source], rank[target]
    ids, rank = np.unique(np.concatenate([source, target]), return_inverse=True)
    return ids, rank[: len(source)], rank[len(source) :]

"""Edge lists: one arc a line, `source target [weight]`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.columns import leading_comments, read_columns
from weft.graph.readers.files import read_bytes, stem

_HEAD_NODES = re.compile(rb"(?mi)^[#%].*?\bNodes:\s*(\d{1,18})\b")
_HEAD_UNDIRECTED = re.compile(rb"(?mi)^[#%]\s*undirected graph\b")


def read_edge_list(path: str | Path, undirected: bool | None = None, num_nodes: int | None = None) -> Graph:
    """The graph of an edge list: .txt, .tsv or .csv, perhaps gzip.

        source<sep>target[<sep>weight]      sep: tab, spaces or comma; '#' and '%' begin a comment line

    A first line without any number is a header and skipped. Each arc goes source → target. With
    `undirected` both directions are stored; None asks the comments, as SNAP writes "# Undirected graph".
    Ids that do not fill 0..n-1 are compacted in ascending order and kept in `Graph.ids`; where `num_nodes` or
    a comment "# Nodes: n" says that n is larger than every id, ids stay, and vertices without arcs count.

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
    source, target, weights = read_columns(data, path)

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
        graph = Graph.from_arcs(source, target, n, weights, ids=kept, name=stem(path))
    return graph.symmetrised() if undirected else graph


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

"""The graph model: METIS on the symmetrised graph, which counts every cut arc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import numpy as np

from ..errors import UserError
from ..graph import Graph
from ..graph.guard import check_fits
from .arcs import row_weights


def metis_bytes(vertices: int, arcs: int) -> int:
    """What METIS takes: the symmetrised arcs, and its levels.

    >>> metis_bytes(10**6, 10**7)
    740000000
    """
    return 64 * arcs + 100 * vertices


def metis(
    graph: Graph, parts: int, epsilon: float, seed: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Parts of about equal work with few arcs between them; the same seed gives the same parts. [n]

    minimises  arcs between parts, every arc in both directions        subject to  work ≤ (1 + ε) mean

    The work of a vertex is its weight, [n] whole numbers; by default the nonzeros of its row.
    """
    try:
        import pymetis
    except ImportError:
        raise UserError("the method 'metis' needs pymetis. Use: pip install 'weft[partition]'.") from None
    needed = metis_bytes(graph.num_nodes, graph.num_arcs)
    check_fits(needed, "METIS on the symmetrised graph", remedy="Use the method stream, or more memory.")
    both = Graph(graph.indptr, graph.indices).without_self_loops().symmetrised()
    # METIS counts its imbalance in thousandths, and takes no zero.
    options = pymetis.Options(seed=seed % 2**31, ufactor=max(1, round(1000 * epsilon)))
    adjacency = pymetis.CSRAdjacency(both.indptr.numpy(), both.indices.numpy())
    weights = row_weights(graph) if weights is None else weights
    with _stdout_to_stderr():
        made = pymetis.part_graph(parts, adjacency, vweights=weights, options=options, warn_on_copies=False)
    return np.asarray(made.vertex_part, dtype=np.int64)


def cut_weighted(
    low: np.ndarray, high: np.ndarray, times: np.ndarray, weights: np.ndarray, parts: int, epsilon: float,
    seed: int,
) -> np.ndarray:  # fmt: skip
    """The same of a graph given by its undirected edges, each once, which count `times`. [n]"""
    import pymetis

    indptr, column, many = _both_ways(low, high, np.minimum(times, 2**20), len(weights))
    # Some builds of METIS add up in 32 bits.
    unit = -(-int(weights.sum()) // 2**30) or 1
    options = pymetis.Options(seed=seed % 2**31, ufactor=max(1, round(1000 * epsilon)))
    with _stdout_to_stderr():
        made = pymetis.part_graph(
            parts, pymetis.CSRAdjacency(indptr, column), vweights=-(-weights // unit), eweights=many,
            options=options, warn_on_copies=False,
        )  # fmt: skip
    return np.asarray(made.vertex_part, dtype=np.int64)


def _both_ways(
    low: np.ndarray, high: np.ndarray, times: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr, columns, times) of each edge in both directions, as METIS takes them: int64."""
    order = np.argsort(np.concatenate((low, high)), kind="stable")
    counts = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    column = np.concatenate((high, low))[order].astype(np.int64)
    return indptr, column, np.concatenate((times, times))[order].astype(np.int64)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """METIS prints its warnings on standard output, where `--json` promises one object and nothing else."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C has buffered belongs to standard error, too
        os.dup2(kept, 1)
        os.close(kept)

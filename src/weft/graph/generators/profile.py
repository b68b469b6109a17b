"""The degrees and the clustering of a graph, for a BTER graph that is like it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.errors import UserError
from weft.graph.generators.common import generator, positive
from weft.graph.graph import Graph

_SAMPLED = 40
"""Vertices of each degree whose neighbours are looked at, at most."""
_WIDEST = 2000
"""Neighbours that are looked at, of a vertex with more."""


class Profile(NamedTuple):
    """degrees[d] vertices have degree d; the mean share of closed triangles at them is clustering[d]."""

    degrees: np.ndarray
    clustering: np.ndarray

    def times(self, factor: int, nodes: int = 0) -> Profile:
        """As many vertices, or `nodes`, each with `factor` times the neighbours; clustering goes along.

        >>> some = Profile(np.array([0, 3, 0, 5]), np.array([0, 0, 0, 0.5]))
        >>> more = some.times(2)
        >>> np.flatnonzero(more.degrees).tolist(), more.degrees[6], more.clustering[6]
        ([2, 6], np.int64(5), np.float64(0.5))
        """
        positive("times", factor)
        counts, n = self.degrees, int(self.degrees.sum())
        if nodes and nodes != n:  # the same shares of every degree, rounded such that they add up
            positive("nodes", nodes, least=2)
            edges = np.rint(np.cumsum(counts) * (nodes / max(n, 1))).astype(np.int64)
            counts, n = np.diff(edges, prepend=0), nodes
        held = np.flatnonzero(counts)
        wanted = np.minimum(held * factor, max(n - 1, 0))
        size = int(wanted.max(initial=0)) + 1
        degrees, clustering = np.zeros(size, np.int64), np.zeros(size)
        np.add.at(degrees, wanted, counts[held])
        clustering[wanted] = self.clustering[held]
        return Profile(degrees, clustering)


def profile_of(graph: Graph, seed: int = 0) -> Profile:
    """The profile of a graph, its arcs taken as undirected edges, loops left out.

    Degrees are counted of all vertices, closed triangles of some of each degree.

    >>> triangle_and_tail = Graph.from_arcs([0, 1, 2, 2], [1, 2, 0, 3])
    >>> found = profile_of(triangle_and_tail)
    >>> found.degrees.tolist(), found.clustering.round(2).tolist()
    ([0, 1, 2, 1], [0.0, 0.0, 1.0, 0.33])
    """
    rows, columns = graph.rows.numpy(), graph.indices.numpy().astype(np.int64)
    n = graph.num_nodes
    if not n:
        raise UserError("a graph without vertices has no profile. Give another to --like.")
    keep = rows != columns
    ends = np.concatenate([rows[keep], columns[keep]]), np.concatenate([columns[keep], rows[keep]])
    keys = np.unique(ends[0] * n + ends[1])
    source, target = np.divmod(keys, n)
    degree = np.bincount(source, minlength=n)
    starts = np.concatenate([[0], np.cumsum(degree)])
    counts = np.bincount(degree)
    clustering = np.zeros(len(counts))
    order = np.argsort(degree, kind="stable")
    firsts = np.concatenate([[0], np.cumsum(counts)])
    rng = generator(seed)
    near = np.zeros(n, dtype=bool)
    for d in np.flatnonzero(counts):
        if d < 2:
            continue
        some = order[firsts[d] : firsts[d + 1]]
        if len(some) > _SAMPLED:
            some = rng.choice(some, _SAMPLED, replace=False)
        clustering[d] = np.mean([_closed(v, starts, target, near, rng) for v in some])
    return Profile(counts, clustering)


def _closed(
    v: int, starts: np.ndarray, target: np.ndarray, near: np.ndarray, rng: np.random.Generator
) -> float:
    """The share of pairs of neighbours of v that are neighbours of each other."""
    around = target[starts[v] : starts[v + 1]]
    if len(around) > _WIDEST:
        around = rng.choice(around, _WIDEST, replace=False)
    near[around] = True
    lengths = starts[around + 1] - starts[around]
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1]) + np.repeat(starts[around] - (ends - lengths), lengths)
    closed = int(near[target[places]].sum())
    near[around] = False
    return closed / (len(around) * (len(around) - 1))

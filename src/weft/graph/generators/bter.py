"""BTER (Kolda, Pinar, Plantenga, Seshadhri 2014): a degree distribution and a clustering for each degree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.errors import UserError
from weft.graph.generators.common import check_arcs, furnish, generator, positive, undirected
from weft.graph.generators.profile import profile_of
from weft.graph.graph import Graph


def bter(
    degrees: Sequence[int] | np.ndarray | None = None,
    clustering: float | Sequence[float] | np.ndarray = 0.5,
    seed: int = 0,
    *,
    nodes: int = 10_000,
    degree: float = 10,
    max_degree: int | None = None,
    like: str = "",
    times: int = 1,
    features: int = 0,
    classes: int = 0,
) -> Graph:
    """Block two-level Erdős–Rényi graph, undirected.

        degrees[d]      number of vertices that shall have degree d
        clustering[d]   mean share of closed triangles at vertices of degree d; one number serves all

    *Blocks*: vertices of degree 2 and more, in order of degree, fall into blocks of d+1, d the smallest
    degree inside; each pair of a block is joined with probability ρ = clustering[d]^(1/3), so that ρ³ of the
    triangles close. *Excess*: the stubs that a vertex then still lacks are paired at random over the whole
    graph. (Chung and Lu's expected arcs, but drawn as stubs: degrees come out right except where a pair is a
    loop or a duplicate, and degree 1 needs no correction.) Vertex labels are permuted.

    Without `degrees`, `power_law(nodes, degree, max_degree)` gives them; or `like` names a graph (a data set
    or a file) whose degrees and clustering they are, each degree `times` over: MG-GCN's 1x to 128x of Arxiv.

    >>> bter(like="karate", times=2).num_arcs / bter(like="karate").num_arcs > 1.5
    True

    >>> bter([0, 100, 50, 20, 10], clustering=[0, 0, 0.4, 0.3, 0.2])
    Graph(bter: 180 vertices, 298 arcs)
    """
    if like or times != 1:
        degrees, clustering = like_degrees(like, times, degrees is not None, seed)
    counts = power_law(nodes, degree, max_degree) if degrees is None else _counts(degrees)
    target = _clustering(clustering, len(counts))
    n = int(counts.sum())
    wanted = np.repeat(np.arange(len(counts)), counts)  # ascending
    check_arcs(n, int(wanted.sum()))
    rng = generator(seed)

    # Blocks
    first = int(np.searchsorted(wanted, 2))
    starts = block_starts(wanted, first)
    sizes = np.diff(np.append(starts, n))
    position = np.arange(first, n) - np.repeat(starts, sizes)  # place inside the block, 0 first
    total = int(position.sum())
    u = np.repeat(np.arange(first, n), position)  # each vertex with all earlier ones of its block
    v = u - 1 - (np.arange(total) - np.repeat(np.cumsum(position) - position, position))
    rho = np.cbrt(target[wanted[starts]])
    joined = rng.random(total) < np.repeat(np.repeat(rho, sizes), position)
    u, v = u[joined], v[joined]

    # Excess
    have = np.bincount(u, minlength=n) + np.bincount(v, minlength=n)
    u, v = _pair_stubs(rng, np.repeat(np.arange(n), wanted - have), u, v, n)
    names = rng.permutation(n)
    return furnish(undirected(names[u], names[v], n, name="bter"), features, classes, rng)


def like_degrees(name: str, times: int, given: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(degrees, clustering) of the graph that is named, times over."""
    from weft.graph.loading import load  # which knows the generators

    if not name:
        raise UserError(f"times={times} multiplies the degrees of another graph. Name it: like=GRAPH.")
    if given:
        raise UserError("degrees and like both say which degrees there shall be. Give one of them.")
    found = profile_of(load(name), seed).times(times)
    return found.degrees, found.clustering


def power_law(nodes: int, degree: float, max_degree: int | None = None) -> np.ndarray:
    """Counts per degree 1..max_degree proportional to d^-γ, with γ such that the mean is `degree`.

    >>> counts = power_law(10_000, 10, 200)
    >>> int(counts.sum()), round(float((counts * np.arange(len(counts))).sum() / 10_000), 1)
    (10000, 10.0)
    """
    positive("nodes", nodes, least=2)
    top = min(nodes - 1, max(round(20 * degree), 2)) if max_degree is None else max_degree
    if not 1 <= top < nodes:
        raise UserError(f"max_degree={top} does not suit nodes={nodes}. Use 1 to {nodes - 1}.")
    if not 1 <= degree <= (1 + top) / 2:
        raise UserError(
            f"degree={degree} does not suit max_degree={top}. Use a degree from 1 to {(1 + top) / 2}."
        )
    d = np.arange(1, top + 1, dtype=np.float64)
    lo, hi = 0.0, 60.0
    for _ in range(80):  # bisect: the mean falls as γ grows
        gamma = (lo + hi) / 2
        share = d**-gamma / (d**-gamma).sum()
        lo, hi = (gamma, hi) if (share * d).sum() > degree else (lo, gamma)
    edges = np.rint(np.cumsum(share) * nodes).astype(np.int64)
    return np.concatenate([[0], np.diff(edges, prepend=0)])


def _pair_stubs(
    rng: np.random.Generator, stubs: np.ndarray, u: np.ndarray, v: np.ndarray, n: int, rounds: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Edges (u, v) with the stubs paired at random; stubs of a loop or a duplicate are shuffled again."""
    keys = np.unique(np.minimum(u, v) * n + np.maximum(u, v))
    for _ in range(rounds):
        stubs = rng.permutation(stubs)
        half = len(stubs) // 2
        if not half:
            break
        a, b = stubs[:half], stubs[half : 2 * half]
        new = np.minimum(a, b) * n + np.maximum(a, b)
        _, where = np.unique(new, return_index=True)
        fresh = np.zeros(half, dtype=bool)
        fresh[where] = True
        fresh &= (a != b) & ~np.isin(new, keys)
        keys = np.union1d(keys, new[fresh])
        stubs = np.concatenate([a[~fresh], b[~fresh], stubs[2 * half :]])
    return np.divmod(keys, max(n, 1))


def block_starts(wanted: np.ndarray, first: int) -> np.ndarray:
    """Where BTER's blocks begin among vertices in the order of their degree, from `first` on."""
    starts = []
    at = first
    while at < len(wanted):  # one turn a block, not a vertex: n/d turns
        starts.append(at)
        at += int(wanted[at]) + 1
    return np.array(starts, dtype=np.int64)


def _counts(degrees: Sequence[int] | np.ndarray) -> np.ndarray:
    counts = np.asarray(degrees)
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu":
        raise UserError("degrees must be a list of whole numbers: how many vertices have degree 0, 1, 2, …")
    if counts.min() < 0:
        at = int(np.argmin(counts))
        raise UserError(f"degrees[{at}] is {counts[at]}. A count of vertices cannot be negative.")
    if len(counts) > counts.sum():
        raise UserError(
            f"degree {len(counts) - 1} needs more than the {counts.sum()} vertices given. Give more, or less."
        )
    return counts.astype(np.int64)


def _clustering(given: float | Sequence[float] | np.ndarray, length: int) -> np.ndarray:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim == 0:
        values = np.full(length, float(values))
    if values.shape != (length,):
        raise UserError(
            f"{values.size} clustering values for degrees 0 to {length - 1}. Give {length}, or one for all."
        )
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        at = int(np.nonzero(wrong)[0][0])
        raise UserError(f"clustering[{at}] is {values[at]}. Use a number from 0 to 1.")
    return values

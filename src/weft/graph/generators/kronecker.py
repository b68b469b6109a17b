"""Graph500's Kronecker graph: heavy-tailed degrees, from an R-MAT recursion."""

from __future__ import annotations

import numpy as np

from weft.errors import UserError
from weft.graph.generators.common import check_arcs, furnish, generator, positive, undirected
from weft.graph.graph import Graph

A, B, C = 0.57, 0.19, 0.19  # Graph500's corner probabilities; D is the rest
MAX_SCALE = 31


def kronecker(
    scale: int | None = None,
    degree: float = 16,
    seed: int = 0,
    *,
    nodes: int | None = None,
    directed: bool = False,
    features: int = 0,
    classes: int = 0,
) -> Graph:
    """A Kronecker graph of n = 2^scale vertices with about `degree` arcs a vertex.

    Each edge picks, bit by bit, a quadrant of the adjacency matrix with probabilities A, B, C, D. Then labels
    are permuted, duplicates and self-loops removed, and a vertex left without arcs is joined to a random one.
    n·degree/2 edges are drawn and stored in both directions; with `directed`, n·degree arcs.

    `features` and `classes` add random ones with a split, to time training on; there is nothing to learn.

    >>> kronecker(scale=8, degree=8)
    Graph(kronecker: 256 vertices, 1604 arcs)
    >>> kronecker(nodes=1000)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: kronecker needs a power of two; nodes=1000 is none. Use nodes=512 or nodes=1024.
    """
    scale = _scale(scale, nodes)
    positive("degree", degree, least=0)
    n = 1 << scale
    draws = round(n * degree if directed else n * degree / 2)
    check_arcs(n, n * degree)
    rng = generator(seed)
    u, v = _rmat(rng, scale, draws)
    names = rng.permutation(n)
    u, v = names[u], names[v]
    keep = u != v
    u, v = u[keep], v[keep]

    lonely = np.nonzero(np.bincount(u, minlength=n) + np.bincount(v, minlength=n) == 0)[0]
    if n > 1:
        other = rng.integers(n - 1, size=len(lonely))
        u, v = np.concatenate([u, lonely]), np.concatenate([v, other + (other >= lonely)])
    graph = Graph.from_arcs(u, v, n, name="kronecker") if directed else undirected(u, v, n, name="kronecker")
    return furnish(graph, features, classes, rng)


def _rmat(rng: np.random.Generator, scale: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    u = np.zeros(draws, dtype=np.int64)
    v = np.zeros(draws, dtype=np.int64)
    for _ in range(scale):
        low = rng.random(draws, dtype=np.float32) > A + B  # lower half of the matrix
        edge = np.where(low, np.float32(C / (1 - A - B)), np.float32(A / (A + B)))
        right = rng.random(draws, dtype=np.float32) > edge
        u = 2 * u + low
        v = 2 * v + right
    return u, v


def _scale(scale: int | None, nodes: int | None) -> int:
    if nodes is None:
        scale = 14 if scale is None else scale
        if not 0 <= scale <= MAX_SCALE:
            raise UserError(f"scale={scale} means 2^{scale} vertices. Use a scale from 0 to {MAX_SCALE}.")
        return scale
    positive("nodes", nodes)
    below = 1 << (nodes.bit_length() - 1)
    if below != nodes:
        raise UserError(
            f"kronecker needs a power of two; nodes={nodes} is none. Use nodes={below} or nodes={2 * below}."
        )
    implied = below.bit_length() - 1
    if scale is not None and scale != implied:
        raise UserError(
            f"scale={scale} and nodes={nodes} disagree: nodes={nodes} is scale={implied}. Give one of them."
        )
    return _scale(implied, None)

"""Erdős–Rényi: every possible arc alike."""

from __future__ import annotations

import numpy as np

from weft.graph.generators.common import check_arcs, distinct, furnish, generator, positive, undirected
from weft.graph.graph import Graph


def er(
    nodes: int = 10_000,
    degree: float = 16,
    seed: int = 0,
    *,
    directed: bool = False,
    features: int = 0,
    classes: int = 0,
) -> Graph:
    """G(n, p) with p = degree/(n-1), no self-loops; `directed` draws each arc by itself.

    The number of edges is binomial, the edges then a uniform subset: O(arcs) work, not O(n²).
    `features` and `classes` add random ones with a split, to time training on; there is nothing to learn.

    >>> er(nodes=100, degree=4).is_symmetric, er(nodes=100, degree=4, directed=True).is_symmetric
    (True, False)
    """
    positive("nodes", nodes)
    positive("degree", degree, least=0)
    n = nodes
    check_arcs(n, n * min(degree, n))
    rng = generator(seed)
    pairs = n * (n - 1) if directed else n * (n - 1) // 2
    p = min(1.0, degree / max(n - 1, 1))
    chosen = distinct(rng, pairs, int(rng.binomial(pairs, p)))
    if directed:
        u, v = np.divmod(chosen, max(n - 1, 1))
        graph = Graph.from_arcs(u, v + (v >= u), n, name="er")
    else:
        # Pair k joins c and c + d (mod n): d = k//n + 1, c = k mod n. For even n the last distance n/2 has
        # only n/2 starts, which is just where n(n-1)/2 ends; so each unordered pair has exactly one k.
        step, u = np.divmod(chosen, n)
        graph = undirected(u, (u + step + 1) % n, n, name="er")
    return furnish(graph, features, classes, rng)

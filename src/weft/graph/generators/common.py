"""What the generators share: distinct draws, symmetric arcs, random features and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import check_fits
from weft.graph.split import split


def generator(seed: int) -> np.random.Generator:
    """The source of random numbers for a seed.

    >>> generator(-1)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: seed=-1 is negative. Use 0 or more.
    """
    if seed < 0:
        raise UserError(f"seed={seed} is negative. Use 0 or more.")
    return np.random.default_rng(seed)


def distinct(rng: np.random.Generator, population: int, count: int) -> np.ndarray:
    """`count` different numbers below `population`, every subset equally likely, in ascending order.

    >>> distinct(np.random.default_rng(0), 5, 5).tolist()
    [0, 1, 2, 3, 4]
    """
    if not count:
        return np.zeros(0, dtype=np.int64)
    if population < 4 * count:
        return np.sort(rng.permutation(population)[:count])
    drawn = np.unique(rng.integers(population, size=count + count // 8 + 16))
    while len(drawn) < count:
        drawn = np.union1d(drawn, rng.integers(population, size=count))
    return drawn if len(drawn) == count else np.sort(rng.permutation(drawn)[:count])


def undirected(u: np.ndarray, v: np.ndarray, n: int, **rest: Any) -> Graph:
    """The graph of edges {u, v}: both arcs of each, duplicates and self-loops left out.

    >>> undirected(np.array([0, 1, 2]), np.array([1, 0, 2]), 3).num_arcs
    2
    """
    keep = u != v
    u, v = u[keep], v[keep]
    return Graph.from_arcs(np.concatenate([u, v]), np.concatenate([v, u]), n, **rest)


def furnish(graph: Graph, features: int, classes: int, rng: np.random.Generator) -> Graph:
    """Random features [n, features] and labels below `classes`, with a split: enough to time training on.

    >>> g = furnish(Graph.from_arcs([0], [1], num_nodes=50), 4, 3, np.random.default_rng(0))
    >>> g.num_features, g.num_classes, int(g.train_mask.sum())
    (4, 3, 30)
    """
    n = graph.num_nodes
    positive("features", features, least=0)
    positive("classes", classes, least=0)
    check_fits(4 * n * features, f"features of width {features}")
    if features:
        graph = graph.replace(features=torch.from_numpy(rng.standard_normal((n, features), dtype=np.float32)))
    if classes:
        labels = torch.from_numpy(rng.integers(classes, size=n))
        graph = split(graph.replace(labels=labels, num_classes=classes), seed=int(rng.integers(2**31)))
    return graph


def positive(key: str, value: float, least: float = 1) -> None:
    """Refuse a size below `least`, or without end.

    >>> positive("nodes", 0)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: nodes=0 is no such size. Use 1 or more.
    """
    if not least <= value < float("inf"):
        raise UserError(f"{key}={value} is no such size. Use {least} or more.")


def fraction(key: str, value: float) -> None:
    """Refuse a share outside 0..1.

    >>> fraction("homophily", 1.5)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: homophily=1.5 is not a fraction. Use a number from 0 to 1.
    """
    if not 0 <= value <= 1:
        raise UserError(f"{key}={value} is not a fraction. Use a number from 0 to 1.")


def check_arcs(n: int, arcs: float) -> None:
    """Refuse a graph whose arcs (with the scratch to draw and sort them) exceed this machine.

    >>> check_arcs(10, 1000.0)
    """
    check_fits(int(8 * (n + 1) + 48 * arcs), f"a graph of {n} vertices and about {int(arcs)} arcs")

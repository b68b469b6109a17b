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


def furnish_arcs(graph: Graph, features: int, types: int, seed: int) -> Graph:
    """Random arc data: "features" [nnz, features] float32 ~ N(0, 1), "type" [nnz] int64 below `types`.

    They follow from (seed, source, target) and the column, whatever else is in the graph; the two directions
    of an edge differ.

    >>> g = furnish_arcs(Graph.from_arcs([0, 1], [1, 0]), features=3, types=5, seed=0)
    >>> g.arc_data["features"].shape, g.arc_data["type"].tolist()
    (torch.Size([2, 3]), [0, 2])
    """
    positive("arc_features", features, least=0)
    positive("arc_types", types, least=0)
    if types > _MOST_TYPES:
        raise UserError(f"arc_types={types} is above {_MOST_TYPES}. Use fewer.")
    generator(seed)  # refuses a negative one
    check_fits(graph.num_arcs * (4 * features + 16), f"arc features of width {features}")
    rows, columns = graph.rows.numpy(), graph.indices.numpy()
    data = dict(graph.arc_data)
    if features:
        wide = np.empty((graph.num_arcs, features), dtype=np.float32)
        step = max(1, _CHUNK // features)
        for at in range(0, graph.num_arcs, step):
            part = slice(at, at + step)
            wide[part] = _normal(_state(seed, columns[part], rows[part]), features)
        data["features"] = torch.from_numpy(wide)
    if types:
        words = _mixed(_state(seed, columns, rows) + _TYPES)
        data["type"] = torch.from_numpy(
            ((words >> np.uint64(32)) * np.uint64(types) >> np.uint64(32)).view(np.int64)
        )
    return graph.replace(arc_data=data)


_MOST_TYPES = 2**31
"""Types are drawn from 32 bits."""
_CHUNK = 1 << 20
"""Random numbers that are drawn at a time."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_TYPES = np.uint64(0xD1B54A32D192ED03)


def _mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix64 (Steele, Lea and Flood, 2014): a word of each state; all its bits depend on all of that."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _state(seed: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[nnz] uint64: where the random numbers of each arc begin."""
    key = _mixed(np.array([seed % 2**64], dtype=np.uint64) + _STEP)
    return _mixed(_mixed(key + source.astype(np.uint64) * _STEP) + target.astype(np.uint64) * _STEP)


def _normal(state: np.ndarray, width: int) -> np.ndarray:
    """[nnz, width] ~ N(0, 1), two at a time by Box and Muller."""
    half = -(-width // 2)
    steps = (np.arange(1, 2 * half + 1, dtype=np.uint64) * _STEP)[None]
    words = _mixed(state[:, None] + steps) >> np.uint64(11)
    u, v = ((words[:, k::2] + 0.5) * 2.0**-53 for k in (0, 1))
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return both.reshape(len(state), 2 * half)[:, :width]


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

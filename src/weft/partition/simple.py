"""Assignments that look at no arc: blocks, at random, by a hash of the vertex."""

from __future__ import annotations

import numpy as np


def block(n: int, parts: int) -> np.ndarray:
    """Vertices in their order, cut into even blocks, the larger ones first.

    >>> block(7, 3).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    least, more = divmod(n, parts)
    return np.repeat(np.arange(parts), [least + (part < more) for part in range(parts)])


def shuffled(n: int, parts: int, seed: int) -> np.ndarray:
    """Even blocks of a random order: every part has n/P vertices, give or take one."""
    return np.random.default_rng(seed).permutation(block(n, parts))


def hashed(n: int, parts: int, seed: int) -> np.ndarray:
    """part(v) = hash(v, seed) mod P: who owns v can be told without a table; sizes are even on average.

    The hash is SplitMix64's finaliser, whose every output bit depends on every input bit.

    >>> bool((hashed(10, 4, 0) == hashed(20, 4, 0)[:10]).all())
    True
    """
    return (mixed(np.arange(n), seed) % np.uint64(parts)).astype(np.int64)


def mixed(x: np.ndarray, seed: int) -> np.ndarray:
    """SplitMix64's finaliser of whole numbers. [m] → [m] uint64."""
    with np.errstate(over="ignore"):
        x = x.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return x

"""Random splits into train, validation and test for labelled graphs that come without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import MASKS, Graph

PARTS = dict(zip(MASKS, (1, 2, 3), strict=True))
"""What `draw` says of a vertex, by mask; 0 where it is in none."""
SOME = 1 << 20
"""Vertices that are looked at together."""


def split(graph: Graph, train: float | int = 0.6, val: float | int = 0.2, seed: int = 0) -> Graph:
    """The same graph with random masks over its labelled vertices; what is left over is the test set.

    Fractions below 1 are of all labelled vertices. A whole `train` is a count per class, as in Planetoid's
    20 per class, and a whole `val` is a count over all.

    >>> g = split(Graph.from_arcs([0], [1], num_nodes=10, labels=torch.arange(10) % 2), train=2, val=3)
    >>> [int(m.sum()) for m in (g.train_mask, g.val_mask, g.test_mask)]
    [4, 3, 3]
    """
    if graph.labels is None:
        raise UserError(f"graph {graph.name!r} has no labels to split. Give it labels.")
    labels = graph.labels.cpu().numpy()
    part = draw(_pieces(labels), len(labels), train, val, seed)
    return graph.replace(**{key: torch.from_numpy(part == number) for key, number in PARTS.items()})


def draw(
    labels: Iterable[np.ndarray], n: int, train: float | int = 0.6, val: float | int = 0.2, seed: int = 0
) -> np.ndarray:
    """The part of each of n vertices as `split` draws it, from labels that come in pieces. [n] uint8

        labels   [m] or [m, c] each, n rows in all; every piece is asked for once
        PARTS    what the numbers stand for

    Held are 5 bytes a vertex, 9 from 2^31 of them on, and up to 8 more where `train` counts per class.

    >>> draw(iter([np.array([0, 1]), np.array([-1, 0, 1])]), 5, train=1, val=1).tolist()
    [2, 1, 0, 1, 3]
    """
    known, classes = _known(labels, n, train if _is_count(train, "train") else 0)
    # The bits that are drawn do not depend on the type: halves of 8 bytes are enough for most.
    np.random.default_rng(seed).shuffle(known)
    total, part = len(known), np.zeros(n, dtype=np.uint8)
    if classes is None:
        chosen = round(train * total)
        for some in _pieces(known[:chosen]):
            part[some] = PARTS["train_mask"]
    else:
        chosen = 0
        counts: dict[int, int] = {}
        for some in _pieces(known):
            taken = some[_rank_within(classes[some], counts) < train]
            part[taken] = PARTS["train_mask"]
            chosen += len(taken)
    held = int(val) if _is_count(val, "val") else round(val * total)
    if held > total - chosen:
        asked = f"{chosen + held} of {total} labelled vertices"
        raise UserError(f"train={train} and val={val} ask for {asked}. Lower them.")
    for some in _pieces(known):
        rest = some[part[some] == 0]
        part[rest[:held]] = PARTS["val_mask"]
        part[rest[held:]] = PARTS["test_mask"]
        held -= min(held, len(rest))
    return part


def _known(labels: Iterable[np.ndarray], n: int, each: float) -> tuple[np.ndarray, np.ndarray | None]:
    """(the vertices that have a label, ascending; where `each` class counts, the labels in few bytes)."""
    known = np.empty(n, dtype=np.int32 if n < 2**31 else np.int64)
    classes = np.zeros(n, dtype=np.uint8) if each else None
    first = count = 0
    for piece in labels:
        if piece.ndim == 2 and each:
            raise UserError(
                f"train={each} per class does not suit many labels a vertex. Give a fraction, as 0.6."
            )
        (found,) = (np.ones(len(piece), bool) if piece.ndim == 2 else piece >= 0).nonzero()
        known[count : count + len(found)] = found + first
        if classes is not None:
            top = int(piece.max(initial=0))
            if top > np.iinfo(classes.dtype).max:
                classes = classes.astype(np.min_scalar_type(top))
            classes[first + found] = piece[found]
        first, count = first + len(piece), count + len(found)
    assert first == n
    return known[:count], classes


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(array), SOME):
        yield array[first : first + SOME]


def _is_count(share: float | int, which: str) -> bool:
    if isinstance(share, int) and share >= 1:
        return True
    if not 0 <= share < 1:
        raise UserError(f"{which}={share} is neither a fraction below 1 nor a whole number. Use 0.6, or 20.")
    return False


def _rank_within(groups: np.ndarray, counts: dict[int, int]) -> np.ndarray:
    """How many earlier entries have the same value; `counts`, of the pieces before, grows by this one."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    values, begins, sizes = np.unique(ordered, return_index=True, return_counts=True)
    before = [counts.get(value, 0) for value in values.tolist()]
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) + np.repeat(np.array(before, dtype=np.int64) - begins, sizes)
    counts.update(zip(values.tolist(), (np.array(before, dtype=np.int64) + sizes).tolist(), strict=True))
    return rank

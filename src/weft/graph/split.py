"""Random splits into train, validation and test for labelled graphs that come without."""

from __future__ import annotations

import numpy as np
import torch

from weft.errors import UserError
from weft.graph.graph import Graph


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
    rng = np.random.default_rng(seed)
    known = np.arange(len(labels)) if graph.multilabel else np.nonzero(labels >= 0)[0]
    order = rng.permutation(known)
    if _is_count(train, "train"):
        if graph.multilabel:
            raise UserError(
                f"train={train} per class does not suit many labels a vertex. Give a fraction, as 0.6."
            )
        chosen = order[_rank_within(labels[order]) < train]
    else:
        chosen = order[: round(train * len(order))]
    rest = order[~np.isin(order, chosen)]
    held = int(val) if _is_count(val, "val") else round(val * len(order))
    if held > len(rest):
        asked = f"{len(chosen) + held} of {len(order)} labelled vertices"
        raise UserError(f"train={train} and val={val} ask for {asked}. Lower them.")
    parts = (chosen, rest[:held], rest[held:])
    masks = {key: _mask(len(labels), part) for key, part in zip(("train", "val", "test"), parts, strict=True)}
    return graph.replace(**{f"{key}_mask": mask for key, mask in masks.items()})


def _is_count(share: float | int, which: str) -> bool:
    if isinstance(share, int) and share >= 1:
        return True
    if not 0 <= share < 1:
        raise UserError(f"{which}={share} is neither a fraction below 1 nor a whole number. Use 0.6, or 20.")
    return False


def _rank_within(groups: np.ndarray) -> np.ndarray:
    """How many earlier entries have the same value."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - first
    return rank


def _mask(n: int, chosen: np.ndarray) -> torch.Tensor:
    mask = torch.zeros(n, dtype=torch.bool, device="cpu")
    mask[torch.from_numpy(chosen)] = True
    return mask

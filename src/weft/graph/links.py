"""Links to predict: arcs held out of a graph, and pairs that are no arcs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError
from weft.graph.graph import Graph


class NonArcs:
    """The pairs that some rows lack, numbered row by row: drawing one needs no trial and error.

        indptr, indices  rows of a matrix of n columns, ascending
        free  [rows]     how many columns each row lacks

    >>> lacking = NonArcs(torch.tensor([0, 2, 2]), torch.tensor([1, 3]), n=5)
    >>> lacking.free.tolist()
    [3, 5]
    >>> lacking.column(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 4])).tolist()
    [0, 2, 4, 4]
    """

    def __init__(self, indptr: Tensor, indices: Tensor, n: int):
        counts = indptr.diff()
        row = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
        before = torch.arange(indices.numel(), device=indices.device) - indptr[row]
        # Entry j of a row stands behind (column − j) columns that the row lacks.
        self._key = row * (n + 1) + (indices.long() - before)
        self._indptr, self._n = indptr, n
        self.free = n - counts

    def column(self, row: Tensor, r: Tensor) -> Tensor:
        """The r-th column that a row lacks, r from 0. [m], [m] → [m] int64."""
        passed = torch.searchsorted(self._key, row * (self._n + 1) + r, right=True) - self._indptr[row]
        return r + passed


def hold_out(graph: Graph, val: float = 0.05, test: float = 0.1, seed: int = 0) -> Graph:
    """The graph without a random share of its arcs, which become its validation and test pairs.

    Both directions of an undirected edge are held out together and make one pair; a directed graph's
    arcs are held out one by one; loops stay. To each true pair comes a false one, drawn once: different
    pairs that are no arcs of the whole graph, nor loops.

    >>> from weft.graph.generators import karate
    >>> g = hold_out(karate(), val=0.1, test=0.2)
    >>> g.num_arcs, len(g.val_pairs), len(g.test_pairs), len(g.test_negatives)
    (108, 8, 16, 16)
    """
    for name, share in (("hold_val", val), ("hold_test", test)):
        if not 0 < share < 1:
            raise UserError(f"{name} must lie between 0 and 1, not {share:g}. Use 0.1.")
    if val + test >= 1:
        raise UserError(f"hold_val={val:g} and hold_test={test:g} leave no arcs to train on. Lower them.")
    undirected = graph.replace(weights=None, arc_data={}).is_symmetric
    rows, columns = graph.rows.numpy(), graph.indices.numpy().astype(np.int64)
    (at,) = np.nonzero(columns < rows if undirected else columns != rows)
    sizes = [round(val * len(at)), round(test * len(at))]
    if min(sizes) < 1 or sum(sizes) >= len(at):
        raise UserError(
            f"{graph.name} has {len(at)} {'edges' if undirected else 'arcs'}; hold_val={val:g} and "
            f"hold_test={test:g} of them leave a part empty. Use a larger graph or other shares."
        )
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(at)[: sum(sizes)]
    false = _non_arcs(graph, undirected, sum(sizes), rng)
    n = graph.num_nodes
    held = rows[chosen] * n + columns[chosen]
    if undirected:
        held = np.concatenate([held, columns[chosen] * n + rows[chosen]])
    keep = ~np.isin(rows * n + columns, held)
    counts = torch.from_numpy(np.bincount(rows[keep], minlength=n))
    true = torch.from_numpy(np.stack([columns[chosen], rows[chosen]], 1))
    (val_true, test_true), (val_false, test_false) = true.split(sizes), false.split(sizes)
    kept = torch.from_numpy(keep)
    return graph.replace(
        indptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        indices=graph.indices[kept],
        weights=None if graph.weights is None else graph.weights[kept],
        arc_data={name: x[kept] for name, x in graph.arc_data.items()},
        val_pairs=val_true, val_negatives=val_false, test_pairs=test_true, test_negatives=test_false,
    )  # fmt: skip


def _non_arcs(graph: Graph, undirected: bool, count: int, rng: np.random.Generator) -> Tensor:
    """`count` different pairs that are neither arcs nor loops, in random order. [count, 2] int64."""
    whole = graph.replace(weights=None, arc_data={}).with_self_loops()
    lacking = NonArcs(whole.indptr, whole.indices, graph.num_nodes)
    ends = lacking.free.cumsum(0)
    total = int(ends[-1]) if ends.numel() else 0
    if count > (total // 2 if undirected else total):
        raise UserError(
            f"{graph.name} has too few pairs without an arc for {count} false pairs. Hold out fewer arcs."
        )

    def pairs(numbers: np.ndarray) -> np.ndarray:
        number = torch.from_numpy(numbers)
        row = torch.searchsorted(ends, number, right=True)
        column = lacking.column(row, number - (ends[row] - lacking.free[row]))
        if undirected:
            row, column = torch.maximum(row, column), torch.minimum(row, column)
        return (row * graph.num_nodes + column).numpy()

    if 8 * count > total:  # nearly all of them: list them
        keys = np.unique(pairs(np.arange(total)))
    else:
        keys = np.zeros(0, dtype=np.int64)
        while len(keys) < count:
            keys = np.unique(np.concatenate([keys, pairs(rng.integers(0, total, 2 * count))]))
    row, column = np.divmod(rng.permutation(keys)[:count], graph.num_nodes)
    return torch.from_numpy(np.stack([column, row], 1))

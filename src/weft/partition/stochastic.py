"""The stochastic hypergraph (Demirci et al., Algorithm 3): sampled mini-batches, cut as one hypergraph.

Its connectivity estimates that of a random batch's net, which lies in 1..P. By Hoeffding, with |N| nets

    Pr[ |λ' − λ| ≥ θ ] ≤ 2 exp(−2 |N| θ² / (P − 1)²) ≤ δ      for   |N| ≥ (P − 1)² / (2 θ²) · ln(2/δ)

That is so of one given partition. The cut is chosen after looking at the samples, and a vertex in none of
them is placed anywhere: so batches are drawn until a vertex was in `OFTEN` of them as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..errors import UserError
from ..graph import Graph
from ..kernels import Stream, sample_rows
from ..kernels.sampling import ALL
from .arcs import row_weights
from .hypergraph import Hypergraph

OFTEN = 12
"""Batches that a vertex is a row of, in the mean over all that were: fewer place it by chance."""
_PINS = 1 << 26
"""More are not drawn for `OFTEN`'s sake: 16 bytes and more each while they are cut."""
Sampler = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""seed → (rows, columns): the arcs column → row of one sampled subgraph, by the graph's vertices."""


def nets_needed(parts: int, theta: float, delta: float) -> int:
    """|N| of the bound above.

    >>> nets_needed(27, 0.1, 0.5)
    46857
    """
    if not theta > 0:
        raise UserError(f"theta must be above 0, not {theta:g}. Use --theta 0.1.")
    if not 0 < delta < 1:
        raise UserError(f"delta must lie between 0 and 1, not {delta:g}. Use --delta 0.5.")
    return math.ceil((parts - 1) ** 2 / (2 * theta**2) * math.log(2 / delta))


def stochastic_hypergraph(
    graph: Graph, sampler: Sampler, parts: int, theta: float, delta: float, seed: int, batches: int = 0
) -> tuple[Hypergraph, int]:
    """The merged hypergraph of b batches, and b: `batches`, or as many as bring the nets of the bound and
    every vertex that they compute `OFTEN` times, in the mean."""
    wanted = nets_needed(parts, theta, delta)
    n, weights = graph.num_nodes, row_weights(graph)
    rows: list[np.ndarray] = []
    nets: list[np.ndarray] = []
    found = computed = pins = 0
    seen = np.zeros(n, dtype=bool)

    def enough() -> bool:
        if batches:
            return len(rows) >= batches
        return found >= wanted and (computed >= OFTEN * int(seen.sum()) or pins >= _PINS)

    while not enough():
        row, column = sampler(_batch_seed(seed, len(rows)))
        count = len(np.unique(column))
        if not count and found == 0 and len(rows) >= 100:
            raise UserError("100 sampled batches have not one arc. Use larger batches, or another sampler.")
        found, pins = found + count, pins + len(row)
        mine = np.unique(row)
        computed += len(mine)
        seen[mine] = True
        # A column of each batch is a net of its own.
        nets.append(column.astype(np.int64) + len(rows) * n)
        rows.append(row)
    return Hypergraph.of_arcs(np.concatenate(rows), np.concatenate(nets), weights), len(rows)


def _batch_seed(seed: int, batch: int) -> int:
    """Apart for every (seed, batch), so that fresh batches of another seed are fresh."""
    return int(np.random.SeedSequence([seed, batch]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def uniform_batches(graph: Graph, size: int, fanouts: Sequence[int] = (ALL,)) -> Sampler:
    """Batches of `size` vertices drawn uniformly, and the arcs that a model of `len(fanouts)` layers reads.

    A hop takes up to `fanout` in-neighbours of every vertex reached before, or ALL (-1) of them; the picks of
    a vertex are made once a batch.

    >>> g = Graph.from_arcs([0, 1, 2], [1, 2, 3])
    >>> rows, columns = uniform_batches(g, 4)(0)
    >>> sorted(zip(rows.tolist(), columns.tolist()))
    [(1, 0), (2, 1), (3, 2)]
    """
    if not 1 <= size <= graph.num_nodes:
        raise UserError(f"batches of {size} of {graph.num_nodes} vertices. Use 1 to {graph.num_nodes}.")
    if not fanouts or any(fanout < 1 and fanout != ALL for fanout in fanouts):
        raise UserError(f"fan-outs {list(fanouts)} are not numbers from 1, nor -1 for all.")

    def sample(seed: int) -> tuple[np.ndarray, np.ndarray]:
        frontier = np.random.default_rng(seed).choice(graph.num_nodes, size, replace=False)
        seen = np.zeros(graph.num_nodes, dtype=bool)
        rows, columns = [], []
        for hop, fanout in enumerate(fanouts):
            seen[frontier] = True
            at = torch.from_numpy(frontier)
            picked = sample_rows(graph.indptr, graph.indices, at, at, fanout, Stream(seed, 0, hop).key)
            column = picked.neighbours.numpy()
            rows.append(np.repeat(frontier, picked.indptr.diff().numpy()))
            columns.append(column)
            fresh = np.unique(column)
            frontier = fresh[~seen[fresh]].astype(np.int64)
        return np.concatenate(rows), np.concatenate(columns)

    return sample

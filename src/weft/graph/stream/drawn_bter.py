"""BTER piece by piece: blocks of vertices of one degree, then Chung and Lu's draws for what they lack.

    piece k   some blocks, or 2^20 draws of the excess, from the generator of (seed, k)

The numbers per vertex (its degree, what its block leaves over) are held, the arcs are not. Excess ends are
drawn with the probability of what a vertex is expected to lack: degrees come out right in the mean, where
`bter` pairs stubs and gets them right one by one.
"""

from __future__ import annotations

import numpy as np

from weft.graph.generators.bter import block_starts

PIECE = 1 << 20


class BterDraws:
    """Edges of a BTER graph with `degrees[d]` vertices of degree d, vertices in the order of their degree.

    >>> some = BterDraws(np.array([0, 20, 0, 30]), np.full(4, 0.3), seed=1)
    >>> u, v = some.draw(0)
    >>> some.num_nodes, len(some.sizes), bool((v < u).all())
    (50, 2, True)
    """

    def __init__(self, degrees: np.ndarray, clustering: np.ndarray, seed: int, piece: int = PIECE):
        self.num_nodes = n = int(degrees.sum())
        self._seed = seed
        wanted = np.repeat(np.arange(len(degrees)), degrees)
        first = int(np.searchsorted(wanted, 2))
        self._starts = block_starts(wanted, first)
        self._ends = np.append(self._starts[1:], n)
        held = self._ends - self._starts
        self._rho = np.cbrt(clustering[wanted[self._starts]]) if len(self._starts) else np.zeros(0)
        lacking = wanted.astype(np.float64)
        lacking[first:] -= np.repeat(self._rho * (held - 1), held)
        self._reach = np.cumsum(np.maximum(lacking, 0.0))
        pairs = np.cumsum(held * (held - 1) // 2)
        total = int(pairs[-1]) if len(pairs) else 0
        # A piece takes whole blocks: from those that end after k pieces' worth of pairs to the next.
        marks = (
            np.searchsorted(pairs, np.arange(0, total, piece), side="right")
            if total
            else np.zeros(0, np.int64)
        )
        self._blocks = np.unique(np.append(marks, len(held) if total else 0))
        excess = round(float(self._reach[-1]) / 2) if n else 0
        before = np.concatenate([[0], pairs])
        blocks = np.diff(before[self._blocks]).tolist()
        self.sizes: list[int] = [*blocks, *(min(piece, excess - at) for at in range(0, excess, piece))]
        """Draws of each piece."""
        self._of_blocks = len(blocks)
        self.expected = round(float((self._rho * held * (held - 1) / 2).sum())) + excess

    def draw(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(u, v) of piece `number`; an edge may come again, and in the excess be a loop."""
        rng = np.random.Generator(np.random.SFC64([self._seed, number]))
        if number >= self._of_blocks:
            size = self.sizes[number]
            ends = rng.random((2, size)) * self._reach[-1]
            u, v = np.minimum(np.searchsorted(self._reach, ends, side="right"), self.num_nodes - 1)
            return u.astype(np.int64), v.astype(np.int64)
        low, high = self._blocks[number], self._blocks[number + 1]
        begin, end = int(self._starts[low]), int(self._ends[high - 1])
        held = self._ends[low:high] - self._starts[low:high]
        place = np.arange(begin, end) - np.repeat(self._starts[low:high], held)
        total = int(place.sum())
        u = np.repeat(np.arange(begin, end), place)  # each vertex with all earlier ones of its block
        v = u - 1 - (np.arange(total) - np.repeat(np.cumsum(place) - place, place))
        joined = rng.random(total) < np.repeat(np.repeat(self._rho[low:high], held), place)
        return u[joined], v[joined]

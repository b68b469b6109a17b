"""A refinement of our own after a library's cut: for the slowest rank, and for the number of messages.

Libraries minimise the total Σ_j (λ_j − 1); an epoch waits for the part that sends or receives most. With S_r
and R_r the rows that part r sends and receives, and W_r its work, moves and swaps of vertices lower

    volume + excess · Σ_r (max(0, S_r − send) + max(0, R_r − receive)) + message · messages
           + heavy · Σ_r max(0, W_r − most)

where heavy = 4 (1 + excess + message): work above the bound is worth more than all else. To move a hub, which
nearly everybody reads, costs hardly any volume: whoever owns it sends it to all others. So the parts that own
many of them are relieved at a small loss, and the total falls elsewhere.

The C++ (`src/native/refine.cpp`) holds, of each net, the parts that have pins of it: as many numbers as there
are pins at most, and 4 bytes a part for each net of more than 24. It looks at one vertex after the other, in
an order that follows from the seed: first those most read of parts that send too much, then all on a
boundary. Of the parts it might go to the few best by an estimate are counted exactly. Where the best has no
room, some vertex of it is moved away in exchange. `plain` is the same objective counted anew for every try.

A group of pages that link to each other is moved by none of these: each page alone would be dear to move.
`Nets.cycle` joins such vertices to clusters, and those to larger ones, moves the largest first, then what
they are made of. A cluster owns the nets of all its vertices, so what a move changes is exact there as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..graph import Graph
from ..graph.guard import check_fits
from ..kernels import native
from .arcs import distinct, row_weights, rows_and_columns
from .metrics import Metrics, measure

_SHARE = 20
"""A cluster has at most this share of a part's work."""


@dataclass(frozen=True)
class Price:
    """What the refinement lowers, in rows of volume."""

    most: int
    """Work that a part should not exceed."""
    send: int
    """Rows that a part may send without a price;   receive: may receive."""
    receive: int
    excess: float = 2.0
    """What a row above these is worth."""
    message: float = 1.0
    """What a message is worth."""

    def of(self, cost: Metrics) -> float:
        """The objective, from what `measure` counts."""
        over = np.maximum(cost.volumes - self.send, 0).sum()
        over += np.maximum(cost.between.sum(0) - self.receive, 0).sum()
        heavy = np.maximum(cost.loads - self.most, 0).sum()
        price = 4 * (1 + self.message + self.excess)
        return float(
            cost.volume_total + self.excess * over + self.message * cost.messages_total + price * heavy
        )


def work_bound(weights: np.ndarray, parts: int, epsilon: float) -> int:
    """The work of the heaviest part where ε is met, or of the heaviest row where that is more.

    >>> work_bound(np.array([1, 1, 8]), 3, 0.1)
    8
    """
    return max(int((1 + epsilon) * math.ceil(weights.sum() / parts)), int(weights.max()))


def refine(
    graph: Graph, parts: np.ndarray, count: int, price: Price, seed: int = 0, passes: int = 2
) -> np.ndarray:
    """Parts of a lower objective. [n] → [n] int64; the same for the same seed.

    >>> from weft.graph import Graph
    >>> graph = Graph.from_arcs([0, 1, 2, 3], [1, 0, 3, 2])
    >>> made = refine(graph, np.array([0, 1, 0, 1]), 2, Price(most=4, send=9, receive=9))
    >>> bool(made[0] == made[1]), bool(made[2] == made[3])
    (True, True)
    """
    return Nets.of(graph).refine(parts, count, price, seed, passes)[0]


@dataclass(frozen=True, eq=False)
class Nets:
    """The nets of every vertex: the columns that it reads, and itself; made once for many refinements.

    starts   [n + 1]   nets[starts[v]:starts[v + 1]] are those of v
    weights  [n]       work
    home     [columns] who owns each net: itself, or the cluster that it is in

    A vertex may stand for a cluster (`joined`).
    """

    graph: Graph
    starts: np.ndarray
    nets: np.ndarray
    weights: np.ndarray
    home: np.ndarray

    @classmethod
    def of(cls, graph: Graph) -> Nets:
        n = graph.num_nodes
        rows, columns = rows_and_columns(graph)
        every = np.arange(n)
        row, net = distinct(np.concatenate([rows, every]), np.concatenate([columns, every]), n)
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
        return cls(
            graph, starts, net.astype(np.int32), row_weights(graph).astype(np.int64), every.astype(np.int32)
        )

    def refine(
        self, parts: np.ndarray, count: int, price: Price, seed: int = 0, passes: int = 2
    ) -> tuple[np.ndarray, float]:
        """(parts, by how much the objective has changed). [n] → [n] int64"""
        n, columns, extension = len(self.weights), len(self.home), native.extension
        if extension is None:
            made = plain(self.graph, parts, count, price, seed, passes)
            before, after = (price.of(measure(self.graph, x, count)) for x in (parts, made))
            return made, after - before
        wide = int((np.bincount(self.nets, minlength=columns) > 24).sum())
        check_fits(24 * len(self.nets) + 4 * count * (wide + count) + 60 * columns, f"refining {count} parts")
        owner, change = np.ascontiguousarray(parts, dtype=np.int32).copy(), np.zeros(1)
        extension.refine(
            n, columns, count, *(x.ctypes.data for x in (self.starts, self.nets, self.home, self.weights)),
            price.most, price.send, price.receive, price.excess, price.message, passes, seed,
            owner.ctypes.data, change.ctypes.data,
        )  # fmt: skip
        return owner.astype(np.int64), float(change[0])

    def labels(self, parts: np.ndarray, most: int, seed: int = 0) -> np.ndarray:
        """Clusters of vertices of one part with many nets in common, each of at most so much work.
        [n] → [n] int32, from 0 on"""
        extension = native.extension
        assert extension is not None
        n, owner = len(self.weights), np.ascontiguousarray(parts, dtype=np.int32)
        label = np.empty(n, dtype=np.int32)
        extension.join(
            n, len(self.home), self.starts.ctypes.data, self.nets.ctypes.data, self.weights.ctypes.data,
            owner.ctypes.data, most, seed, label.ctypes.data,
        )  # fmt: skip
        return label

    def joined(self, label: np.ndarray) -> Nets:
        """Each cluster is one vertex: it owns the nets of all its members. Nets within a cluster are gone."""
        clusters, columns = int(label.max()) + 1, len(self.home)
        row, net = distinct(np.repeat(label, np.diff(self.starts)), self.nets, columns)
        keep = np.bincount(net, minlength=columns)[net] > 1
        starts = np.concatenate([[0], np.cumsum(np.bincount(row[keep], minlength=clusters))])
        weights = np.zeros(clusters, dtype=np.int64)
        np.add.at(weights, label, self.weights)
        return Nets(
            self.graph, starts.astype(np.int64), net[keep].astype(np.int32), weights, label[self.home]
        )

    def cycle(
        self, parts: np.ndarray, count: int, price: Price, seed: int = 0, passes: int = 2
    ) -> tuple[np.ndarray, float]:
        """The same as `refine`, but clusters move before vertices: levels of ever larger clusters within the
        parts are made, and refined from the coarsest on. [n] → [n] int64"""
        if native.extension is None:
            return self.refine(parts, count, price, seed, passes)
        largest = int(self.weights.sum()) // (_SHARE * count)
        levels: list[tuple[Nets, np.ndarray]] = []
        nets, owner, change = self, np.asarray(parts, dtype=np.int64), 0.0
        while len(nets.weights) > _SHARE * count:
            label = nets.labels(owner, largest, seed + len(levels))
            clusters = int(label.max()) + 1
            if clusters > 0.95 * len(label):
                break
            levels.append((nets, label))
            coarse = np.zeros(clusters, dtype=np.int64)
            coarse[label] = owner
            nets, owner = nets.joined(label), coarse
        owner, change = nets.refine(owner, count, price, seed, passes)
        for nets, label in reversed(levels):
            owner, more = nets.refine(owner[label], count, price, seed, passes)
            change += more
        return owner, change


def plain(
    graph: Graph, parts: np.ndarray, count: int, price: Price, seed: int = 0, passes: int = 2
) -> np.ndarray:
    """The same objective, every move counted anew: for small graphs, and where there is no C++. [n] → [n]"""
    owner, order = np.asarray(parts, dtype=np.int64).copy(), np.random.default_rng(seed)
    now = price.of(measure(graph, owner, count))
    for _ in range(passes):
        before = now
        for v in order.permutation(len(owner)).tolist():
            home = int(owner[v])
            costs = []
            for q in range(count):
                owner[v] = q
                costs.append(price.of(measure(graph, owner, count)))
            best = int(np.argmin(costs))
            owner[v] = best if costs[best] < now else home
            now = min(now, costs[best])
        if now == before:
            break
    return owner

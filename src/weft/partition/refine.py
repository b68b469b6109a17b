"""A refinement of our own after a library's cut: for the slowest rank, and for the number of messages.

Libraries minimise the total Σ_j (λ_j − 1); an epoch waits for the part that sends or receives most. Vertices
move one at a time from part p to the part q with the least

    cost(q) = Δ volume + Δ Σ_r (excess of S_r over `bound`) + Δ Σ_r (excess of R_r) + `message` · Δ messages

where S_r and R_r are rows that part r sends and receives, as long as it is below 0 and q's work stays within
the balance. To move a hub, which nearly everybody reads, costs hardly any volume: whoever owns it sends it to
all others. So the parts that own many of them are relieved at a small loss, and the total falls elsewhere.

Φ[j, r], the pins of net j in part r, is held whole: 4·n·P bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..graph import Graph
from ..graph.guard import check_fits
from .arcs import distinct, row_weights, rows_and_columns


@dataclass
class State:
    """An assignment, and everything that a move changes.

    owner   [n]      part of each vertex
    pins    [n, P]   Φ: rows in part r that read column j, and j itself at its owner
    between [P, P]   rows that part p sends to part q
    loads   [P]      work
    """

    owner: np.ndarray
    pins: np.ndarray
    between: np.ndarray
    loads: np.ndarray
    starts: np.ndarray
    """[n + 1]: `nets[starts[v]:starts[v + 1]]` are the nets of v, the columns that it reads and itself."""
    nets: np.ndarray
    weights: np.ndarray
    sent: np.ndarray = field(init=False)
    """[P]: rows that each part sends."""
    received: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.sent, self.received = self.between.sum(1), self.between.sum(0)

    @classmethod
    def of(cls, graph: Graph, parts: np.ndarray, count: int) -> State:
        n = graph.num_nodes
        check_fits(4 * n * count + 40 * graph.num_arcs, f"refining {n:,} vertices in {count} parts")
        rows, columns = rows_and_columns(graph)
        every = np.arange(n)
        row, net = distinct(np.concatenate([rows, every]), np.concatenate([columns, every]), n)
        owner = np.asarray(parts, dtype=np.int64).copy()
        pins = np.bincount(net * count + owner[row], minlength=n * count).astype(np.int32).reshape(n, count)
        read, reader = np.nonzero(pins)
        crosses = owner[read] != reader
        pairs = owner[read[crosses]] * count + reader[crosses]
        weights = row_weights(graph)
        return cls(
            owner, pins, np.bincount(pairs, minlength=count * count).reshape(count, count),
            np.bincount(owner, weights=weights, minlength=count).astype(np.int64),
            np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]), net, weights,
        )  # fmt: skip

    def move(self, v: int, q: int) -> None:
        """v to part q."""
        p, mine = int(self.owner[v]), self.nets[self.starts[v] : self.starts[v + 1]]
        others = mine[mine != v]
        at = self.owner[others]
        left = others[(self.pins[others, p] == 1) & (at != p)]
        new = others[self.pins[others, q] == 0]
        parts = len(self.loads)
        lost, won = (np.bincount(self.owner[found], minlength=parts) for found in (left, new))
        self.between[:, p] -= lost
        self.between[:, q] += won
        self.sent += won - lost
        self.received[p] -= len(left)
        self.received[q] += len(new)
        here = self.pins[v] > 0
        here[p] = False
        self.between[p, here] -= 1
        self.received[here] -= 1
        self.sent[p] -= np.count_nonzero(here)
        self.pins[mine, p] -= 1
        self.pins[mine, q] += 1
        here = self.pins[v] > 0
        here[q] = False
        self.between[q, here] += 1
        self.received[here] += 1
        self.sent[q] += np.count_nonzero(here)
        self.loads[p] -= self.weights[v]
        self.loads[q] += self.weights[v]
        self.owner[v] = q


def refine(
    graph: Graph, parts: np.ndarray, count: int, epsilon: float, seed: int = 0, bound: float = 0.0,
    message: float = 1.0, passes: int = 2,
) -> np.ndarray:  # fmt: skip
    """Parts of a smaller maximum and fewer messages, at a bounded loss of the total or none. [n]

        parts    [n]  what a library made; balance is kept as good as ε, or as it was
        bound    rows that a part may send, or receive, without being relieved; 0: nine tenths of the most now
        message  rows of volume that a message is worth

    >>> from weft.graph import Graph
    >>> graph = Graph.from_arcs([0, 1, 2, 3], [1, 0, 3, 2])
    >>> made = refine(graph, np.array([0, 1, 0, 1]), 2, epsilon=0.5)
    >>> bool(made[0] == made[1]), bool(made[2] == made[3])
    (True, True)
    """
    state = State.of(graph, parts, count)
    order = np.random.default_rng(seed)
    most = max(float(state.loads.max()), (1 + epsilon) * float(np.ceil(state.loads.mean())))
    for _ in range(passes):
        limit = bound or 0.9 * max(state.sent.max(), state.received.max())
        search = _Search(state, most, limit, message)
        # Parts that send most first, of each the most read vertices; then everybody, in random order.
        sends = (state.pins > 0).sum(1) - 1
        busy = np.flatnonzero((state.sent > limit)[state.owner] & (sends > 0))
        moved = sum(map(search.improve, busy[np.argsort(-sends[busy], kind="stable")].tolist()))
        moved += sum(map(search.improve, order.permutation(np.flatnonzero(_boundary(state))).tolist()))
        if moved * 1000 < len(state.owner):
            break
    return state.owner


def _boundary(state: State) -> np.ndarray:
    """[n]: whether a vertex reads or is read across parts, so that a move may help."""
    row = np.repeat(np.arange(len(state.owner)), np.diff(state.starts))
    cut = (state.pins > 0).sum(1) > 1
    return np.bincount(row, weights=cut[state.nets], minlength=len(state.owner)) > 0


class _Search:
    """The best move of one vertex after the other."""

    def __init__(self, state: State, most: float, limit: float, message: float):
        self.state, self.most, self.limit, self.message = state, most, limit, message

    def improve(self, v: int) -> bool:
        """Move v where that lowers the cost; whether it did."""
        s = self.state
        p, weight = int(s.owner[v]), s.weights[v]
        mine = s.nets[s.starts[v] : s.starts[v + 1]]
        pins = s.pins[mine]  # [nets of v, P]
        alone, absent = pins[:, p] == 1, pins == 0
        leaves = int(alone.sum())
        if not leaves and s.sent[p] <= self.limit:
            return False  # no net would lose a part
        comes = absent.sum(0)
        volume = comes - leaves
        room = s.loads + weight <= self.most
        room[p] = False
        # What changes for those who send and receive: v itself goes with its readers, its columns come to q.
        here = s.pins[v] > 0
        readers = int(here.sum()) - 1
        now = readers + absent[np.searchsorted(mine, v)] - alone[np.searchsorted(mine, v)]
        excess = self._over(s.sent + now) - self._over(s.sent)
        excess += self._over(s.sent[p] - readers) - self._over(s.sent[p])
        excess += self._over(s.received + comes) - self._over(s.received)
        excess += self._over(s.received[p] - leaves) - self._over(s.received[p])
        cost = np.where(room, volume + excess, np.inf)
        if self.message:
            few = np.argpartition(cost, min(8, len(cost) - 1))[:8]
            few = few[cost[few] < self.message * len(s.loads)]
            for q in few:
                cost[q] += self.message * self._messages(v, p, int(q), mine, alone, absent[:, q], here)
            others = np.ones(len(cost), dtype=bool)
            others[few] = False
            cost[others] = np.inf
        q = int(cost.argmin())
        if not cost[q] < 0:
            return False
        s.move(v, q)
        return True

    def _over(self, rows: np.ndarray | float) -> np.ndarray:
        """How far above the limit."""
        return np.maximum(np.asarray(rows) - self.limit, 0)

    def _messages(
        self,
        v: int,
        p: int,
        q: int,
        mine: np.ndarray,
        alone: np.ndarray,
        absent: np.ndarray,
        here: np.ndarray,
    ) -> int:
        """How many messages more there are after v has gone from p to q."""
        s, parts = self.state, len(self.state.loads)
        others = mine != v
        owners = s.owner[mine]
        lost = np.bincount(owners[alone & others & (owners != p)], minlength=parts)
        won = np.bincount(owners[absent & others], minlength=parts)
        to_p, to_q = s.between[:, p], s.between[:, q]
        fewer = int(((to_p > 0) & (to_p == lost)).sum())
        more = int(((to_q == 0) & (won > 0)).sum())
        now, then = here.copy(), here.copy()
        now[p] = False
        at = np.searchsorted(mine, v)
        then[p], then[q] = not alone[at], False
        fewer += int((s.between[p, now] == 1).sum())
        more += int((s.between[q, then] == 0).sum())
        return more - fewer

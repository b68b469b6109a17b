"""A portfolio: METIS and Mt-KaHyPar, refined for the slowest rank and for few messages; one is kept."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import UserError
from ..graph import Graph
from . import simple
from .metrics import Metrics, measure
from .refine import Nets, Price, work_bound

Cut = Callable[[str], np.ndarray]
"""The name of a method → its parts, [n]."""
Cycle = Callable[[np.ndarray], np.ndarray]
"""Parts → parts of less volume within ε, by a V-cycle of the hypergraph library. [n] → [n]"""
CUTS = {"metis": "pymetis", "hypergraph": "mtkahypar"}
"""The methods that it begins with → the package of each."""
_ROUNDS, _MORE = 3, 3
"""Refinements of each cut; and more of the one that is best by then."""
_BREATHS = (
    ("hypergraph", 1.08, 1.0), ("metis", 1.06, 0.9), ("hypergraph", 1.08, 0.9), ("", 1.05, 1.0),
    ("hypergraph", 1.06, 0.85), ("", 1.08, 0.95), ("hypergraph", 1.1, 0.95), ("", 1.06, 0.9),
)  # fmt: skip
"""Where a column is still not reached: whose cut ("": the best so far), its room relative to the bound, and
what a part may send relative to the aim."""
_CYCLES, _PATIENCE = 4, 3
"""Refinements by clusters in a breath, at most; breaths in a row that may bring nothing."""
_LEVELS, _PRICES = 4, ((30.0, 20.0), (8.0, 2.0))
"""Steps of more room, where ε cannot be met and a column is not reached; (excess, message) tried at each."""


def best(
    graph: Graph,
    parts: int,
    cut: Cut,
    epsilon: float,
    seed: int,
    tell: Callable[[str], None],
    cycle: Cycle | None = None,
) -> np.ndarray:
    """The parts of the contender whose columns are best. [n]

    Columns are average volume, the most that a part sends, and messages, each relative to the least of the
    libraries; the most also to that of a random assignment. Round by round a refinement's prices follow from
    what the last one reached: the worst column's goes up.

    Where a column is not reached, whole clusters are moved (`Lane.breathe`), with V-cycles of the hypergraph
    library in between, by `cycle`, until all are reached or all tries are used.

    Work is bounded by ε. Where that cannot be (a row is heavier than a part, or both libraries failed), the
    bound is what the lighter library reached; and where a column is not reached within it, there is more room
    step by step, up to the heaviest part of the libraries and of a random assignment.

    >>> from weft.graph import karate
    >>> best(karate(), 2, lambda name: np.arange(34) % 2, 0.5, 0, lambda line: None).shape
    (34,)
    """
    names = [name for name, package in CUTS.items() if importlib.util.find_spec(package) is not None]
    if not names:
        raise UserError("the method 'best' needs pymetis or mtkahypar. Use: pip install 'weft[partition]'.")
    made = {name: cut(name) for name in names}
    costs = {name: measure(graph, parts_of, parts) for name, parts_of in made.items()}
    drawn = measure(graph, simple.shuffled(graph.num_nodes, parts, seed), parts)
    nets = Nets.of(graph)
    asked = int((1 + epsilon) * -(-int(nets.weights.sum()) // parts))
    aim = Aim.of(list(costs.values()), drawn, work_bound(nets.weights, parts, epsilon), asked)
    found = [Contender(name, made[name], costs[name]) for name in names]
    lanes = [Lane(nets, aim, contender, seed) for contender in found]
    for lane in lanes:
        found += [lane.again() for _ in range(_ROUNDS)]
    first = min(lanes, key=lambda lane: min(map(aim.rank, lane.found)))
    found += [first.again() for _ in range(_MORE)]
    for most in (aim.most, *aim.levels()):
        if any(map(aim.reached, found)):
            break
        for lane in lanes:
            found += [lane.within(most, *prices) for prices in _PRICES]
    idle = 0
    for name, room, share in _BREATHS:
        if any(map(aim.reached, found)) or idle == _PATIENCE:
            break
        ahead = min(found, key=aim.rank)
        start = next((one for one in found if one.name == name), ahead)
        lane = next(lane for lane in lanes if start in lane.found)
        found += lane.breathe(start, room, share, cycle)
        idle = 0 if min(map(aim.rank, found))[:3] < aim.rank(ahead)[:3] else idle + 1
    for one in found:
        tell(
            f"{one.name}: volume {one.cost.volume_total:,}, at most {one.cost.volume_max:,} a part, "
            f"{one.cost.messages_total:,} messages, heaviest part {one.cost.loads.max():,}"
        )
    taken = min(found, key=aim.rank)
    tell(f"best: {taken.name}")
    return taken.parts


@dataclass(frozen=True, eq=False)
class Contender:
    """Parts and what they cost."""

    name: str
    parts: np.ndarray
    cost: Metrics


@dataclass(frozen=True)
class Aim:
    """What no column should exceed."""

    volume: int
    send: int
    messages: int
    receive: int
    most: int
    """Work of a part."""
    cap: int = 0
    """Work of a part where ε cannot be met: what `most` may be raised to; 0 where it can."""

    @classmethod
    def of(cls, libraries: list[Metrics], drawn: Metrics, bound: int, asked: int) -> Aim:
        """`bound` is ε's, or the heaviest row; `asked` is ε's alone."""
        every = [*libraries, drawn]
        heaviest = [int(m.loads.max()) for m in libraries]
        most = max(bound, min(heaviest))
        cap = max(most, *heaviest, int(drawn.loads.max())) if most > asked + 1 else 0
        return cls(
            max(1, min(m.volume_total for m in libraries)), max(1, min(m.volume_max for m in every)),
            max(1, min(m.messages_total for m in libraries)), min(int(m.between.sum(0).max()) for m in every),
            most, cap,
        )  # fmt: skip

    def levels(self) -> list[int]:
        """Bounds of work above `most`, each the same share above the last."""
        if self.cap <= self.most:
            return []
        return [int(self.most * (self.cap / self.most) ** (k / _LEVELS)) for k in range(1, _LEVELS + 1)]

    def ratios(self, cost: Metrics) -> dict[str, float]:
        """Column by column: what was reached relative to the aim."""
        return {
            "volume": cost.volume_total / self.volume, "send": cost.volume_max / self.send,
            "messages": cost.messages_total / self.messages,
        }  # fmt: skip

    def reached(self, contender: Contender) -> bool:
        """No column is above the aim, and the work is within what is allowed."""
        return self.rank(contender)[:3] <= (1.0, 1.0, 1.0)

    def next_price(self, price: Price, cost: Metrics) -> Price:
        """Prices that follow from what the last ones reached."""
        ratios = self.ratios(cost)
        worst = max(ratios, key=lambda column: ratios[column])
        send, excess, message = price.send, price.excess, price.message
        if ratios[worst] <= 1:
            send, message = int(0.95 * send), 1.25 * message  # all is reached: now more than that
        elif worst == "send":
            excess *= 2
        elif worst == "messages":
            message *= 2
        else:
            excess, message = excess / 2, message / 2
        return Price(price.most, send, price.receive, excess, message)

    def rank(self, contender: Contender) -> tuple[float, ...]:
        """Less is better: work that is allowed, to a hundredth; a maximum within the aim; the worst column,
        to a hundredth where more room was given for it; then the least work, and all columns."""
        ratios = self.ratios(contender.cost)
        load = float(contender.cost.loads.max())
        worst = max(1.0, *ratios.values())
        return (
            max(1.0, load / max(self.most, self.cap) - 0.01), max(1.0, ratios["send"]),
            round(worst + 0.0049, 2) if self.cap else worst, max(1.01, load / self.most),
            sum(ratios.values()),
        )  # fmt: skip


class Lane:
    """Refinements of one cut, each going on from the last."""

    def __init__(self, nets: Nets, aim: Aim, start: Contender, seed: int):
        self.nets, self.aim, self.seed = nets, aim, seed
        self.name, self.found = start.name, [start]
        self.price = Price(aim.most, aim.send, aim.receive)

    def _refined(self, start: Contender, price: Price, passes: int = 2) -> Contender:
        count, number = len(start.cost.sizes), len(self.found)
        parts, _ = self.nets.refine(start.parts, count, price, self.seed + number, passes)
        made = Contender(f"{self.name}, refined {number}", parts, measure(self.nets.graph, parts, count))
        self.found.append(made)
        return made

    def within(self, most: int, excess: float, message: float) -> Contender:
        """The library's own cut, refined anew with this much room: what was moved for less room stands in
        the way."""
        price = Price(most, int(0.99 * self.aim.send), self.aim.receive, excess, message)
        return self._refined(self._refined(self.found[0], price, 3), price, 3)

    def breathe(self, start: Contender, room: float, share: float, cycle: Cycle | None) -> list[Contender]:
        """Clusters are moved with more room than is allowed; a V-cycle of the hypergraph library, which
        minimises the volume, brings them back to ε; then clusters are moved within the bound."""
        aim, parts, made = self.aim, start.parts, list[Contender]()
        wide = Price(int(room * aim.most), int(share * aim.send), aim.receive, 4.0, 8.0)
        parts = self._moved(parts, wide)
        if cycle is not None:
            parts = cycle(parts)
        price = Price(aim.most, aim.send, aim.receive, 4.0, 2.0)
        for _ in range(_CYCLES):
            parts = self._moved(parts, price)
            cost = measure(self.nets.graph, parts, len(start.cost.sizes))
            made.append(Contender(f"{self.name}, in clusters {len(self.found)}", parts, cost))
            self.found.append(made[-1])
            if aim.reached(made[-1]):
                break
            price = aim.next_price(price, cost)
        return made

    def _moved(self, parts: np.ndarray, price: Price) -> np.ndarray:
        count, seed = len(self.found[0].cost.sizes), self.seed + len(self.found)
        return self.nets.cycle(parts, count, price, seed)[0]

    def again(self) -> Contender:
        """Refine once more; prices of the next round follow from what is reached."""
        made = self._refined(self.found[-1], self.price)
        self.price = self.aim.next_price(self.price, made.cost)
        return made

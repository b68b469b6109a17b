"""A portfolio: METIS and Mt-KaHyPar, both refined for the slowest rank and for few messages; one is kept."""

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
_ROUNDS, _MORE = 3, 3
"""Refinements of each cut; and more of the one that is best by then."""


def best(
    graph: Graph, parts: int, cut: Cut, epsilon: float, seed: int, tell: Callable[[str], None]
) -> np.ndarray:
    """The parts of the contender whose columns are best. [n]

    Columns are average volume, the most that a part sends, and messages, each relative to the least of the
    libraries; the most also to that of a random assignment. Round by round a refinement's prices follow from
    what the last one reached: the worst column's goes up.

    >>> from weft.graph import karate
    >>> best(karate(), 2, lambda name: np.arange(34) % 2, 0.5, 0, lambda line: None).shape
    (34,)
    """
    known = {"metis": "pymetis", "hypergraph": "mtkahypar"}
    names = [name for name, package in known.items() if importlib.util.find_spec(package) is not None]
    if not names:
        raise UserError("the method 'best' needs pymetis or mtkahypar. Use: pip install 'weft[partition]'.")
    made = {name: cut(name) for name in names}
    costs = {name: measure(graph, parts_of, parts) for name, parts_of in made.items()}
    drawn = measure(graph, simple.shuffled(graph.num_nodes, parts, seed), parts)
    nets = Nets.of(graph)
    lightest = min(int(cost.loads.max()) for cost in costs.values())
    aim = Aim.of(list(costs.values()), drawn, max(work_bound(nets.weights, parts, epsilon), lightest))
    found = [Contender(name, made[name], costs[name]) for name in names]
    lanes = [Lane(nets, aim, contender, seed) for contender in found]
    for lane in lanes:
        found += [lane.again() for _ in range(_ROUNDS)]
    first = min(lanes, key=lambda lane: min(map(aim.rank, lane.found)))
    found += [first.again() for _ in range(_MORE)]
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

    @classmethod
    def of(cls, libraries: list[Metrics], drawn: Metrics, most: int) -> Aim:
        every = [*libraries, drawn]
        return cls(
            max(1, min(m.volume_total for m in libraries)), max(1, min(m.volume_max for m in every)),
            max(1, min(m.messages_total for m in libraries)), min(int(m.between.sum(0).max()) for m in every),
            most,
        )  # fmt: skip

    def ratios(self, cost: Metrics) -> dict[str, float]:
        """Column by column: what was reached relative to the aim."""
        return {
            "volume": cost.volume_total / self.volume, "send": cost.volume_max / self.send,
            "messages": cost.messages_total / self.messages,
        }  # fmt: skip

    def rank(self, contender: Contender) -> tuple[float, ...]:
        """Less is better: balance within a hundredth, a maximum within the aim, the worst column, all."""
        ratios = self.ratios(contender.cost)
        heavy = max(1.01, float(contender.cost.loads.max()) / self.most)
        return heavy, max(1.0, ratios["send"]), max(1.0, *ratios.values()), sum(ratios.values())


class Lane:
    """Refinements of one cut, each going on from the last."""

    def __init__(self, nets: Nets, aim: Aim, start: Contender, seed: int):
        self.nets, self.aim, self.seed = nets, aim, seed
        self.name, self.found = start.name, [start]
        self.price = Price(aim.most, aim.send, aim.receive)

    def again(self) -> Contender:
        """Refine once more; prices of the next round follow from what is reached."""
        last, price, aim = self.found[-1], self.price, self.aim
        count = len(last.cost.sizes)
        parts, _ = self.nets.refine(last.parts, count, price, self.seed + len(self.found))
        made = Contender(
            f"{self.name}, refined {len(self.found)}", parts, measure(self.nets.graph, parts, count)
        )
        self.found.append(made)
        ratios = aim.ratios(made.cost)
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
        self.price = Price(price.most, send, price.receive, excess, message)
        return made

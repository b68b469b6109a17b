"""A portfolio: METIS and Mt-KaHyPar, both refined for the slowest rank: the one nowhere far behind."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np

from ..errors import UserError
from ..graph import Graph
from . import simple
from .metrics import Metrics, measure
from .refine import refine

Cut = Callable[[str], np.ndarray]
"""The name of a method → its parts, [n]."""


def best(
    graph: Graph, parts: int, cut: Cut, epsilon: float, seed: int, tell: Callable[[str], None]
) -> np.ndarray:
    """The parts of the contender whose worst column is best. [n]

    Columns are average volume, the most that a part sends, and messages, each relative to the least of all
    contenders. The refinement relieves parts that send more than 0.95 of the least maximum: that of the
    libraries or of a random assignment, whichever is less.

    >>> from weft.graph import karate
    >>> best(karate(), 2, lambda name: np.arange(34) % 2, 0.5, 0, lambda line: None).shape
    (34,)
    """
    known = {"metis": "pymetis", "hypergraph": "mtkahypar"}
    names = [name for name, package in known.items() if importlib.util.find_spec(package) is not None]
    if not names:
        raise UserError("the method 'best' needs pymetis or mtkahypar. Use: pip install 'weft[partition]'.")
    found = {name: cut(name) for name in names}
    costs = {name: measure(graph, made, parts) for name, made in found.items()}
    drawn = measure(graph, simple.shuffled(graph.num_nodes, parts, seed), parts)
    bound = 0.95 * min(m.volume_max for m in (*costs.values(), drawn))
    for name in names:
        made = refine(graph, found[name], parts, epsilon, seed, bound)
        found[f"{name}, refined"], costs[f"{name}, refined"] = made, measure(graph, made, parts)
    for name, cost in costs.items():
        tell(
            f"{name}: volume {cost.volume_total:,}, at most {cost.volume_max:,} a part, "
            f"{cost.messages_total:,} messages"
        )
    taken = choose(costs)
    tell(f"best: {taken}")
    return found[taken]


def choose(costs: dict[str, Metrics]) -> str:
    """The contender whose largest ratio to the least of a column is least; of equal ones the first.

    >>> from types import SimpleNamespace as Cost
    >>> one = Cost(volume_total=10, volume_max=9, messages_total=4)
    >>> two = Cost(volume_total=11, volume_max=5, messages_total=4)
    >>> choose({"one": one, "two": two})
    'two'
    """
    columns = ("volume_total", "volume_max", "messages_total")
    table = np.array(
        [[max(1, getattr(cost, column)) for column in columns] for cost in costs.values()], dtype=float
    )
    worst = (table / table.min(0)).max(1)
    return list(costs)[int(worst.argmin())]

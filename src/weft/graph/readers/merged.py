"""What a reader says where arcs that carry data were given more than once."""

from __future__ import annotations

import warnings
from pathlib import Path

from weft.errors import Note
from weft.graph.graph import Graph


def merged(given: int, graph: Graph) -> str:
    """What became of arcs given more than once, of `given`; empty where there were none.

    >>> graph = Graph.from_arcs([0, 0, 1], [1, 1, 0], weights=[1, 2, 3], arc_data={"time": [7, 8, 9]})
    >>> merged(3, graph)
    '1 arc was given again and merged: weights are added up, of time the first is kept'
    """
    again = given - graph.num_arcs
    if not again:
        return ""
    fate = [] if graph.weights is None else ["weights are added up"]
    if graph.arc_data:
        fate.append(f"of {', '.join(graph.arc_data)} the first is kept")
    were = "arc was" if again == 1 else "arcs were"
    return f"{again:,} {were} given again and merged{': ' if fate else ''}{', '.join(fate)}"


def note_merged(path: str | Path, given: int, graph: Graph) -> None:
    """Warn where data of arcs were lost; a graph without arc data loses nothing."""
    if graph.arc_data and (text := merged(given, graph)):
        warnings.warn(f"{path}: {text}.", Note, stacklevel=3)

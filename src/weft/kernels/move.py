"""What a layer asks of the graph's matrix: said by models, counted by grids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """One thing that a layer asks of the graph in a training step: from it follow the words that travel.

    >>> Move("propagate", 16, grads=(False,)).width  # forward alone
    16
    """

    kind: str
    """propagate, extremum, attend additive, attend dot, spread row, spread column, sum, dots, softmax, weigh,
    weigh extremum or arcs."""
    width: int
    """Columns of what moves."""
    grads: tuple[bool, ...] = (True,)
    """For every operand, in order: whether its gradient is wanted."""
    heads: int = 1
    key_width: int = 0
    """attend: columns of the row operand."""
    softmax: bool = False
    together: bool = False
    """attend: whether the column operand is x itself."""
    gain: bool = False
    """attend: whether dot products have a factor per column."""

"""How attention scores its arcs, by name: one list of options for all who ask."""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor

from .dropout import Stream


class Scoring(TypedDict, total=False):
    """Options of `A.attend`; what is left out has the default named here.

    >>> Scoring(kind="dot", heads=2)
    {'kind': 'dot', 'heads': 2}
    """

    kind: str
    """additive (the default), dot or channel."""
    heads: int
    """1."""
    slope: float
    """Of the LeakyReLU below 0; 1: there is none."""
    softmax: bool
    """Whether scores go through a softmax over the row: yes."""
    gain: Tensor | None
    """[s, heads], a factor of each column of dot products."""
    scale: Tensor | None
    """[t, heads], one of each row."""
    drop: tuple[float, Stream] | None
    """(p, stream): share of the arcs left out in each head."""
    bias: Tensor | None
    """[arcs, heads], added to scores."""
    mix: Tensor | None
    """[heads · d], of channel scores."""
    edge: tuple[str, Tensor] | None
    """(name of the arcs' data f, W [t, heads · d]), of channel scores."""

"""Graphs out of nothing: seeded, vectorised."""

from weft.graph.generators.bter import bter, power_law
from weft.graph.generators.er import er
from weft.graph.generators.karate import karate
from weft.graph.generators.kronecker import kronecker
from weft.graph.generators.sbm import sbm

__all__ = ["bter", "er", "karate", "kronecker", "power_law", "sbm"]

"""A graph on a grid of ranks: who owns what, what moves, and the product that results."""

from .blocks import Blocks
from .distributed import DistributedGraph, check_slices
from .exchange import Exchange
from .fetch import ByBlocks, Cyclic, Fetch, Owners, fetch
from .grid import STRATEGIES, Grid, choose
from .volume import Volume

__all__ = [
    "STRATEGIES",
    "Blocks",
    "ByBlocks",
    "Cyclic",
    "DistributedGraph",
    "Exchange",
    "Fetch",
    "Grid",
    "Owners",
    "Volume",
    "check_slices",
    "choose",
    "fetch",
]

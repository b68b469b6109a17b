"""A graph on a grid of ranks: who owns what, what moves, and the product that results."""

from .blocks import Blocks
from .by_host import ByHost, check_by_host
from .exchange import Exchange
from .fetch import ByBlocks, Cyclic, Fetch, Owners, fetch
from .grid import STRATEGIES, Grid, choose
from .layout import (
    Columns,
    Layout,
    Partial,
    Replicated,
    Rows,
    Stacked,
    collect_by_number,
    redistribute,
    sum_together,
)
from .operator import Operator, check_slices
from .shared import Shared
from .subgraph import Restriction
from .volume import Volume, counted

__all__ = [
    "STRATEGIES",
    "Blocks",
    "ByBlocks",
    "ByHost",
    "Columns",
    "Cyclic",
    "Exchange",
    "Fetch",
    "Grid",
    "Layout",
    "Operator",
    "Owners",
    "Partial",
    "Replicated",
    "Restriction",
    "Rows",
    "Shared",
    "Stacked",
    "Volume",
    "check_by_host",
    "check_slices",
    "choose",
    "collect_by_number",
    "counted",
    "fetch",
    "redistribute",
    "sum_together",
]

"""Who owns which vertex, and what that assignment will cost in messages."""

from .grids import arrange, partition_for_grid
from .hypergraph import PRESETS, Hypergraph
from .methods import METHODS, PartitionOptions, check_method, partition_graph
from .metrics import Metrics, batch_volume, measure, measure_rows
from .order import ORDERS, order_within
from .stochastic import Sampler, uniform_batches

__all__ = [
    "METHODS",
    "ORDERS",
    "PRESETS",
    "Hypergraph",
    "Metrics",
    "PartitionOptions",
    "Sampler",
    "arrange",
    "batch_volume",
    "check_method",
    "measure",
    "measure_rows",
    "order_within",
    "partition_for_grid",
    "partition_graph",
    "uniform_batches",
]

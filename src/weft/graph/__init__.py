"""Graphs: the object, the store on disk, readers, generators, normalisations."""

from weft.graph.generators import bter, er, karate, kronecker, power_law, sbm
from weft.graph.graph import Graph
from weft.graph.links import NonArcs, hold_out
from weft.graph.loading import data_sets, generate, load, read
from weft.graph.normalise import normalise, normalise_features
from weft.graph.readers import (
    from_pyg,
    read_edge_list,
    read_matrix_market,
    read_npz,
    read_planetoid,
    to_pyg,
)
from weft.graph.split import split
from weft.graph.store import Rows, Store, open_store, write_store

__all__ = [
    "Graph",
    "NonArcs",
    "Rows",
    "Store",
    "bter",
    "data_sets",
    "er",
    "from_pyg",
    "generate",
    "hold_out",
    "karate",
    "kronecker",
    "load",
    "normalise",
    "normalise_features",
    "open_store",
    "power_law",
    "read",
    "read_edge_list",
    "read_matrix_market",
    "read_npz",
    "read_planetoid",
    "sbm",
    "split",
    "to_pyg",
    "write_store",
]

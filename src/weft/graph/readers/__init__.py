"""Graphs out of files that others wrote, one format a file of this folder. Files are untrusted."""

from weft.graph.readers.edge_list import read_edge_list
from weft.graph.readers.matrix_market import read_matrix_market
from weft.graph.readers.npz import read_npz
from weft.graph.readers.planetoid import read_planetoid
from weft.graph.readers.pyg import from_pyg, to_pyg

__all__ = ["from_pyg", "read_edge_list", "read_matrix_market", "read_npz", "read_planetoid", "to_pyg"]

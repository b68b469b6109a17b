"""Graphs out of files that others wrote, one format a file of this folder. Files are untrusted."""

from weft.graph.readers.edge_list import read_edge_list
from weft.graph.readers.matrix_market import read_matrix_market
from weft.graph.readers.npz import read_npz
from weft.graph.readers.ogb_nodes import read_ogb_nodes
from weft.graph.readers.planetoid import read_planetoid
from weft.graph.readers.pyg import from_pyg, to_pyg
from weft.graph.readers.reddit import read_reddit
from weft.graph.readers.saint import read_saint
from weft.graph.readers.webgraph import read_webgraph

__all__ = [
    "from_pyg", "read_edge_list", "read_matrix_market", "read_npz", "read_ogb_nodes", "read_planetoid",
    "read_reddit", "read_saint", "read_webgraph", "to_pyg",
]  # fmt: skip

"""Operators of one device, no messages: C++ beside a torch reference, one operator a file."""

from .csr import CSR
from .draw import draw, shuffled, uniform
from .dropout import Stream, dropout, relu_, relu_dropout_
from .elementwise import add_bias, add_scaled, elu_, norms, row_products
from .linear import add_linear_, linear, linears
from .loss import cross_entropy
from .native import use
from .rows import add_pair_products_, add_rows_, gather_rows, pack_rows, pair_products, scatter_add
from .sampling import relabel, sample_block, sample_rows
from .sddmm import sddmm
from .semiring import Reduction, Semiring
from .spmm import spmm

__all__ = [
    "CSR",
    "Reduction",
    "Semiring",
    "Stream",
    "add_bias",
    "add_linear_",
    "add_pair_products_",
    "add_rows_",
    "add_scaled",
    "cross_entropy",
    "draw",
    "dropout",
    "elu_",
    "gather_rows",
    "linear",
    "linears",
    "norms",
    "pack_rows",
    "pair_products",
    "relabel",
    "relu_",
    "relu_dropout_",
    "row_products",
    "sample_block",
    "sample_rows",
    "scatter_add",
    "sddmm",
    "shuffled",
    "spmm",
    "uniform",
    "use",
]

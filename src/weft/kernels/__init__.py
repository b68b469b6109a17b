"""Operators of one device, no messages: C++ beside a torch reference, one operator a file."""

from .csr import CSR
from .dropout import Stream, dropout, relu_dropout_
from .native import use
from .rows import add_rows_, gather_rows, pack_rows, scatter_add
from .sddmm import sddmm
from .spmm import spmm

__all__ = [
    "CSR",
    "Stream",
    "add_rows_",
    "dropout",
    "gather_rows",
    "pack_rows",
    "relu_dropout_",
    "scatter_add",
    "sddmm",
    "spmm",
    "use",
]

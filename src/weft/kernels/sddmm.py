"""Dense times dense, sampled at a sparse matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from ..memory import empty
from ..meter import metered
from . import dry, native
from .csr import CSR


def sddmm(a: CSR, left: Tensor, right: Tensor) -> Tensor:
    """out[e] = ⟨left[i], right[j]⟩ for every stored entry e = (i, j) of A.

        left   [rows, w]
        right  [columns, w]
        out    [arcs]

    A plain kernel without autograd: SpMM's backward calls it for the gradient of the values.

    >>> import torch
    >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> sddmm(a, torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([[1., 0.], [1., 1.]]))
    tensor([3., 3.])
    """
    if left.shape[0] != a.shape[0] or right.shape[0] != a.shape[1] or left.shape[1] != right.shape[1]:
        raise ValueError(
            f"A is {a.shape[0]}x{a.shape[1]}: left and right are {tuple(left.shape)}, {tuple(right.shape)}"
        )
    return sddmm_heads(a, left, right, 0, left.shape[1], 1).squeeze(1)


@metered("sddmm")
def sddmm_heads(a: CSR, left: Tensor, right: Tensor, first: int, dim: int, heads: int) -> Tensor:
    """out[e,h] = ⟨left[i], right[j]⟩ over the columns of head h. [rows, w], [columns, w] → [arcs, heads].

    Column c is one of head (first + c) // dim.

    >>> a = CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1))
    >>> sddmm_heads(a, torch.tensor([[1., 2., 3., 4.]]), torch.ones(1, 4), first=0, dim=2, heads=2)
    tensor([[3., 7.]])
    """
    width = left.shape[1]
    if native.served(left, right, a.indices):
        left, right = left.contiguous(), right.contiguous()
        out = empty(a.arcs, heads, like=left)
        native.kernel("sddmm", left, a.indices)(
            a.shape[0], *map(native.address, (a.indptr, a.indices, left, right)), width, first, max(dim, 1),
            heads, native.address(out), native.threads(a.arcs * max(width, heads)),
        )  # fmt: skip
        return out
    if dry.is_dry(left, right, a.indices):
        return dry.blank(a.arcs, heads, dtype=left.dtype)
    products = left[a.row_of] * right[a.indices.long()]
    if heads == 1:
        return products.sum(1, keepdim=True)
    return products.new_zeros(a.arcs, heads).index_add_(1, head_of(width, first, dim, left.device), products)


def head_of(width: int, first: int, dim: int, device: torch.device) -> Tensor:
    """[w]: the head of each column."""
    return (first + torch.arange(width, device=device)) // max(dim, 1)

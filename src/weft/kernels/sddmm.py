"""Dense times dense, sampled at a sparse matrix."""

from __future__ import annotations

from torch import Tensor

from . import native
from .csr import CSR
from .memory import empty


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
    if native.served(left, right, a.indices):
        left, right = left.contiguous(), right.contiguous()
        out = empty(a.arcs, like=left)
        native.kernel("sddmm", left, a.indices)(
            a.shape[0], *map(native.address, (a.indptr, a.indices, left, right)), left.shape[1],
            native.address(out), native.threads(a.arcs * left.shape[1]),
        )  # fmt: skip
        return out
    return (left[a.row_of] * right[a.indices.long()]).sum(1)

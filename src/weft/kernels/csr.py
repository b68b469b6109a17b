"""A sparse matrix in compressed rows, with its transpose kept beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from . import native
from .kept import Kept, repeat


@dataclass(eq=False)
class CSR:
    """A [rows, columns] sparse matrix A; row i holds columns `indices[indptr[i]:indptr[i + 1]]`.

        indptr   [rows + 1]  int64
        indices  [arcs]      int32 or int64
        values   [arcs]      or None: every stored entry is 1

    `A @ x` is `spmm(A, x)`. The transpose is built on first use and kept, for backward.

    >>> A = CSR(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), torch.tensor([5., 1., 2.]), (2, 3))
    >>> A.dense()
    tensor([[0., 5., 0.],
            [1., 0., 2.]])
    >>> (A @ torch.ones(3, 1)).ravel()
    tensor([5., 3.])
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor | None
    shape: tuple[int, int]
    rows: Tensor | None = None
    """The global number of each row; None: row r is vertex r."""
    _kept: Kept = field(default_factory=Kept, repr=False)

    def __post_init__(self) -> None:
        rows, columns = self.shape
        if self.indptr.dtype != torch.int64 or self.indptr.shape != (rows + 1,):
            raise ValueError(
                f"indptr must be int64 of length {rows + 1}, "
                f"not {self.indptr.dtype} {tuple(self.indptr.shape)}"
            )
        if self.indices.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"indices must be int32 or int64, not {self.indices.dtype}")
        arcs = self.indices.numel()
        if int(self.indptr[0]) != 0 or int(self.indptr[-1]) != arcs or bool((self.indptr.diff() < 0).any()):
            raise ValueError(f"indptr must rise from 0 to the number of indices, {arcs}")
        if self.values is not None and self.values.shape != (arcs,):
            raise ValueError(f"values must have length {arcs}, not {tuple(self.values.shape)}")
        # The kernels trust the indices: one look here keeps them inside x.
        if arcs and (int(self.indices.min()) < 0 or int(self.indices.max()) >= columns):
            raise ValueError(f"indices must lie in 0..{columns - 1}")
        self.indptr, self.indices = self.indptr.contiguous(), self.indices.contiguous()
        self.values = None if self.values is None else self.values.contiguous()

    @property
    def arcs(self) -> int:
        """Stored entries."""
        return self.indices.numel()

    @cached_property
    def counts(self) -> Tensor:
        """Stored entries per row, [rows]."""
        return self.indptr.diff()

    @cached_property
    def row_of(self) -> Tensor:
        """The row of each stored entry, [arcs]; the torch kernels index with it."""
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.indptr.device), self.counts)

    def dense(self) -> Tensor:
        """The matrix as a dense tensor, for tests and small graphs."""
        values = torch.ones(self.arcs) if self.values is None else self.values
        out = torch.zeros(self.shape, dtype=values.dtype, device=self.indices.device)
        return out.index_put((self.row_of, self.indices.long()), values.to(out.device), accumulate=True)

    def _transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = self.shape
        if native.served(self.indices):
            indptr = torch.empty(columns + 1, dtype=torch.int64)
            indices, permutation = torch.empty_like(self.indices), torch.empty(self.arcs, dtype=torch.int64)
            native.kernel("transpose", self.indices)(
                rows, columns, *map(native.address, (self.indptr, self.indices, indptr, indices, permutation))
            )
            return indptr, indices, permutation
        permutation = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=columns)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return indptr, self.row_of[permutation].to(self.indices.dtype), permutation

    @cached_property
    def T(self) -> CSR:
        """Aᵀ. Of a symmetric matrix it shares the memory; of an equal one it is the matrix itself."""
        indptr, indices, permutation = self._transposed()
        values = None if self.values is None else self.values[permutation]
        if (
            self.shape[0] == self.shape[1]
            and torch.equal(indptr, self.indptr)
            and torch.equal(indices, self.indices)
        ):
            indptr, indices = self.indptr, self.indices
            if values is None or torch.equal(values, self.values):  # type: ignore[arg-type]
                return self
        transpose = CSR.__new__(CSR)
        transpose.__dict__.update(
            indptr=indptr,
            indices=indices,
            values=values,
            shape=self.shape[::-1],
            rows=None,
            _kept=Kept(),
            T=self,
        )
        return transpose

    @cached_property
    def permutation(self) -> Tensor:
        """Arc e of Aᵀ is arc `permutation[e]` of A, [arcs] int64."""
        return self._transposed()[2]

    @cached_property
    def row_picks(self) -> CSR:
        """[rows, arcs]: its product with numbers per arc adds them up by row."""
        arcs = torch.arange(self.arcs, dtype=self.indices.dtype, device=self.indices.device)
        return CSR(self.indptr, arcs, None, (self.shape[0], self.arcs))

    @cached_property
    def column_picks(self) -> CSR:
        """[columns, arcs]: its product with numbers per arc adds them up by column."""
        arcs = self.permutation.to(self.indices.dtype)
        return CSR(self.T.indptr, arcs, None, (self.shape[1], self.arcs))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> CSR:
        """The same matrix on another device, or with values of another type."""
        values = None if self.values is None else self.values.to(device=device, dtype=dtype)
        return CSR(self.indptr.to(device), self.indices.to(device), values, self.shape)

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.aggregate(x)

    def aggregate(self, x: Tensor, reduce: str = "sum") -> Tensor:
        """y[i] = ⊕ over j of a_ij x[j], ⊕ one of sum, mean, max, min. [columns, w] to [rows, w]."""
        from .spmm import spmm

        return spmm(self, x, reduce=reduce)

    def once(self, x: Tensor, reduce: str = "sum", hops: int = 1) -> Tensor:
        """`aggregate(x)`, `hops` times over, of an x that does not change: computed on first use and kept."""
        return self._kept.get((reduce, hops), x, lambda: repeat(lambda y: self.aggregate(y, reduce), x, hops))

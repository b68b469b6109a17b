"""A sparse matrix in compressed rows, with its transpose kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from . import dry, native


@dataclass(eq=False)
class CSR:
    """A [rows, columns] sparse matrix A; row i holds columns `indices[indptr[i]:indptr[i + 1]]`.

        indptr   [rows + 1]  int64
        indices  [arcs]      int32 or int64
        values   [arcs]      or None: every stored entry is 1
        shape    (rows, columns)
        data     name → [arcs, …], what each entry carries beside its value; products don't read it

    `A @ x` is `spmm(A, x)`. The transpose is built on first use and kept, for backward; it has no data of its
    own: arc e of Aᵀ carries row `permutation[e]`.

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
    data: dict[str, Tensor] = field(default_factory=dict)

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
        if self.values is not None and self.values.shape != (arcs,):
            raise ValueError(f"values must have length {arcs}, not {tuple(self.values.shape)}")
        for name, x in self.data.items():
            if not x.dim() or x.shape[0] != arcs:
                raise ValueError(f"data {name!r} must have length {arcs}, not {tuple(x.shape)}")
        if dry.is_dry(self.indptr, self.indices):
            self.data = {name: dry.written(x) for name, x in self.data.items()}
            self.indptr, self.indices = dry.written(self.indptr), dry.written(self.indices)
            self.values = None if self.values is None else dry.written(self.values)
        else:
            self._check(arcs, columns)
        self.indptr, self.indices = self.indptr.contiguous(), self.indices.contiguous()
        self.values = None if self.values is None else self.values.contiguous()
        self.data = {name: x.contiguous() for name, x in self.data.items()}

    def _check(self, arcs: int, columns: int) -> None:
        if int(self.indptr[0]) != 0 or int(self.indptr[-1]) != arcs or bool((self.indptr.diff() < 0).any()):
            raise ValueError(f"indptr must rise from 0 to the number of indices, {arcs}")
        # The kernels trust the indices: one look here keeps them inside x.
        least, most = torch.aminmax(self.indices) if arcs else (0, -1)
        if int(least) < 0 or int(most) >= columns:
            raise ValueError(f"indices must lie in 0..{columns - 1}")

    @classmethod
    def blank(
        cls, shape: tuple[int, int], arcs: int, values: bool | torch.dtype | None = None,
        index: torch.dtype = torch.int32, data: Mapping[str, Tensor] | None = None,
    ) -> CSR:  # fmt: skip
        """A matrix of meta tensors for a dry run (`dry.py`): sizes, and no entries.

            values  a type, or True: torch's default one; None or False: every stored entry is 1
            data    what entries carry: of these tensors the shapes and types alone are kept

        >>> (CSR.blank((3, 5), arcs=7) @ torch.empty(5, 2, device="meta")).shape
        torch.Size([3, 2])
        """
        kind = torch.get_default_dtype() if values is True else values or None
        return cls(
            dry.blank(shape[0] + 1, dtype=torch.int64),
            dry.blank(arcs, dtype=index),
            None if kind is None else dry.blank(arcs, dtype=kind),
            shape,
            {} if data is None else dict(data),
        )

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
        rows = torch.arange(self.shape[0], device=self.indptr.device)
        return torch.repeat_interleave(rows, self.counts, output_size=self.arcs)

    def dense(self) -> Tensor:
        """The matrix as a dense tensor, for tests and small graphs."""
        device = self.indices.device
        values = torch.ones(self.arcs, device=device) if self.values is None else self.values.to(device)
        out = torch.zeros(self.shape, dtype=values.dtype, device=device)
        return out.index_put((self.row_of, self.indices.long()), values, accumulate=True)

    def _transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = self.shape
        if native.served(self.indices):
            indptr, permutation = (
                torch.empty(n, dtype=torch.int64, device=self.indices.device)
                for n in (columns + 1, self.arcs)
            )
            indices = torch.empty_like(self.indices)
            native.kernel("transpose", self.indices)(
                rows, columns, *map(native.address, (self.indptr, self.indices, indptr, indices, permutation))
            )
            return indptr, indices, permutation
        if dry.is_dry(self.indptr, self.indices):
            indptr, permutation = (dry.blank(n, dtype=torch.int64) for n in (columns + 1, self.arcs))
            return indptr, torch.empty_like(self.indices), permutation
        permutation = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=columns)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return indptr, self.row_of[permutation].to(self.indices.dtype), permutation

    def _turned(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same with values, without a permutation: 8 bytes an arc less."""
        indptr = torch.empty(self.shape[1] + 1, dtype=torch.int64, device=self.indices.device)
        indices = torch.empty_like(self.indices)
        values = None if self.values is None else torch.empty_like(self.values)
        if dry.is_dry(self.indptr, self.indices):
            return indptr, indices, values
        kind = torch.empty(0, dtype=torch.float32, device="cpu") if values is None else values
        given, made = (self.indptr, self.indices, self.values), (indptr, indices, values)
        native.kernel("turn", indices, kind)(*self.shape, *map(native.address, (*given, *made)))
        return indptr, indices, values

    @cached_property
    def T(self) -> CSR:
        """Aᵀ, without data. Of a symmetric matrix it shares the memory.

        Of an equal one without data it is the matrix itself.
        """
        plain = self.values is None or self.values.is_floating_point()
        made = dry.is_dry(self.indptr, self.indices) or native.served(self.indices, self.values)
        if plain and made:
            indptr, indices, values = self._turned()
        else:
            indptr, indices, permutation = self._transposed()
            values = None if self.values is None else self.values[permutation]
        if (
            not dry.is_dry(indices, values)
            and self.shape[0] == self.shape[1]
            and torch.equal(indptr, self.indptr)
            and torch.equal(indices, self.indices)
        ):
            indptr, indices = self.indptr, self.indices
            if values is None or torch.equal(values, self.values):  # type: ignore[arg-type]
                if not self.data:
                    return self
                values = self.values
        transpose = CSR.__new__(CSR)
        transpose.__dict__.update(
            indptr=indptr,
            indices=indices,
            values=values,
            shape=self.shape[::-1],
            data={},
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
        """The same matrix on another device, or with values and floating-point data of another type."""

        def moved(x: Tensor) -> Tensor:
            return x.to(device=device, dtype=dtype if x.is_floating_point() else None)

        values = None if self.values is None else self.values.to(device=device, dtype=dtype)
        data = {name: moved(x) for name, x in self.data.items()}
        return CSR(self.indptr.to(device), self.indices.to(device), values, self.shape, data)

    def __matmul__(self, x: Tensor) -> Tensor:
        from .spmm import spmm

        return spmm(self, x)

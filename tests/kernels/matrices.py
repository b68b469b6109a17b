"""Small sparse matrices of many shapes for the kernels' tests."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from weft.kernels import CSR


def random_csr(
    rows: int, columns: int, density: float, seed: int, dtype: torch.dtype | None,
    index: torch.dtype = torch.int32,
) -> CSR:  # fmt: skip
    """A random matrix; dtype None has no values. Some rows and columns stay empty at low density."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=g) < density
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)])
    indices = mask.nonzero()[:, 1].to(index) if mask.numel() else torch.empty(0, dtype=index)
    values = None if dtype is None else torch.randn(indices.numel(), generator=g, dtype=dtype)
    return CSR(indptr, indices, values, (rows, columns))


matrices = st.builds(
    random_csr,
    rows=st.integers(0, 17),
    columns=st.integers(1, 17),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.float64, None]),
    index=st.sampled_from([torch.int32, torch.int64]),
)
widths = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 63, 64, 65, 127, 128, 129, 260])

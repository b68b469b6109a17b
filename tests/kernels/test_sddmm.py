from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels import sddmm, use

from .matrices import matrices, random_csr, widths


@given(a=matrices, width=widths, backend=st.sampled_from(["native", "torch"]))
def test_sddmm_is_the_dense_product_at_the_entries(a, width, backend):
    left = torch.randn(a.shape[0], width, dtype=torch.float64)
    right = torch.randn(a.shape[1], width, dtype=torch.float64)
    with use(backend):
        out = sddmm(a, left, right)
    torch.testing.assert_close(out, (left @ right.T)[a.row_of, a.indices.long()], rtol=1e-12, atol=1e-12)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"\(4, 2\), \(3, 3\)"):
        sddmm(random_csr(4, 3, 0.5, 0, None), torch.ones(4, 2), torch.ones(3, 3))

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from weft.kernels import CSR, use

from .matrices import matrices, random_csr


@given(a=matrices)
def test_transpose_is_the_dense_transpose(a):
    assert torch.equal(a.T.dense(), a.dense().T)
    assert a.T.T is a
    assert torch.equal(a.T.row_of, a.indices[a.permutation].long())
    if a.values is not None and a.T is not a:
        assert torch.equal(a.T.values, a.values[a.permutation])
    with use("torch"):
        other = CSR(a.indptr, a.indices, a.values, a.shape).T
    assert torch.equal(other.indices, a.T.indices)
    assert torch.equal(other.indptr, a.T.indptr)


def test_a_symmetric_matrix_is_its_own_transpose():
    full = random_csr(9, 9, 0.4, seed=1, dtype=torch.float64).dense()
    full = full + full.T
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (full != 0).sum(1).cumsum(0)])
    indices = (full != 0).nonzero()[:, 1].int()
    a = CSR(indptr, indices, full[full != 0], (9, 9))
    assert a.T is a
    skew = CSR(indptr, indices, torch.arange(indices.numel()).double(), (9, 9))
    assert skew.T is not skew
    assert skew.T.indices is skew.indices
    assert torch.equal(skew.T.dense(), skew.dense().T)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "shape", "words"),
    [
        ([0, 1], [3], None, (1, 3), "0..2"),
        ([0, 1], [-1], None, (1, 3), "0..2"),
        ([0, 2, 1], [0], None, (2, 3), "rise from 0"),
        ([0, 1], [0], [1.0, 2.0], (1, 3), "length 1"),
        ([0, 1, 1], [0], None, (1, 3), "length 2"),
    ],
)
def test_a_matrix_that_would_read_elsewhere_is_refused(indptr, indices, values, shape, words):
    values = None if values is None else torch.tensor(values)
    with pytest.raises(ValueError, match=words):
        CSR(torch.tensor(indptr), torch.tensor(indices, dtype=torch.int32), values, shape)

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from weft.kernels import CSR, use
from weft.parallel.propagate import blank

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


def carrying(seed: int = 1) -> CSR:
    """A symmetric pattern whose arcs carry numbers and types."""
    there = random_csr(9, 9, 0.3, seed, torch.float64).dense() != 0
    there = there | there.T
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    indices = there.nonzero()[:, 1].int()
    arcs = indices.numel()
    data = {"x": torch.arange(3.0 * arcs).view(arcs, 3), "type": torch.arange(arcs) % 4}
    return CSR(indptr, indices, None, (9, 9), data)


def test_data_go_along_to_another_type_and_types_stay_whole():
    a = carrying()
    b = a.to(dtype=torch.float64)
    assert b.data["x"].dtype == torch.float64
    assert b.data["type"].dtype == torch.int64
    assert torch.equal(b.data["x"], a.data["x"].double())
    assert torch.equal(b.data["type"], a.data["type"])


def test_the_transpose_has_no_data_that_would_stand_in_another_order():
    a = carrying()
    assert a.T is not a  # of a symmetric pattern it would be, were there no data
    assert a.T.data == {}
    assert a.T.T is a
    assert a.T.indices is a.indices
    assert torch.equal(a.T.dense(), a.dense().T)
    assert CSR(a.indptr, a.indices, None, a.shape).data == {}


def test_a_blank_copy_has_data_of_the_same_shapes_and_no_numbers():
    a = carrying()
    for dry in (blank(a), CSR.blank(a.shape, a.arcs, data=a.data)):
        assert dry.data.keys() == a.data.keys()
        for name, x in a.data.items():
            assert dry.data[name].is_meta
            assert (dry.data[name].shape, dry.data[name].dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("shape", [(2,), (4, 1), ()])
def test_data_of_another_length_are_refused(shape):
    with pytest.raises(ValueError, match="data 'x' must have length 3"):
        CSR(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, (1, 3), {"x": torch.zeros(shape)})

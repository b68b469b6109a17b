"""Every kernel on meta tensors: the shapes and types of the same call on real ones, and nothing computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft import kernels
from weft.kernels import CSR, native
from weft.kernels.attention import Scores, attend
from weft.kernels.spmm import multiply

from .calls import (
    ALONE,
    COLUMNS,
    DIFFERENTIABLE,
    DRY,
    PLAIN,
    REAL,
    ROWS,
    WIDTH,
    forward_and_backward,
    meta_index,
    meta_x,
    real_x,
    tensors,
)  # fmt: skip
from .matrices import random_csr


def alike(dry: object, real: object) -> None:
    """Meta, and otherwise what the real call gives."""
    for ours, theirs in zip(tensors(dry), tensors(real), strict=True):
        if theirs is None:
            assert ours is None
            continue
        assert ours is not None
        assert ours.is_meta
        assert (ours.shape, ours.dtype, ours.is_contiguous()) == (
            theirs.shape,
            theirs.dtype,
            theirs.is_contiguous(),
        )


@pytest.fixture
def _nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native kernels count as computation: none may start in a dry run."""

    def refuse(name: str, *typed: Tensor) -> None:
        raise AssertionError(f"{name} was started in a dry run")

    monkeypatch.setattr(native, "kernel", refuse)


@pytest.mark.parametrize("world", DRY)
@pytest.mark.parametrize("name", PLAIN)
def test_a_kernel_without_autograd_has_the_shape_of_the_real_one(name: str, world: str):
    alike(PLAIN[name](DRY[world]), PLAIN[name](REAL))


@pytest.mark.parametrize("name", ALONE)
def test_a_kernel_of_one_kind_of_operands_has_the_shape_of_the_real_one(name: str):
    alike(ALONE[name](DRY["meta index"]), ALONE[name](REAL))


@pytest.mark.parametrize("world", ["real index", "meta index"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_have_the_shape_of_the_real_ones(name: str, world: str):
    dry, real = forward_and_backward(name, DRY[world]), forward_and_backward(name, REAL)
    alike(dry[0], real[0])
    alike(dry[1], real[1])


@pytest.mark.usefixtures("_nothing_is_computed")
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_a_real_matrix_is_not_even_transposed_for_a_dry_x(reduce: str):
    a = REAL.a()
    x = meta_x(COLUMNS, WIDTH, grad=True)
    torch.autograd.grad(kernels.spmm(a, x, reduce=reduce).sum(), x)
    assert "T" not in vars(a)


def test_everything_that_is_exported_is_dry_or_refuses():
    refuses = {"relabel", "sample_block", "sample_rows"}
    others = {"CSR", "Reduction", "Semiring", "Stream", "use", "Move"}
    seen = {word for name in (*PLAIN, *ALONE, *DIFFERENTIABLE) for word in name.split()[:1]}
    assert set(kernels.__all__) - refuses - others <= seen


def test_a_sample_of_unknown_size_is_refused():
    a, rows, place = CSR.blank((4, 4), 6), meta_index(2, 2), torch.zeros(5, dtype=torch.int32)
    with pytest.raises(ValueError, match="known once it is drawn"):
        kernels.sample_rows(a.indptr, a.indices, rows, rows, 2, 0)
    with pytest.raises(ValueError, match="known once it is drawn"):
        kernels.sample_block(a.indptr, a.indices, rows, 2, 0, place)


@pytest.mark.parametrize("values", [None, torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_a_blank_matrix_has_the_parts_of_the_real_one(values: torch.dtype | None, index: torch.dtype):
    real = random_csr(ROWS, COLUMNS, 0.4, seed=3, dtype=values, index=index)
    blank = CSR.blank(real.shape, real.arcs, values, index)
    for ours, theirs in ((blank, real), (blank.T, real.T), (real.to("meta"), real)):
        assert (ours.shape, ours.arcs) == (theirs.shape, theirs.arcs)
        for part in ("indptr", "indices", "values", "counts", "row_of", "permutation"):
            alike(getattr(ours, part), getattr(theirs, part))
        alike(ours.dense(), theirs.dense())
        for picks in ("row_picks", "column_picks"):
            some, all_ = getattr(ours, picks), getattr(theirs, picks)
            assert some.shape == all_.shape
            alike((some.indptr, some.indices, some.row_of), (all_.indptr, all_.indices, all_.row_of))
    assert blank.T.T is blank


def test_values_of_a_blank_matrix_are_a_type_or_torchs_own():
    kinds = [CSR.blank((2, 3), 4, values).values for values in (True, torch.float64, False, None)]
    assert [None if v is None else v.dtype for v in kinds] == [torch.float32, torch.float64, None, None]


def test_a_blank_matrix_with_wrong_sizes_is_still_refused():
    a = CSR.blank((2, 3), 4)
    with pytest.raises(ValueError, match="values must have length 4"):
        CSR(a.indptr, a.indices, meta_x(5), (2, 3))
    with pytest.raises(ValueError, match="indptr must be int64 of length 4"):
        CSR(a.indptr, a.indices, None, (3, 3))


def test_half_a_matrix_of_meta_tensors_is_a_blank_one():
    a = REAL.a()
    half = CSR(a.indptr, a.indices.to("meta"), a.values, a.shape)
    assert all(t.is_meta for t in (half.indptr, half.indices, half.values, half.T.values))


def test_a_result_written_into_real_memory_leaves_it_alone():
    out = torch.full((ROWS, WIDTH), 7.0)
    assert multiply(CSR.blank((ROWS, COLUMNS), 5), meta_x(COLUMNS, WIDTH), None, out=out).is_meta
    assert bool((out == 7).all())


@pytest.mark.skipif(native.extension is None, reason="no C++ kernels")
def test_a_meta_tensor_that_a_real_kernel_reads_is_an_error_rather_than_a_crash():
    a = REAL.a(None)
    s = Scores("dot", 1, real_x(ROWS, WIDTH), real_x(COLUMNS, WIDTH), gain=meta_x(COLUMNS, 1))
    with pytest.raises(ValueError, match=r"a meta tensor \(9, 1\) among real ones"):
        attend(a, s, real_x(COLUMNS, WIDTH), WIDTH)

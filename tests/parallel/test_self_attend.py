"""Attention of a matrix with itself on a symmetric A: one walk gives what the general path gives."""

from __future__ import annotations

import pytest
import torch

from weft.kernels import CSR, Stream, native
from weft.nn.algebra import dropout, outer, softmax, tall
from weft.parallel import Operator

N = 290


def matrix(directed: bool = False) -> CSR:
    chance = torch.rand(N, N, generator=torch.Generator().manual_seed(0)) < 0.02
    chance[7] = True  # a row of several tiles, whatever the width
    entries = chance if directed else chance | chance.T
    entries[4] = entries[:, 4] = False  # a vertex without neighbours, not even itself
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), entries.sum(1).cumsum(0)])
    return CSR(indptr, entries.nonzero()[:, 1].int(), None, (N, N))


def cosine(
    a: CSR, heads: int, width: int, soft: bool, drop: float, fixed: bool, short: bool
) -> list[torch.Tensor]:
    """(y, dβ[, dx]) of β-scaled, unevenly normalised products, by the short way or the general one."""
    A = Operator.local(a)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, heads * width, dtype=torch.float64, generator=generator).requires_grad_(not fixed)
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    H = tall(x, heads)
    S = beta * (A * (H @ H.T) / outer(H.norms, H.norms.square()))
    values = H if short else x.clone()  # equal, but not the same: nobody can know
    y = dropout(softmax(S) if soft else S, drop, Stream(1, 2, 3)) @ values
    assert (type(y.grad_fn).__name__ == "SelfAttendBackward") == short
    (y * torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
    assert beta.grad is not None
    return [y.detach(), beta.grad, *([] if x.grad is None else [x.grad])]


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize(("heads", "width"), [(1, 7), (1, 16), (4, 8), (3, 5), (8, 16)])
def test_the_short_way_is_the_general_way(heads, width, soft, drop, fixed, backend):
    with native.use(backend):
        short, general = (cosine(matrix(), heads, width, soft, drop, fixed, way) for way in (True, False))
    for a, b in zip(short, general, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize(("heads", "width"), [(1, 16), (3, 5)])
def test_a_slope_needs_no_symmetry(heads, width, soft, backend):
    with native.use(backend):
        short, general = (
            cosine(matrix(directed=True), heads, width, soft, 0.4, True, way) for way in (True, False)
        )
    for a, b in zip(short, general, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_a_directed_matrix_whose_features_are_learned_takes_the_general_way():
    A = Operator.local(matrix(directed=True))
    assert not A._symmetric
    H = tall(torch.ones(N, 3, requires_grad=True))
    assert type(((A * (H @ H.T)) @ H).grad_fn).__name__ == "AttendBackward"


def test_scores_that_need_no_gradient_take_the_short_way_too():
    A = Operator.local(matrix(directed=True))
    H = tall(torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    y = softmax(A * (H @ H.T)) @ H
    assert y.grad_fn is None
    torch.testing.assert_close(y, softmax(A * (H @ H.T)) @ H.value.clone())


def test_a_slope_survives_logits_of_ten_thousand():
    A = Operator.local(matrix())
    H = tall(100 * torch.randn(N, 8, generator=torch.Generator().manual_seed(3)))
    beta = torch.tensor(1.0, requires_grad=True)
    y = softmax(beta * (A * (H @ H.T))) @ H
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(beta.grad)

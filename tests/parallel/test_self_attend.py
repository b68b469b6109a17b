"""Attention of a matrix with itself on a symmetric A: one walk gives what the general path gives."""

from __future__ import annotations

import pytest
import torch

from weft.kernels import CSR, Stream, native
from weft.nn.algebra import dropout, outer, softmax, tall
from weft.parallel import DistributedGraph

N = 41


def symmetric() -> CSR:
    chance = torch.rand(N, N, generator=torch.Generator().manual_seed(0)) < 0.15
    entries = chance | chance.T
    entries[4] = entries[:, 4] = False  # a vertex without neighbours, not even itself
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), entries.sum(1).cumsum(0)])
    return CSR(indptr, entries.nonzero()[:, 1].int(), None, (N, N))


def cosine(heads: int, width: int, soft: bool, drop: float, fixed: bool, alone: bool) -> list[torch.Tensor]:
    """(y, dβ[, dx]) of β-scaled, unevenly normalised products, by the short way or the general one."""
    A = DistributedGraph.local(symmetric())
    assert A._symmetric
    if not alone:
        A.__dict__["_symmetric"] = False
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, heads * width, dtype=torch.float64, generator=generator).requires_grad_(not fixed)
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    H = tall(x, heads)
    S = beta * (A * (H @ H.T) / outer(H.norms, H.norms.square()))
    y = dropout(softmax(S) if soft else S, drop, Stream(1, 2, 3)) @ H
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
        short, general = (cosine(heads, width, soft, drop, fixed, alone) for alone in (True, False))
    for a, b in zip(short, general, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_a_directed_matrix_takes_the_general_way():
    a = CSR(torch.tensor([0, 1, 1]), torch.tensor([1]), None, (2, 2))
    assert not DistributedGraph.local(a)._symmetric

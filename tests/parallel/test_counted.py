"""A weight among numbers per arc: counted once on every grid, or refused."""

from __future__ import annotations

import pytest
import torch

from weft.comm import run_ranks
from weft.errors import UserError
from weft.parallel import Grid, Operator, sum_together

from .cases import directed, numbers

N = 13


def gradient(comm, shape, told: bool, use: str = "weigh"):
    """d/dw of Σ(A with entries w a_ij, applied) on this grid, summed over the ranks as trainers do."""
    A = Operator.build(directed(N, weighted=True), comm, Grid(*shape), "none", dtype=torch.float64)
    w = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    weight = A.entries.number(w) if told else w
    e = A.entries.values(torch.float64) * weight.tanh()
    x = numbers(N, 4)[A.layout.ids]
    y = A.entries.weigh(e, x) if use == "weigh" else A.entries.sum(e)
    y.sum().backward()
    return float(sum_together([w.grad], comm)[1][0])


@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 1, 2), (1, 2, 2), (3, 1, 1)])
def test_a_weight_that_is_told_of_has_the_serial_gradient(shape):
    (serial,) = run_ranks(lambda comm: gradient(comm, (1, 1, 1), True), 1, "threads")
    ranks = shape[0] * shape[1] * shape[2]
    for found in run_ranks(lambda comm: gradient(comm, shape, True), ranks, "threads"):
        assert found == pytest.approx(serial, rel=1e-12)


@pytest.mark.parametrize("use", ["weigh", "sum"])
def test_one_that_is_not_told_of_is_refused_on_a_feature_axis_and_harmless_elsewhere(use):
    with pytest.raises(UserError, match=r"a weight \(1\) .* would count 2 times\. Write A\.entries\.number"):
        run_ranks(lambda comm: gradient(comm, (1, 1, 2), False, use), 2, "threads")
    (serial,) = run_ranks(lambda comm: gradient(comm, (1, 1, 1), True, use), 1, "threads")
    for found in run_ranks(lambda comm: gradient(comm, (2, 1, 1), False, use), 2, "threads"):
        assert found == pytest.approx(serial, rel=1e-12)


def test_numbers_of_ones_own_for_every_arc_are_no_weight():
    def work(comm):
        A = Operator.build(directed(N), comm, Grid(1, 1, 2), "none", dtype=torch.float64)
        e = torch.ones(A.arcs, 1, dtype=torch.float64, requires_grad=True)
        A.entries.weigh(e * 2, numbers(N, 4)[A.layout.ids]).sum().backward()
        return e.grad.shape[0] == A.arcs

    assert all(run_ranks(work, 2, "threads"))

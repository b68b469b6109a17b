"""Cross entropy against torch's own, C++ and torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels import cross_entropy, use


@given(
    st.integers(0, 23), st.integers(1, 70), st.sampled_from(["auto", "torch"]), st.floats(0.1, 4),
    st.sampled_from([torch.float32, torch.float64]), st.floats(-300, 300), st.booleans(),
)  # fmt: skip
def test_loss_and_gradient_are_those_of_the_definition(rows, classes, backend, share, dtype, shift, over):
    draw = torch.Generator().manual_seed(rows * 100 + classes)
    x = (torch.randn(rows, classes, generator=draw, dtype=dtype) * 5 + shift).requires_grad_()
    labels = torch.randint(classes, (rows,), generator=draw)
    truth = x.detach().clone().requires_grad_()
    with use(backend):
        given = x.clone() if over else x
        loss = cross_entropy(given, labels, share, over)
        assert over or torch.equal(x, truth)
        (loss * 3).backward()
    expected = F.cross_entropy(truth, labels, reduction="sum") * share
    (expected * 3).backward()
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(loss, expected, **close)
    torch.testing.assert_close(x.grad, truth.grad, **close)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_what_is_not_a_number_stays_none_in_its_row_alone(backend):
    x = torch.zeros(3, 5)
    x[1, 4] = math.nan
    x.requires_grad_()
    with use(backend):
        loss = cross_entropy(x, torch.tensor([0, 1, 2]))
        loss.backward()
    assert loss.isnan()
    assert x.grad[1].isnan().any()
    assert not x.grad[[0, 2]].isnan().any()


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_score_of_minus_infinity_has_no_chance_and_no_gradient(backend):
    x = torch.tensor([[0.0, -math.inf, 1.0]], requires_grad=True)
    with use(backend):
        cross_entropy(x, torch.tensor([2])).backward()
    assert x.grad[0, 1] == 0
    assert torch.isfinite(x.grad).all()


def test_a_label_that_is_no_class_is_refused():
    for label in (-1, 4):
        with pytest.raises(ValueError, match=f"labels must lie in 0..3, these span {label}..{label}"):
            cross_entropy(torch.zeros(1, 4), torch.tensor([label]))


def test_it_is_the_same_on_any_number_of_threads():
    x, labels = torch.randn(4001, 37), torch.randint(37, (4001,))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            leaf = x.clone().requires_grad_()
            loss = cross_entropy(leaf, labels)
            loss.backward()
            found.append((loss.detach(), leaf.grad))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][1], found[1][1])


def test_a_gradient_written_over_its_numbers_takes_no_memory():
    x = torch.zeros(2, 3, requires_grad=True)
    given = x + 1
    loss = cross_entropy(given, torch.tensor([0, 1]), over=True)
    (gradient,) = torch.autograd.grad(loss, given)
    assert gradient.data_ptr() == given.data_ptr()


def test_the_gradient_is_handed_out_once():
    x = torch.zeros(2, 3, requires_grad=True)
    loss = cross_entropy(x, torch.tensor([0, 1]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="take the loss anew"):
        loss.backward()

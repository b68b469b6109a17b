from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels import Stream, draw, shuffled, uniform


@given(st.integers(1, 700), st.integers(0, 2**64 - 1))
def test_a_shuffle_is_a_permutation_known_point_by_point(n, key):
    whole = shuffled(torch.arange(n), n, key)
    assert whole.sort().values.tolist() == list(range(n))
    some = torch.arange(n)[::3]
    assert torch.equal(shuffled(some, n, key), whole[::3])


def test_shuffles_of_two_keys_differ_and_look_random():
    n = 4096
    a, b = (shuffled(torch.arange(n), n, Stream(0, epoch, 0).key) for epoch in (1, 2))
    assert int((a == b).sum()) < 12  # one fixed place is expected
    for order in (a, b):
        assert int((order == torch.arange(n)).sum()) < 12
        # The mean distance of neighbours is that of independent places, n / 3.
        assert float(order.diff().abs().double().mean()) == pytest.approx(n / 3, rel=0.05)


@given(st.integers(1, 2**62), st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_numbers_lie_below_their_bound_and_belong_to_their_index(below, index):
    at = torch.tensor(index)
    numbers = draw(at, below, key=7)
    assert 0 <= int(numbers.min()) <= int(numbers.max()) < below
    assert torch.equal(draw(at[:1], below, key=7), numbers[:1])


def test_numbers_are_spread_evenly():
    counts = torch.bincount(draw(torch.arange(70_000), 7, key=3), minlength=7)
    assert float((counts - 10_000).abs().max()) < 400  # four standard deviations


def test_nothing_cannot_be_drawn_from():
    with pytest.raises(ValueError, match="nothing lies in"):
        draw(torch.arange(2), 0, key=0)


@pytest.mark.parametrize("width", [1, 4, 7])
def test_uniform_rows_belong_to_their_vertex(width):
    x = uniform(torch.arange(500), width, 0.5, key=11)
    assert x.shape == (500, width)
    assert torch.equal(uniform(torch.tensor([17, 3]), width, 0.5, key=11), x[[17, 3]])
    assert float(x.min()) >= -0.5
    assert float(x.max()) < 0.5
    assert x.unique().numel() > 0.99 * x.numel()
    assert abs(float(x.mean())) < 0.05

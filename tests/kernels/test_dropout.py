from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels import Stream, dropout, relu_dropout_, use
from weft.kernels.dropout import philox

BACKENDS = ("native", "torch")


def test_philox_gives_the_published_words():
    # Known answers of Random123's philox4x32-10.
    ones = 0xFFFFFFFF
    for counter, key, words in [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (1 << 64) - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0_A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]:
        assert tuple(int(w) for w in philox(counter, key)) == words


@given(
    n=st.integers(0, 9), width=st.sampled_from([1, 3, 7, 8, 31, 32, 33, 64, 100]),
    p=st.sampled_from([0.1, 0.5, 0.9]), first=st.integers(0, 2**40), seed=st.integers(0, 2**63),
    relu=st.booleans(), dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_native_drops_what_torch_drops(n, width, p, first, seed, relu, dtype):
    x, stream = torch.randn(n, width, dtype=dtype), Stream(seed, 3, 1)
    results = []
    for backend in BACKENDS:
        with use(backend):
            operator = relu_dropout_ if relu else dropout
            results.append(operator(x.clone(), p, stream, first=first))
    assert torch.equal(*results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mask_belongs_to_the_row_not_to_its_place(backend):
    x, stream = torch.ones(50, 20), Stream(1, 2, 3)
    order = torch.randperm(50)
    with use(backend):
        whole = dropout(x, 0.5, stream)
        assert torch.equal(dropout(x, 0.5, stream, rows=order), whole[order])
        assert torch.equal(dropout(x[10:20], 0.5, stream, first=10), whole[10:20])


def test_seed_epoch_and_layer_each_change_the_mask():
    x = torch.ones(40, 40)
    masks = [dropout(x, 0.5, Stream(*s)) for s in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    for a in range(4):
        for b in range(a):
            assert 0.3 < float((masks[a] == masks[b]).float().mean()) < 0.7


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_share_dropped_is_p_in_rows_and_columns(p):
    keep = dropout(torch.ones(4000, 96), p, Stream(7, 0, 0)) > 0
    # Five standard deviations of a mean of 4000, of 96, and of 384,000 draws.
    sd = (p * (1 - p)) ** 0.5
    assert (keep.float().mean(0) - (1 - p)).abs().max() < 5 * sd / 4000**0.5
    assert (keep.float().mean(1) - (1 - p)).abs().max() < 5 * sd / 96**0.5
    assert abs(float(keep.float().mean()) - (1 - p)) < 5 * sd / 384_000**0.5
    # Neighbours in a row and in a column are independent.
    for a, b in [(keep[1:], keep[:-1]), (keep[:, 1:], keep[:, :-1]), (keep[:, 8:], keep[:, :-8])]:
        assert abs(float((a & b).float().mean()) - (1 - p) ** 2) < 5 * sd / 384_000**0.5


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_pass_where_values_passed(backend):
    x = torch.randn(6, 37, dtype=torch.float64, requires_grad=True)
    stream = Stream(0, 1, 2)
    with use(backend):
        assert torch.autograd.gradcheck(lambda x: dropout(x, 0.4, stream), (x,))
        assert torch.autograd.gradcheck(lambda x: relu_dropout_(x * 1, 0.4, stream), (x,))
        assert torch.autograd.gradcheck(lambda x: relu_dropout_(x * 1, 0.0, stream), (x,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_relu_dropout_is_relu_then_dropout_in_place(backend):
    x, stream = torch.randn(9, 33), Stream(0, 1, 2)
    with use(backend):
        wanted = dropout(x.relu(), 0.25, stream)
        y = relu_dropout_(x, 0.25, stream)
    assert y.data_ptr() == x.data_ptr()
    torch.testing.assert_close(y, wanted)


def test_nothing_is_dropped_at_zero_and_one_is_refused():
    x = torch.randn(3, 3)
    assert dropout(x, 0.0, Stream(0, 0, 0)) is x
    with pytest.raises(ValueError, match=r"\[0, 1\), not 1"):
        dropout(x, 1.0, Stream(0, 0, 0))

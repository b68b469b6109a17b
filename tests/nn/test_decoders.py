from __future__ import annotations

import pytest
import torch

from weft.errors import UserError
from weft.nn import build_decoder


def test_the_mlp_is_its_equation():
    decoder = build_decoder("mlp", 3, 5, 0.0, seed=1).double().eval()
    z = torch.randn(7, 5, dtype=torch.float64)
    w1, w2, w3 = decoder.weights
    b1, b2, b3 = decoder.biases
    want = torch.relu(torch.relu(z @ w1 + b1) @ w2 + b2) @ w3 + b3
    assert torch.allclose(decoder(z), want[:, 0], rtol=1e-12)


def test_dropout_belongs_to_the_pair_and_the_turn():
    decoder = build_decoder("mlp", 2, 16, 0.5, seed=1)
    z, names = torch.ones(4, 16), torch.tensor([5, 9, 2, 7])
    whole = decoder(z, names, (0, 1))
    assert torch.allclose(decoder(z[2:], names[2:], (0, 1)), whole[2:], rtol=1e-6)
    assert not torch.allclose(decoder(z, names, (0, 2)), whole, rtol=1e-3)
    assert whole.unique().numel() > 1  # equal pairs, different masks
    with pytest.raises(ValueError, match="needs the pairs' names"):
        decoder(z)
    assert decoder.eval()(z).unique().numel() == 1


def test_a_seed_makes_the_weights():
    a, b, c = (build_decoder("mlp", 2, 6, 0.0, seed) for seed in (1, 1, 2))
    assert torch.equal(a.weights[0], b.weights[0])
    assert not torch.equal(a.weights[0], c.weights[0])


@pytest.mark.parametrize(
    ("name", "layers", "message"),
    [
        ("dott", 2, "unknown decoder 'dott'. Did you mean 'dot'?"),
        ("mlp", 0, "decoder_layers must be at least 1, not 0."),
    ],
)
def test_a_mistake_is_one_line(name, layers, message):
    with pytest.raises(UserError) as caught:
        build_decoder(name, layers, 4, 0.0)
    assert str(caught.value).startswith(message)

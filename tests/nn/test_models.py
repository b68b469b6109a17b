from __future__ import annotations

import pytest
import torch

from weft.errors import UserError
from weft.kernels import Stream, dropout
from weft.nn import MODELS, Chain, ModelConfig, Noise, build

from .graphs import directed, matrix_of


def dense_model(model, A, x, noise):
    """The stack's equation with plain torch operations and stored masks."""
    h = dropout(x, model.input_dropout, Stream(noise.seed, noise.epoch, 0))
    for depth, layer in enumerate(model.layers):
        z = layer(A if layer.hops == 1 else Chain([A] * layer.hops), h)
        if depth == len(model.layers) - 1:
            return z
        if model.residual and z.shape == h.shape:
            z = z + h
        z = model.norms[depth](z)
        z = torch.relu(z) if model.activation == "relu" else torch.nn.functional.elu(z)
        h = dropout(z, model.dropout, Stream(noise.seed, noise.epoch, depth + 1))
    raise AssertionError


@pytest.mark.parametrize("name", [name for name in MODELS if name != "rgcn"])  # the graph has no kinds
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize(
    "extras", [{}, {"layer_norm": True, "residual": True, "input_dropout": 0.3}, {"bias": False}]
)
def test_the_stack_is_its_equation(name, layers, extras):
    config = ModelConfig(name=name, layers=layers, hidden=6, dropout=0.4, **extras)
    model = build(config, inputs=6, outputs=3).double()
    A = matrix_of(directed(), model.adjacency)
    x, noise = torch.randn(23, 6, dtype=torch.float64), Noise(seed=5, epoch=2)
    dy = torch.randn(23, 3, dtype=torch.float64)
    parameters = list(model.parameters())
    y = model(A, x, noise)
    gradients = torch.autograd.grad(y, parameters, dy)
    wanted = dense_model(model, A, x, noise)
    torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
    for got, want in zip(gradients, torch.autograd.grad(wanted, parameters, dy), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_evaluation_drops_nothing_and_embeds():
    model = build(ModelConfig(layers=3, hidden=5, dropout=0.9), 4, 2).eval()
    A = matrix_of(directed(), "gcn", torch.float32)
    x = torch.randn(23, 4)
    embedding, logits = model.embed(A, x)
    assert embedding.shape == (23, 5)
    assert torch.equal(logits, model(A, x))
    torch.testing.assert_close(logits, model.layers[-1](A, embedding))


def test_training_with_dropout_asks_for_its_random_numbers():
    model = build(ModelConfig(dropout=0.5), 4, 2)
    with pytest.raises(ValueError, match="Noise"):
        model(matrix_of(directed(), "gcn", torch.float32), torch.randn(23, 4))


def test_the_first_aggregation_happens_once():
    model = build(ModelConfig(layers=2, hidden=5), 4, 2)
    A = matrix_of(directed(), "gcn", torch.float32)
    calls = []
    plain = A._aggregate
    A._aggregate = lambda h, reduce: calls.append(h.shape[1]) or plain(h, reduce)
    x = torch.randn(23, 4)
    A.hold(x)
    for epoch in range(3):
        model(A, x, Noise(0, epoch)).sum().backward()
    assert calls == [4, 5, 5, 5]  # A·X at width 4 once; then layer 2's each time
    x += 1
    model(A, x, Noise(0, 3))
    assert calls == [4, 5, 5, 5, 4, 5]  # X has changed: the old answer would be wrong


def test_several_hops_of_what_is_held_are_made_once():
    model = build(ModelConfig("sgc", layers=3, dropout=0.0), 4, 2)
    A = matrix_of(directed(), "gcn", torch.float32)
    calls = []
    plain = A._aggregate
    A._aggregate = lambda h, reduce: calls.append(h.shape[1]) or plain(h, reduce)
    x = torch.randn(23, 4)
    A.hold(x)
    first = model(A, x)
    assert torch.equal(model(A, x), first)
    assert calls == [4, 4, 4]
    assert len(A._made) == 1  # and the hops before the last are not kept


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "gatt"}, "unknown model 'gatt'"),
        ({"layers": 0}, "at least 1, not 0"),
        ({"dropout": 1.0}, r"\[0, 1\), not 1.0"),
        ({"name": "sage", "aggregate": "maxx"}, "Did you mean 'max'"),
    ],
)
def test_a_mistake_is_one_line(options, words):
    with pytest.raises(UserError, match=words):
        build(ModelConfig(**options), 4, 2)

"""Gradients of gradients are refused instead of being taken for 0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import weft
from weft.graph import karate
from weft.kernels.function import Function
from weft.train import RunConfig, Trainer


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "agnn"])
def test_a_penalty_on_gradients_is_refused(model):
    config = RunConfig()
    config.model.name = model
    trainer = Trainer(karate(), config)
    loss = trainer.model.eval()(trainer.A, trainer.x).square().sum()
    weights = [p for p in trainer.model.parameters() if p.requires_grad]
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    assert any(g.abs().sum() > 0 for g in first)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(loss, weights, create_graph=True)


def test_every_operation_is_of_that_kind():
    root = Path(weft.__file__).parent
    bare = [
        p.name
        for p in root.rglob("*.py")
        if re.search(r"class \w+\(torch\.autograd\.Function\)", p.read_text())
    ]
    assert bare == ["function.py"]


def test_a_gradient_that_is_not_wanted_twice_is_given():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, *grads):
            return 2 * grads[0]

    x = torch.ones(3, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]

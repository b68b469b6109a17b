"""A layer that looks at numbers trains everywhere; what it moves is not foretold, and that is said."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from weft.cli import main
from weft.comm import Communicator, run_ranks
from weft.errors import NotForetold, UserError
from weft.graph import load, write_store
from weft.kernels import CSR
from weft.nn import MODELS, Adjacency, Layer, register
from weft.nn.models import Model
from weft.nn.registry import ModelConfig
from weft.parallel import Operator
from weft.train import RunConfig, Trainer


class Careful(nn.Module):
    """A whole layer that scales rows down where they are large."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False, device="cpu")

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        z = A @ self.linear(h)
        return z / 10 if z.numel() and float(z.detach().abs().max()) > 1e6 else z


class Picky(Layer):
    """A layer in halves whose second one looks for entries."""

    cut = ("weight",)

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs, device="cpu"))

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        return A @ (h @ self.weight)

    def apply(self, t: Tensor) -> Tensor:
        return t[torch.nonzero(t[:, 0] == t[:, 0]).ravel()]


@pytest.fixture(autouse=True)
def models():
    for name, layer in (("careful", Careful), ("picky", Picky)):
        register(name, lambda c, own, w, layer=layer: ([layer(a, b) for a, b in pairwise(w)], "gcn"))
    yield
    for name in ("careful", "picky"):
        MODELS.pop(name)


def settings(name: str, **batch) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.epochs = name, 4, 3
    config.train.dtype = "float64"
    for key, value in batch.items():
        setattr(config.batch, key, value)
    return config


def fit(comm: Communicator, name: str, batch: dict) -> tuple[list[float], str, dict, list[str]]:
    trainer = Trainer(load("sbm:nodes=60,classes=3,features=6"), settings(name, **batch), comm)
    result = trainer.fit()
    return result.loss, result.not_foretold, result.foretold.words, list(trainer.notes())


@pytest.mark.parametrize("name", ["careful", "picky"])
@pytest.mark.parametrize(
    "batch", [{}, {"batch_size": 12, "feed": "pull"}, {"batch_size": 12, "feed": "auto"}]
)
def test_it_trains_on_ranks_as_on_one_and_says_why_nothing_is_foretold(name, batch):
    alone = run_ranks(fit, 1, "threads", name, batch)[0]
    for loss, why, words, notes in run_ranks(fit, 3, "threads", name, batch):
        assert loss == pytest.approx(alone[0], rel=1e-9)
        assert words == {}
        assert why.startswith(f"layer 1, {name.capitalize()}, looks at numbers by ")
        if batch.get("feed") == "auto" and name == "picky":
            assert f"feed      pull: {why}" in notes


def test_a_plan_takes_1d_and_says_why_and_refuses_where_it_was_asked_for(capsys):
    write_store(load("sbm:nodes=60,classes=3,features=6"), "g.weft")
    train = ["train", "g.weft", "--model", "careful", "--ranks", "3", "--engine", "threads", "--epochs", "2"]
    assert main(train) == 0
    shown = capsys.readouterr()
    why = "layer 1, Careful, looks at numbers by Tensor.item, so what it moves cannot be foretold"
    assert f"strategy  1d: {why}" in shown.err
    assert "not foretold (" in shown.out
    assert f"words     {why}" in shown.out
    assert main([*train, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_foretold"] == why
    assert main([*train, "--strategy", "auto"]) == 2
    assert capsys.readouterr().err.strip() == f"weft: {why}. Name a --strategy."


def test_an_error_of_a_layer_s_own_stays_what_it_is_with_and_without_numbers():
    class Wrong(nn.Module):
        def forward(self, A: Adjacency, h: Tensor) -> Tensor:
            raise TypeError("of my own")

    A = Operator.local(CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1)))
    model = Model([Wrong()], [2, 2], "none", ModelConfig("gcn")).eval()
    for device in ("cpu", "meta"):
        with pytest.raises(TypeError, match="of my own"):
            model(A, torch.ones(1, 2, device=device))
    assert issubclass(NotForetold, UserError)


@pytest.mark.parametrize(("given", "what"), [(lambda t: None, "NoneType"), (lambda t: t.sum(1), r"\(3,\)")])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_half_that_gives_no_matrix_is_named(given, what, depth):
    class Odd(Picky):
        def partial(self, A: Adjacency, h: Tensor) -> Tensor:
            return given(super().partial(A, h))

        def apply(self, t: Tensor) -> Tensor:
            return t

    layers: list[nn.Module] = [Careful(2, 2), Careful(2, 2)]
    layers[depth] = Odd(2, 2)
    A = Operator.local(CSR(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1]), None, (3, 3)))
    model = Model(layers, [2, 2, 2], "none", ModelConfig("gcn")).eval()
    with pytest.raises(UserError, match=f"Odd,? returned {what}"):
        model(A, torch.ones(3, 2))

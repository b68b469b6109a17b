"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from weft.comm import run_ranks
from weft.minibatch import tags

FOLDER = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_fifth_layer_gives_the_same_losses_by_both_feeds(monkeypatch, capsys):
    monkeypatch.setattr(tags, "_TAGS", dict(tags._TAGS))  # the others go without it
    fifth = example("fifth_layer")
    alone = run_ranks(fifth.losses, 1, "threads", "pull")[0]
    assert alone[-1] < alone[0]
    for feed in ("pull", "push-pull"):
        for ours in run_ranks(fifth.losses, 3, "threads", feed):
            assert ours == pytest.approx(alone, rel=1e-9)
    fifth.main()
    assert "push-pull" in capsys.readouterr().out


@pytest.fixture
def shy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, whose model is gone again after the test."""
    from weft.nn import MODELS

    monkeypatch.setitem(MODELS, "shy", None)
    return example("shy_attention")


@pytest.mark.parametrize("strategy", ["halo", "2d", "a-stationary", "feature"])
def test_a_new_attention_trains_on_four_ranks_as_on_one(shy, strategy):
    alone, foretold = run_ranks(shy.train, 1, "threads", "1d", 4)[0]
    assert foretold
    assert alone[-1] < alone[0]
    for losses, foretold in run_ranks(shy.train, 4, "threads", strategy, 4):
        assert losses == pytest.approx(alone, rel=1e-9)
        assert foretold


@pytest.mark.slow
def test_a_new_attention_trains_on_real_ranks(shy):
    alone = run_ranks(shy.train, 1, "threads", "1d", 3)[0][0]
    for losses, foretold in run_ranks(shy.train, 4, "mpi", "2d", 3):
        assert losses == pytest.approx(alone, rel=1e-9)
        assert foretold


def test_a_script_gives_its_model_to_the_command_line(shy, capsys):
    """Trained, kept, and used again, by name."""
    from weft.cli import main

    options = ["sbm:nodes=97,features=8", "--model", "shy", "--hidden", "6", "--heads", "2", "--epochs", "2"]
    assert main(["train", *options, "--out", "r", "--ranks", "4", "--engine", "threads"]) == 0
    assert main(["predict", "r"]) == 0
    assert "unknown" not in capsys.readouterr().err


def test_the_new_attention_infers_as_its_equation_says(shy):
    """Dense, in float64, with every gradient."""
    import torch

    from tests.nn.graphs import adjacency, directed
    from weft.parallel import DistributedGraph

    n, heads = 23, 2
    csr = adjacency(directed(n), "loops")
    a = csr.dense() != 0
    layer = shy.ShyLayer(5, 6, heads, 0.0).double()
    h = torch.randn(n, 5, dtype=torch.float64, requires_grad=True)
    z = h @ layer.weight
    known = torch.log1p(a.double().sum(1))
    out = []
    for k, head in enumerate(z.split(3, dim=1)):
        unit = torch.nn.functional.normalize(head, dim=1)
        s = layer.sharpness[k] * unit @ unit.T - layer.shyness[k] * known
        out.append(torch.where(a, s, -torch.inf).softmax(1) @ head)
    u, v = (z @ layer.gate).T
    g = torch.sigmoid(u[:, None] + v)
    loudest = torch.where(a[:, :, None], g[:, :, None] * z, -torch.inf).amax(1)
    want = torch.cat(out, 1) + loudest + layer.bias
    ours = layer(DistributedGraph.local(csr), h)
    torch.testing.assert_close(ours, want, rtol=1e-11, atol=1e-11)
    leaves = [h, *layer.parameters()]
    dy = torch.randn(n, 6, dtype=torch.float64)
    for mine, dense in zip(*(torch.autograd.grad(y, leaves, dy) for y in (ours, want)), strict=True):
        torch.testing.assert_close(mine, dense, rtol=1e-10, atol=1e-10)

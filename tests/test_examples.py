"""The examples run, and do what they say: a new attention, aggregation or task is one file and one line."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.cli import main
from weft.comm import run_ranks
from weft.errors import NoSetting, UserError
from weft.parallel import Grid, Operator
from weft.train import TASKS, RunConfig, TaskEntry

from .examples import FOLDER, example
from .nn.graphs import adjacency, directed

EXAMPLES = ("shy_attention", "generous_mean", "new_task", "ptags_sage", "widest_paths")
WAYS = [(4, "halo"), (4, "2d"), (4, "a-stationary"), (4, "feature"), (3, "1d"), (3, "pull"), (3, "push-pull")]


def test_every_example_is_tried_here():
    elsewhere = {"pyg_cora", "own_loop"}  # tests/pyg
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES) | elsewhere


@pytest.mark.parametrize(("ranks", "way"), WAYS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_on_several_ranks_as_on_one(name, ranks, way, monkeypatch):
    module = example(name, monkeypatch)
    serial = "pull" if way in ("pull", "push-pull") else "1d"
    alone, foretold = run_ranks(module.train, 1, "threads", serial, 4)[0]
    assert foretold
    assert alone[-1] < alone[0]
    for losses, foretold in run_ranks(module.train, ranks, "threads", way, 4):
        assert losses == pytest.approx(alone, rel=1e-9)
        assert foretold


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_that_words_were_as_foretold(name, monkeypatch, capsys):
    example(name, monkeypatch).main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 6
    assert all("words as foretold: True" in line for line in lines)
    assert any("push-pull" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [("shy_attention", "2d"), ("ptags_sage", "2d"), ("ptags_sage", "push-pull"), ("widest_paths", "2d"),
     ("widest_paths", "push-pull")],
)  # fmt: skip
def test_an_example_trains_on_real_ranks(name, way, mpi_ranks, monkeypatch):
    """A layer of one's own, the paper's Listing 1, a semiring of one's own."""
    module = example(name, monkeypatch)
    serial = "pull" if way == "push-pull" else "1d"
    alone = run_ranks(module.train, 1, "threads", serial, 3)[0][0]
    for losses, foretold in mpi_ranks(module.train, 4, way, 3):
        assert losses == pytest.approx(alone, rel=1e-9)
        assert foretold


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("shy_attention", ["--model", "shy", "--sharpness", "4"]),
        ("generous_mean", ["--model", "generous"]),
        ("new_task", ["--task", "number", "--margin", "0.01", "--train-share", "0.5"]),
    ],
)
def test_a_script_gives_what_it_adds_to_the_command_line(name, options, monkeypatch, capsys):
    """Trained, kept, and used again, by name."""
    example(name, monkeypatch)
    line = ["sbm:nodes=97,features=8", *options, "--hidden", "6", "--epochs", "2", "--out", "r"]
    assert main(["train", *line, "--ranks", "4", "--engine", "threads"]) == 0
    assert main(["predict", "r"]) == 0
    rows = np.load(f"r/predictions/{'predictions' if name == 'new_task' else 'classes'}.npy")
    assert rows.shape == ((97, 1) if name == "new_task" else (97,))
    assert len(np.unique(rows)) > 1
    assert "unknown" not in capsys.readouterr().err


def test_a_task_of_a_script_brings_its_options(monkeypatch, capsys):
    example("new_task", monkeypatch)
    line = ["train", "sbm:nodes=97,features=8", "--epochs", "2", "--ranks", "1", "--hidden", "4"]
    mistakes = {
        ("--margin", "0.1"): "task node does not read margin, number does. Leave out --margin, or use --task",
        ("--task", "number", "--hits", "3"): "task number does not read hits, link does.",
        ("--task", "number", "--margin", "-1"): "margin must not be negative, as -1 is. Use 0 for none.",
        ("--task", "number", "--margin", "much"): "number.margin must be a finite number, not 'much'.",
    }
    for words, message in mistakes.items():
        assert main([*line, *words]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"weft: {message}")
        assert err.count("\n") == 1
    # It is read, it is written, and what was written repeats the run.
    assert main([*line, "--task", "number", "--margin", "0.25", "--out", "a"]) == 0
    assert "[number]\nmargin = 0.25\n" in Path("a/config.toml").read_text()
    assert main(["train", "a/config.toml", "--out", "b"]) == 0
    assert main(["train", "a/config.toml", "--margin", "0", "--out", "c"]) == 0
    losses = [Path(f"{run}/metrics.jsonl").read_text().split('"loss": ')[1].split(",")[0] for run in "abc"]
    assert losses[0] == losses[1] != losses[2]
    assert main([*line, "--out", "d"]) == 0
    assert "margin" not in Path("d/config.toml").read_text()


def test_a_tasks_options_are_a_section_with_a_name_of_its_own(monkeypatch):
    module = example("new_task", monkeypatch)
    config = RunConfig()
    config.number.margin = 0.5
    assert config.tasks["number"].margin == 0.5
    assert copy.deepcopy(config) == config != RunConfig()
    with pytest.raises(NoSetting, match=r"unknown setting 'number.marign'. Did you mean 'number.margin'"):
        config.number.marign = 0.1
    monkeypatch.setitem(TASKS, "train", TASKS["number"])
    with pytest.raises(UserError, match=r"task 'train' has options, and the name of a section. Rename it."):
        RunConfig()
    monkeypatch.delitem(TASKS, "train")
    monkeypatch.setitem(TASKS, "other", TaskEntry(module.Numbers, module.check, options=dict))
    with pytest.raises(UserError, match=r"the options of task 'other' are no weft.train.Section. Make them"):
        RunConfig()


def test_the_new_attention_infers_as_its_equation_says(monkeypatch):
    """Dense, in float64, with every gradient."""
    shy = example("shy_attention", monkeypatch)
    n = 23
    csr = adjacency(directed(n), "loops")
    a = csr.dense() != 0
    layer = shy.ShyLayer(5, 6, 2.0).double()
    h = torch.randn(n, 5, dtype=torch.float64, requires_grad=True)
    unit = torch.nn.functional.normalize(h, dim=1)
    s = layer.sharpness * unit @ unit.T - layer.shyness * torch.log1p(h.norm(dim=1))
    psi = torch.where(a, s, -torch.inf).softmax(1)
    u, v = (h @ layer.gate).T
    g = torch.sigmoid(u[:, None] + v)
    loudest = torch.where(a[:, :, None], g[:, :, None] * h, -torch.inf).amax(1)
    want = (psi @ h + loudest) @ layer.weight + layer.bias
    ours = layer(Operator.local(csr), h)
    torch.testing.assert_close(ours, want, rtol=1e-11, atol=1e-11)
    leaves = [h, *layer.parameters()]
    dy = torch.randn(n, 6, dtype=torch.float64)
    for mine, dense in zip(*(torch.autograd.grad(y, leaves, dy) for y in (ours, want)), strict=True):
        torch.testing.assert_close(mine, dense, rtol=1e-10, atol=1e-10)


def test_the_new_aggregation_infers_as_its_equation_says(monkeypatch):
    generous = example("generous_mean", monkeypatch)
    csr = adjacency(directed(), "none")
    a = csr.dense().double()
    there = a != 0
    layer = generous.GenerousLayer(5, 6).double()
    h = torch.randn(23, 5, dtype=torch.float64, requires_grad=True)
    mean = a @ h / there.sum(1, keepdim=True).clamp(min=1)
    most = torch.where(there[:, :, None], h[None], -torch.inf).amax(1)
    most = torch.where(there.any(1)[:, None], most, 0.0)
    want = (mean + layer.gamma * most) @ layer.weight + h @ layer.weight_self + layer.bias
    ours = layer(Operator.local(csr), h)
    torch.testing.assert_close(ours, want, rtol=1e-11, atol=1e-11)
    leaves = [h, *layer.parameters()]
    dy = torch.randn(23, 6, dtype=torch.float64)
    for mine, dense in zip(*(torch.autograd.grad(y, leaves, dy) for y in (ours, want)), strict=True):
        torch.testing.assert_close(mine, dense, rtol=1e-10, atol=1e-10)


def test_listing_1_infers_as_its_equation_says(monkeypatch):
    """Arcs' weights are not read: the paper's messages are the sources as they are."""
    listing = example("ptags_sage", monkeypatch)
    csr = adjacency(directed(), "none")
    there = csr.dense() != 0
    layer = listing.GraphSAGE(5, 6).double()
    h = torch.randn(23, 5, dtype=torch.float64, requires_grad=True)
    mean = there.double() @ h / there.sum(1, keepdim=True).clamp(min=1)
    want = torch.relu(h @ layer.fc_self + mean @ layer.fc_neigh)
    ours = layer(Operator.local(csr), h)
    torch.testing.assert_close(ours, want, rtol=1e-11, atol=1e-11)
    leaves = [h, *layer.parameters()]
    dy = torch.randn(23, 6, dtype=torch.float64)
    for mine, dense in zip(*(torch.autograd.grad(y, leaves, dy) for y in (ours, want)), strict=True):
        torch.testing.assert_close(mine, dense, rtol=1e-10, atol=1e-10)


def test_widest_paths_are_those_of_all_paths(monkeypatch):
    """Against Floyd and Warshall's, with (max, min) in place of (min, +), on 1 and 3 ranks."""
    widest = example("widest_paths", monkeypatch)
    graph = directed(23, 60)
    graph = graph.replace(weights=torch.rand(graph.num_arcs, generator=torch.Generator().manual_seed(1)))
    n, landmarks = 23, torch.tensor([0, 7, 11])
    flow = torch.full((n, n), -torch.inf)
    flow[graph.rows, graph.indices.long()] = graph.weights
    flow[torch.arange(n), torch.arange(n)] = torch.inf
    for k in range(n):
        flow = torch.maximum(flow, torch.minimum(flow[:, k, None], flow[None, k]))

    def work(comm):
        A = Operator.build(graph, comm, Grid(comm.size), "none")
        return A.layout.collect(widest.capacities(A, landmarks, n))

    for ranks in (1, 3):
        assert torch.equal(run_ranks(work, ranks, "threads")[0], flow[:, landmarks])

"""DGL as a contender, tried on a stub of its interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from weft.bench.contender import dgl_step
from weft.bench.epoch import bench_epoch, check_contenders
from weft.bench.reproduce.measured import against_others, others_here
from weft.errors import UserError
from weft.graph import load

STUB = str(Path(__file__).parent / "stub")
GRAPH = "sbm:nodes=41,classes=3,features=7,degree=5"


@pytest.fixture
def dgl(monkeypatch):
    """A DGL that can be imported, here and in processes that are started."""
    monkeypatch.syspath_prepend(STUB)
    monkeypatch.setenv("PYTHONPATH", STUB)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
        del sys.modules[name]


def task(model: str) -> dict:
    return {"model": model, "layers": 2, "hidden": 6, "heads": 2, "dropout": 0.0}


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_each_model_learns_on_dgls_layers(dgl, model):
    torch.manual_seed(0)
    step = dgl_step(load(GRAPH), task(model))
    losses = [float(step(epoch)) for epoch in range(30)]
    assert losses[-1] < 0.8 * losses[0]


def test_epochs_are_measured_in_a_process_that_finds_it(dgl):
    found = bench_epoch(GRAPH, ["gcn"], 2, 4, 1, 0.0, 1, 1, 1, ["dgl"])
    assert [row["contender"] for row in found["rows"]] == ["weft", "dgl"]
    assert all(row["seconds"] > 0 for row in found["rows"])


def test_the_papers_figures_take_it_where_it_is_and_before_pyg(dgl, monkeypatch):
    assert others_here()[0] == "dgl"
    asked = []

    def measured(*given):
        asked.append(given[-1])
        return {"rows": [{"contender": name, "seconds": 1.0} for name in ("weft", *given[-1])]}

    monkeypatch.setattr("weft.bench.reproduce.measured.bench_epoch", measured)
    rows = against_others("g", 2, 4, 1, 1, {"graph": "g", "vertices": 2, "arcs": 3})
    assert asked[0][0] == "dgl"
    assert [row["contender"] for row in rows][:2] == ["weft", "dgl"]
    assert {(row["graph"], row["arcs"], row["ranks"]) for row in rows} == {("g", 3, 1)}


def test_where_it_is_not_installed_that_is_one_line(monkeypatch):
    if "dgl" in others_here():
        pytest.skip("DGL is installed")
    with pytest.raises(UserError, match="DGL is not installed, and no part of weft"):
        bench_epoch("karate", ["gcn"], 2, 4, 1, 0.0, 1, 1, 1, ["dgl"])


def test_a_model_that_the_adapter_has_not_is_refused_before_anything_runs():
    with pytest.raises(UserError, match="weft's adapter of DGL has no gatv2"):
        check_contenders(["gatv2"], ["dgl"])


def test_the_arcs_go_the_way_that_wefts_rows_say(dgl):
    """D^-½ (A + I) D^-½ of a directed graph, where one degree is of rows and the other of columns."""
    from weft.bench.dgl import dgl_forward

    graph = load("er:nodes=13,degree=3,directed=true,features=4,classes=3")
    layers, through = dgl_forward(graph, task("gcn") | {"layers": 1})
    dense = torch.zeros(13, 13)
    dense[graph.rows, graph.indices.long()] = 1
    dense.fill_diagonal_(1)
    want = dense.sum(1).rsqrt()[:, None] * dense * dense.sum(0).rsqrt() @ graph.features @ layers[0].weight
    torch.testing.assert_close(through(layers[0], graph.features), want)

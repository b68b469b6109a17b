"""What people do wrong with a shared graph: one line each, and nothing is left behind."""

from __future__ import annotations

import math

import pytest
import torch
import torch_geometric.nn as g
from torch import nn
from torch.nn import functional as F

from weft.comm import run_ranks
from weft.errors import UserError
from weft.pyg import ranks

from .graphs import CLASSES as C
from .graphs import WIDTH as W
from .graphs import directed


def mistaken(comm, what):
    """The line that a mistake ends in."""
    with ranks(comm) as job:
        data = job.share(directed(), "random")
        model = job.wrap(nn.ModuleDict({"conv": g.GCNConv(W, C), "lin": nn.Linear(W, C)}).double())
        try:
            what(job, data, model)
        except UserError as error:
            return str(error)
    return "nothing"


MISTAKES = {
    "an edge_index that nobody shared": (
        lambda job, data, model: model["conv"](data.x, directed().edge_index),
        "GCNConv (conv): ",
    ),
    "an edge_index of another shared graph": (
        lambda job, data, model: model["conv"](data.x, job.share(directed(1), "random").edge_index),
        "GCNConv (conv): ",
    ),
    "a layer of another type": (
        lambda job, data, model: model.float()["lin"](data.x),
        "Linear (lin): its weights are torch.float32 on cpu, its rows torch.float64 on cpu. "
        "Move both with .to().",
    ),
    "a conv of another type": (
        lambda job, data, model: model.float()["conv"](data.x, data.edge_index),
        "GCNConv (conv): its weights are torch.float32 on cpu, its rows torch.float64 on cpu.",
    ),
    "a collective on one rank": (
        lambda job, data, model: model["conv"](data.x, data.edge_index) if job.rank == 0 else None,
        "GCNConv (conv)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_module(name):
    what, words = MISTAKES[name]
    if name == "a collective on one rank":
        with pytest.raises(Exception, match=r"GCNConv \(conv\)"):
            run_ranks(mistaken, 2, "threads", what)
        return
    for line in run_ranks(mistaken, 2, "threads", what):
        assert line.startswith(words)
        assert "\n" not in line


def counted(comm):
    with ranks(comm) as job:
        x = job.share(directed(), "random").x
        n = x.size(0)
        found = [
            int(n), float(n), n / 1, n // 1, n**1, abs(-n), divmod(n, 1)[0], abs(n), round(n), 46 // n * n,
            46 % (n + 1) + 0, math.sqrt(n) ** 2, n * 1.0, n + 0.0, 1 / (1 / n), math.floor(n), n % 24,
        ]  # fmt: skip
        return float(x.sum() / int(x.size(0))), float(x.mean() * W), [float(k) for k in found]


def test_a_number_of_rows_is_everybodys_wherever_one_computes_with_it():
    for total, mean, found in run_ranks(counted, 3, "threads"):
        assert total == pytest.approx(mean, rel=1e-12)
        assert found == pytest.approx([23, 23, 23, 23, 23, 23, 23, 23, 23, 46, 22, 23, 23, 23, 23, 23, 23])


def nested(comm, before):
    changed = []
    with ranks(comm):
        changed.append(vars(torch.autograd.Function)["apply"] is not before)
        with ranks(comm):
            pass
        changed.append(vars(torch.autograd.Function)["apply"] is not before)
    return changed


def test_what_a_job_puts_into_torch_is_gone_afterwards():
    before = vars(torch.autograd.Function)["apply"]
    assert run_ranks(nested, 2, "threads", before) == [[True, True], [True, True]]
    assert vars(torch.autograd.Function)["apply"] is before
    with ranks():  # one rank is one process
        assert vars(torch.autograd.Function)["apply"] is before
    assert torch.equal(F.relu(torch.ones(2)), torch.ones(2))

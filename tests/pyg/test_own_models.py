"""weft's own models in a loop of one's own: what the trainer does, by the same objects."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F

import weft
from weft.comm import Ledger, run_ranks
from weft.errors import UserError
from weft.graph import load, to_pyg
from weft.nn import Noise
from weft.nn.layers import GCNLayer
from weft.train import RunConfig, Trainer

from ..examples import example

pytest.importorskip("torch_geometric")
GRAPH = "sbm:nodes=61,classes=3,features=5,degree=5"
GRIDS = [
    (1, "halo", ""),
    (3, "halo", ""),
    (3, "1d", ""),
    (4, "2d", "2x2"),
    (4, "3d", "2x2x1"),
    (2, "feature", ""),
]
EPOCHS = 3


def config_of(model: str, strategy: str, grid: str) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden = model, 6
    config.train.dtype, config.train.weight_decay, config.train.epochs = "float64", 0.0, EPOCHS
    config.parallel.strategy, config.parallel.grid = strategy, grid
    config.data.feature_norm = "none"
    return config


def both(comm, model, strategy, grid):
    """Losses and words of products with A: (of the trainer, of the loop)."""
    graph, config = load(GRAPH), config_of(model, strategy, grid)
    trainer = Trainer(graph, config, comm)
    trainer.step(1)
    with Ledger() as theirs:
        known = [trainer.step(epoch) for epoch in range(2, EPOCHS + 1)]
    losses = []
    with weft.ranks(comm, seed=config.train.seed) as job:
        data = job.share(graph, strategy=strategy, grid=grid, partition=config.parallel.partition)
        data.x = data.x.double()
        net = job.wrap(Trainer(graph, config, comm).model)  # weights of the same seed
        A = job.operator(data, net.adjacency)
        A.hold(data.x)  # x never changes: what A makes of it is kept, as the trainer does
        optimizer = torch.optim.Adam(net.parameters(), lr=config.train.lr)

        def step(epoch: int) -> float:
            net.train()
            optimizer.zero_grad()
            out = net(A, data.x, Noise(config.train.seed, epoch))
            loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
            loss.backward()
            optimizer.step()
            return loss.item()

        step(1)
        with Ledger() as ours:
            losses = [step(epoch) for epoch in range(2, EPOCHS + 1)]
    return known, losses, [_words(theirs), _words(ours)]


def _words(ledger: Ledger) -> dict[str, int]:
    """Of products with A, and of attention; what a loss and gradients move is the loop's own affair."""
    return {p: ledger.words(p) for p in ledger.phases if p not in ("grad", "loss", "sum", "count", "plan")}


@pytest.mark.parametrize(("ranks", "strategy", "grid"), GRIDS)
@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_a_loop_of_ones_own_has_the_trainers_losses_and_words(model, ranks, strategy, grid):
    for known, losses, (theirs, ours) in run_ranks(both, ranks, "threads", model, strategy, grid):
        assert losses == pytest.approx(known, rel=1e-12)
        assert ours == theirs
        assert bool(theirs) == (ranks > 1)


class Mixed(torch.nn.Module):
    """A weft layer between torch's own."""

    def __init__(self):
        super().__init__()
        self.first, self.near = torch.nn.Linear(5, 4), GCNLayer(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, A, x):
        return self.norm(self.near(A, self.first(x).tanh()))


def mixed(comm, nets):
    """The result of a rank's own copy, and the gradient of every weight."""
    net = nets[comm.rank]
    with weft.ranks(comm, seed=0) as job:
        data = job.share(load(GRAPH), partition="random")
        A = job.operator(data, "gcn", dtype=torch.float64)
        out = job.wrap(net)(A, data.x.double())
        F.cross_entropy(out, data.y).backward()
        rows = job.collect(out)
    return rows, [p.grad for p in net.parameters()]


def test_weft_layers_stand_between_torchs_own_modules():
    net = Mixed().double()  # made once: ranks that are threads share torch's generator
    rows, grads = run_ranks(mixed, 1, "threads", [copy.deepcopy(net)])[0]
    for found, slopes in run_ranks(mixed, 3, "threads", [copy.deepcopy(net) for _ in range(3)]):
        torch.testing.assert_close(found, rows, rtol=1e-12, atol=1e-12)
        for a, b in zip(slopes, grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def misfit(comm):
    with weft.ranks(comm, seed=0) as job:
        data, other = job.share(load(GRAPH)), job.share(load("karate"))
        job.wrap(GCNLayer(5, 2))(job.operator(other), data.x)


def test_a_of_another_graph_is_refused_by_the_layers_name():
    with pytest.raises(UserError, match=r"GCNLayer: its rows are not the vertices of A"):
        run_ranks(misfit, 2, "threads")


def test_a_is_made_of_a_weft_graph_and_of_nothing_else():
    with weft.ranks() as job, pytest.raises(UserError, match=r"Share weft\.load\(data\) in place of data"):
        job.operator(job.share(to_pyg(load("karate"))))


def test_the_example_of_a_loop_has_one_result_on_every_grid(monkeypatch):
    own, lock = example("own_loop", monkeypatch), threading.Lock()
    made = own.build

    def one_at_a_time(*args):
        """Ranks that are threads share torch's generator: each makes its weights alone."""
        with lock:
            torch.manual_seed(0)
            return made(*args)

    monkeypatch.setattr(own, "build", one_at_a_time)

    def train(comm, strategy, grid):
        return own.main("sbm:nodes=97,classes=3", strategy, grid, epochs=4, hidden=8, comm=comm)

    losses, accuracy = run_ranks(train, 1, "threads", "halo", "")[0]
    assert losses[-1] < losses[0]
    for found, share in run_ranks(train, 4, "threads", "2d", "2x2"):
        assert found == pytest.approx(losses, rel=1e-4)  # float32
        assert share == pytest.approx(accuracy, abs=0.03)

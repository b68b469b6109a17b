"""The front door: PyG's scripts for Cora, real ranks, stores, `weft verify` of a module of one's own."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as g
from torch import nn
from torch.nn import functional as F

import weft
from weft.cli import main
from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import Store, load, write_store
from weft.pyg import ranks

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "pyg_cora.py"
GRAPH = "sbm:nodes=97,features=8,classes=4"
W, C = 8, 4


class Layers(nn.Module):
    """What PyG's scripts have: dropout, conv, activation, and again."""

    def __init__(self, *convs: nn.Module, p: float = 0.5):
        super().__init__()
        self.convs, self.p = nn.ModuleList(convs), p

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = F.elu(conv(F.dropout(x, self.p, self.training), edge_index))
        return self.convs[-1](F.dropout(x, self.p, self.training), edge_index)


class Deep(nn.Module):
    """GCN2, which adds its first features in every layer."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(W, 6), nn.Linear(6, C)])
        self.convs = nn.ModuleList(g.GCN2Conv(6, 0.1, 0.5, k + 1) for k in range(3))

    def forward(self, x, edge_index):
        x = x0 = self.lins[0](F.dropout(x, 0.3, self.training)).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, 0.3, self.training), x0, edge_index).relu()
        return self.lins[1](x)


class Unified(nn.Module):
    """TransformerConv with label masking: some known labels go in, the others are learned."""

    def __init__(self):
        super().__init__()
        self.mask = g.MaskLabel(C, W)
        self.conv = g.TransformerConv(W, C, heads=2, concat=False, beta=True, dropout=0.3)

    def forward(self, x, edge_index, y, mask):
        return self.conv(self.mask(x, y, mask), edge_index)


DEGREES = torch.tensor([1, 5, 9, 20, 30, 20, 9, 5, 1])
SCRIPTS = {
    "gcn": lambda: Layers(g.GCNConv(W, 6, cached=True), g.GCNConv(6, C, cached=True)),
    "gat": lambda: Layers(g.GATConv(W, 3, heads=2, dropout=0.6), g.GATConv(6, C, concat=False, dropout=0.6)),
    "gatv2": lambda: Layers(g.GATv2Conv(W, 3, heads=2, dropout=0.6), g.GATv2Conv(6, C, dropout=0.6)),
    "pna": lambda: Layers(g.PNAConv(W, C, ["mean", "max", "std"], ["identity", "amplification"], DEGREES)),
    "jumping knowledge": lambda: g.GCN(W, 6, 3, C, dropout=0.5, jk="lstm"),
    "gcn2": lambda: Deep(),
    "sgc": lambda: Layers(g.SGConv(W, C, K=2, cached=True), p=0.0),
    "tagcn": lambda: Layers(g.TAGConv(W, 6), g.TAGConv(6, C)),
    "unimp": lambda: Unified(),
}


def script(comm, models, kind, partition):
    """The loop of PyG's scripts, as they have it."""
    with ranks(comm, seed=1) as job:
        data = job.share(load(GRAPH), partition)
        model = job.wrap(models[comm.rank])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        found = []
        for epoch in range(3):
            model.train()
            optimizer.zero_grad()
            if kind == "unimp":
                seen = data.train_mask.clone()
                numbers = torch.Generator().manual_seed(epoch)
                seen[data.train_mask] = torch.rand(int(data.train_mask.sum()), generator=numbers) < 0.6
                out = model(data.x, data.edge_index, data.y, seen)
                loss = F.cross_entropy(out[data.train_mask & ~seen], data.y[data.train_mask & ~seen])
            else:
                out = model(data.x, data.edge_index)
                loss = F.nll_loss(F.log_softmax(out, dim=1)[data.train_mask], data.y[data.train_mask])
            loss.backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                rest = (data.y, data.train_mask) if kind == "unimp" else ()
                pred = model(data.x, data.edge_index, *rest).argmax(dim=-1)
            hits = int((pred[data.test_mask] == data.y[data.test_mask]).sum())
            found += [loss.item(), hits / int(data.test_mask.sum())]
        return found


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_of_pyg_has_the_losses_and_accuracies_of_one_process(kind):
    torch.manual_seed(4)
    model = SCRIPTS[kind]()

    def on(count, partition):
        models = [copy.deepcopy(model) for _ in range(count)]
        return run_ranks(script, count, "threads", models, kind, partition)

    alone = on(1, "block")[0]
    assert len(set(alone)) > 3
    for count, partition in ((2, "metis"), (4, "random")):
        for found in on(count, partition):
            assert found == pytest.approx(alone, rel=3e-5)  # float32, as the scripts have it


def example(comm, path, graph):
    """Ranks that are processes load this file by itself."""
    spec = importlib.util.spec_from_file_location("pyg_cora", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    losses, accuracies = module.main(graph, 8, 5, "metis", comm)
    return [*losses, *accuracies]


def test_the_example_on_real_ranks_is_that_of_one_process(capfd):
    alone = example(None, EXAMPLE, GRAPH)
    assert len(set(alone)) > 5
    for found in run_ranks(example, 2, "mpi", str(EXAMPLE), GRAPH):
        assert found == pytest.approx(alone, rel=3e-5)


BLOCK = f"""
import torch, weft
with weft.ranks() as job:
    data = job.share(weft.load({GRAPH!r}))
    print('rows', data.x.shape[0], 'of', data.x.size(0) / 1, torch.rand(1).item())
"""
FLAT = f"""
import torch, weft
job = weft.join()
data = job.share(weft.load({GRAPH!r}))
print('rows', data.x.shape[0], 'of', data.x.size(0) / 1, torch.rand(1).item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [BLOCK, FLAT], ids=["block", "flat"])
def test_a_plain_script_without_a_guard_runs_on_ranks_once_each(text, tmp_path, capfd):
    (tmp_path / "script.py").write_text(text)
    assert main(["run", "--ranks", "2", "--engine", "torch", "script.py"]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "rows" in line]
    assert sorted(line.split("rows ")[1].split(" of")[0] for line in lines) == ["48", "49"]
    assert len({line.split()[-1] for line in lines}) == 1  # random numbers that all ranks draw are the same


def test_a_flat_script_joins_until_it_ends_and_once(monkeypatch):
    at_end = []
    monkeypatch.setattr("weft.pyg.job._joined", [])
    monkeypatch.setattr("atexit.register", lambda do, *args: at_end.append((do, args)))
    job = weft.join(seed=3)
    x = torch.ones(40, 3)
    try:
        assert (job.rank, job.size) == (0, 1)
        with pytest.raises(UserError, match=r"weft.join\(\) was called before"):
            weft.join()
        dropped = F.dropout(x, 0.5)
    finally:
        for do, args in at_end:
            do(*args)
    with ranks(seed=3):  # the masks that a block has
        assert torch.equal(dropped, F.dropout(x, 0.5))
    assert not torch.equal(dropped, F.dropout(x, 0.5))  # torch's own again


@pytest.mark.parametrize("stored", [False, True])
def test_a_graph_and_a_store_are_shared_as_their_data_is(stored, tmp_path):
    graph = load(GRAPH)
    source = str(write_store(graph, tmp_path / "g.weft")) if stored else graph
    conv = [g.GCNConv(W, C) for _ in range(3)]
    want = copy.deepcopy(conv[0])(weft.graph.to_pyg(graph).x, weft.graph.to_pyg(graph).edge_index)

    def work(comm):
        with ranks(comm) as job:
            data = job.share(source, "metis")
            return job.collect(job.wrap(conv[comm.rank])(data.x, data.edge_index)), job.collect(
                data.train_mask
            )

    for got, mask in run_ranks(work, 3, "threads"):
        torch.testing.assert_close(got, want.detach())
        assert torch.equal(mask, graph.train_mask)


def test_weights_are_those_of_rank_0_and_what_has_no_shape_is_refused():
    models = [nn.Linear(2, 2) for _ in range(3)]
    first = models[0].weight.detach().clone()

    def work(comm):
        with ranks(comm) as job:
            return job.wrap(models[comm.rank]).weight.detach()

    assert all(torch.equal(found, first) for found in run_ranks(work, 3, "threads"))
    models = [g.GCNConv(-1, 3) for _ in range(2)]
    with pytest.raises(UserError, match="has no shape yet"):
        run_ranks(work, 2, "threads")
    with ranks() as job:  # one process gives it a shape when it is first used
        assert job.wrap(models[0])(torch.ones(2, 5), torch.tensor([[0], [1]])).shape == (2, 3)


def test_a_model_that_nobody_wrapped_must_be_the_same_on_every_rank():
    def on(models):
        def work(comm):
            with ranks(comm) as job:
                models[comm.rank](job.share(load(GRAPH)).x)

        run_ranks(work, 2, "threads")

    model = nn.Linear(W, C)
    on([model, copy.deepcopy(model)])
    with pytest.raises(UserError, match=r"differs from rank to rank. Use job.wrap"):
        on([nn.Linear(W, C), nn.Linear(W, C)])


def test_an_unknown_partition_is_named():
    with pytest.raises(UserError, match="Did you mean 'metis'"), ranks() as job:
        job.share(load(GRAPH), "metsi")


SCRIPT = """
import torch
from torch_geometric.nn import GAT, GCNConv, GPSConv

def make_model(data):
    return GAT(data.num_features, 8, 2, 4, heads=2, dropout=0.4, norm="batch")

class Wrong(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.third = GCNConv(width, 4), torch.nn.Linear(4, 4), GCNConv(4, 3)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        with torch._C.DisableTorchFunction():
            mean = h.mean(0)  # of this rank's rows
        return self.third(self.second(h - mean), edge_index)

def make_wrong(data):
    return Wrong(data.num_features)

def make_attention():
    return GPSConv(8, GCNConv(8, 8), heads=2)

def make_number(data):
    return 3
"""


def verify(name, tmp_path, *options):
    (tmp_path / "script.py").write_text(SCRIPT)
    return main(["verify", f"script.py:{name}", GRAPH, "--ranks", "3", "--engine", "threads", *options])


@pytest.mark.parametrize("options", [(), ("--strategy", "feature"), ("--strategy", "2d", "--grid", "1x3")])
def test_verify_says_that_a_module_is_that_of_one_process(options, tmp_path, capsys):
    assert verify("make_model", tmp_path, "--json", *options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["equal"] is True
    assert answer["first"] is None
    assert "output of GATConv (convs.1)" in answer["differences"]
    assert "gradient of x" in answer["differences"]
    assert all(value < 1e-9 for value in answer["differences"].values())


def test_verify_names_the_first_submodule_that_differs(tmp_path, capsys):
    assert verify("make_wrong", tmp_path) == 1
    out = capsys.readouterr().out
    assert "first the output of Linear (second)" in out
    assert "output of GCNConv (first)" in out


@pytest.mark.parametrize(
    ("name", "word"),
    [("make_attention", "GPSConv"), ("make_number", "not a torch.nn.Module"), ("make_modle", "no function")],
)
def test_verify_of_what_cannot_be_compared_is_one_line(name, word, tmp_path, capsys):
    assert verify(name, tmp_path) == 2
    err = capsys.readouterr().err
    assert word in err
    assert err.count("\n") == 1


def test_what_only_one_of_two_has_differs():
    from weft.pyg.verify import Trace, compare

    one = torch.ones(2)
    assert compare(Trace({"output of a": one}), Trace({"output of a": one, "output of b": one})) == {
        "output of a": 0.0, "output of b": math.inf,
    }  # fmt: skip


def cut(comm, options):
    with ranks(comm) as job:
        data = job.share(load(GRAPH), **options)
        return type(data.num_nodes), int(data.num_nodes), "_weft_tag" in data.x.__dict__


def test_one_rank_has_the_whole_graph_as_plain_tensors_and_reads_no_grid():
    for options in ({}, {"strategy": "2d", "grid": "2x2"}, {"partition": "metis", "order": "rcm"}):
        assert run_ranks(cut, 1, "threads", options) == [(int, 97, False)]
    _, rows, tagged = run_ranks(cut, 4, "threads", {"strategy": "2d", "grid": "2x2"})[0]
    assert (rows, tagged) == (97, True)


@pytest.mark.parametrize(
    ("count", "options", "words"),
    [
        (1, {"strategy": "2e"}, "unknown strategy '2e'"),
        (1, {"grid": "two"}, "grid 'two' is not numbers"),
        (1, {"partition": "metsi"}, "unknown partition 'metsi'"),
        (1, {"order": "rmc"}, "unknown order 'rmc'"),
        (3, {"strategy": "2d", "grid": "2x2"}, "3 ranks were given as 2x2"),
        (3, {"strategy": "2e"}, "unknown strategy '2e'"),
    ],
)
def test_a_cut_that_is_not_there_is_one_line(count, options, words):
    with pytest.raises(UserError, match=words):
        run_ranks(cut, count, "threads", options)


@pytest.mark.parametrize("count", [1, 3])
def test_a_store_is_read_by_rows_and_compared_as_it_is_read(tmp_path, monkeypatch, count):
    path = write_store(load(GRAPH), tmp_path / "g.weft")
    read, times = Store.verify, []
    monkeypatch.setattr(Store, "verify", lambda self: times.append(1) or read(self))

    def work(comm):
        with ranks(comm) as job:
            return job.collect(job.share(str(path)).x)

    assert all(torch.equal(x, load(GRAPH).features) for x in run_ranks(work, count, "threads"))
    assert not times
    # One of old has no checksums of chunks: somebody must read it through, once.
    with monkeypatch.context() as old:
        old.setattr(Store, "checks_itself", False)
        run_ranks(work, count, "threads")
    assert times == [1]
    damaged = bytearray(path.read_bytes())
    damaged[4100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"wrong checksum in section 'ind"):
        run_ranks(work, count, "threads")
    with pytest.raises(UserError, match=r"no file .*h\.weft"):
        run_ranks(lambda comm: ranks(comm).__enter__().share("h.weft"), count, "threads")

"""`weft.accelerate`: PyG's layers through weft's kernels give what PyG gives, forward and back."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings

import pytest
import torch
import torch_geometric.nn as g
from torch import nn

import weft
from weft.comm import Ledger, run_ranks
from weft.errors import Note, UserError
from weft.nn import GCNLayer
from weft.parallel import Operator, choose
from weft.pyg import ranks, recipes, views
from weft.pyg import recognise as recognising
from weft.pyg.fast import Fast, explain

from .compare import TOLERANCE, alone, difference, worst
from .convs import CASES, Case, plain
from .graphs import CLASSES as C
from .graphs import WIDTH as W
from .graphs import directed

SLOW = {
    "GCNConv(aggr=max)": "its aggregation is max",
    "SAGEConv(aggr=['mean', 'max'])": "its aggregation is ['mean', 'max']",
    "GATConv() <lambda>": "its attention weights are asked for",
    **{f"SAGEConv(aggr={aggr})": f"its aggregation is {aggr}" for aggr in
       ("std", "var", "mul", "softmax", "powermean", "median", "lstm")},
}  # fmt: skip
"""Options of recognised classes that run as PyG's own: start of a case's label → why."""
KNOWN = (
    "GCN", "SAGE", "GINConv", "SGConv", "APPNP", "TAG", "GATConv", "GATv2", "Transformer", "LGConv",
    "GraphConv", "SimpleConv", "SSGConv", "MixHop", "GCN2", "MFConv", "DirGNN", "HeteroConv",
)  # fmt: skip


def quiet(model):
    """Accelerated, and nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        return weft.accelerate(model)


def gap(model, call, data=None):
    """The largest difference between PyG's own and the accelerated model."""
    data = directed() if data is None else data
    fast = quiet(copy.deepcopy(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        found, want = alone(fast, call, data), alone(model, call, data)
    return max(difference(a, b) for a, b in zip(found, want, strict=True)), fast


@pytest.mark.parametrize("case", CASES, ids=[label for label, _, _ in CASES])
def test_every_conv_accelerated_is_itself(case: Case):
    label, make, call = case
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worst_of_all, fast = gap(make().double(), call)
    assert worst_of_all < TOLERANCE
    if label.startswith(KNOWN):
        why = next((why for start, why in SLOW.items() if label.startswith(start)), None)
        assert set(explain(fast).values()) == {"weft" if why is None else f"PyG: {why}"}


SIDES = torch.Generator().manual_seed(5)
PAIR = (
    torch.randn(9, 5, generator=SIDES, dtype=torch.float64),
    torch.randn(7, 3, generator=SIDES, dtype=torch.float64),
    torch.stack([torch.randint(9, (31,), generator=SIDES), torch.randint(6, (31,), generator=SIDES)]),
    torch.randn(31, 2, generator=SIDES, dtype=torch.float64),
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: g.SAGEConv((5, 3), C),
        lambda: g.SAGEConv((5, 3), C, aggr="max"),
        lambda: g.GraphConv((5, 3), C, aggr="mean"),
        lambda: g.GATConv((5, 3), C, heads=2),
        lambda: g.GATv2Conv((5, 3), C, heads=2, edge_dim=2, residual=True),
        lambda: g.TransformerConv((5, 3), C, heads=2, edge_dim=2, root_weight=False),
    ],
)
def test_sources_and_targets_may_be_two_sets(make):
    torch.manual_seed(6)
    model = make().double()
    fast = quiet(copy.deepcopy(model))
    left, right, edges, attr = PAIR
    more = (attr,) if getattr(model, "edge_dim", None) else ()
    results = []
    for m in (model, fast):
        sides = left.clone().requires_grad_(), right.clone().requires_grad_()
        out = m(sides, edges, *more)
        # A side that nothing reads has no gradient in PyG, and zeros here.
        grads = torch.autograd.grad(out.square().sum(), [*sides, *m.parameters()], allow_unused=True)
        results.append([out, *grads])
    for ours, theirs in zip(*results[::-1], strict=True):
        assert difference(ours if theirs is not None else None, theirs) < TOLERANCE
    assert explain(fast)[type(model).__name__] == "weft"


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv", "TAGConv"])
def test_weights_of_arcs_learn(name):
    data = directed()
    data.edge_weight.requires_grad_()
    model = getattr(g, name)(W, C).double()
    fast = quiet(copy.deepcopy(model))
    grads = []
    for m in (model, fast):
        out = m(data.x, data.edge_index, data.edge_weight)
        grads.append(torch.autograd.grad(out.square().sum(), [data.edge_weight, *m.parameters()]))
    assert max(difference(a, b) for a, b in zip(*grads, strict=True)) < TOLERANCE
    assert explain(fast) == {name: "weft"}


def test_a_maximum_shares_its_gradient_among_equals_as_pyg_does():
    data = directed()
    data.x = data.x.round().relu()  # many equal numbers, and zeros
    for aggr in ("max", "min"):
        assert gap(g.SAGEConv(W, C, aggr=aggr).double(), plain, data)[0] < TOLERANCE
    # The rule is that of torch's scatter, which counts the zeros that it starts from.
    x = torch.tensor([[0.0], [0.0]], requires_grad=True)
    quiet(g.SimpleConv("max"))(x, torch.tensor([[0, 1], [0, 0]])).sum().backward()
    assert x.grad.ravel().tolist() == pytest.approx([1 / 3, 1 / 3])


class Twice(g.GCNConv):
    def message(self, x_j, edge_weight):
        return 2 * edge_weight.view(-1, 1) * x_j


class Shifted(g.SAGEConv):
    def update(self, inputs):
        return inputs + 1


class Around(g.GCNConv):
    def propagate(self, edge_index, **kwargs):
        return 3 * super().propagate(edge_index, **kwargs)


class Named(g.GCNConv):
    """A subclass that changes nothing."""


class Learned(g.MessagePassing):
    """A message that is x_j as long as nothing was learned."""

    def __init__(self):
        super().__init__("mean")
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return self.scale * x_j


class Own(g.MessagePassing):
    """A layer of one's own that is recognised by its message."""

    def __init__(self):
        super().__init__("add")
        self.lin = nn.Linear(W, C)

    def forward(self, x, edge_index, norm):
        return self.propagate(edge_index, h=self.lin(x), norm=norm).relu()

    def message(self, h_j, norm):
        return norm.view(-1, 1) * h_j


def test_what_a_subclass_changes_is_seen():
    torch.manual_seed(0)
    for make, why in (
        (lambda: Twice(W, C), "its message is not x_j or a weight times x_j"),
        (lambda: Shifted(W, C), "it has an aggregate, update or propagate of its own"),
        (lambda: Around(W, C), "it has an aggregate, update or propagate of its own"),
        (lambda: Learned(), "its message reads what the module keeps"),
        (lambda: Named(W, C), ""),
    ):
        found, fast = gap(make().double(), plain)
        assert found < TOLERANCE
        assert list(explain(fast).values()) == ["weft" if not why else f"PyG: {why}"]
    found, fast = gap(Own().double(), lambda m, d: m(d.x, d.edge_index, d.edge_weight))
    assert found < TOLERANCE
    assert explain(fast) == {"Own": "weft"}


def test_falling_back_is_told_once_by_name():
    model = nn.ModuleDict({"a": g.EdgeConv(nn.Linear(2 * W, C)), "b": g.GATConv(W, C)})
    weft.accelerate(model)
    data = directed()
    x = data.x.float()
    with pytest.warns(Note, match=r"^EdgeConv \(a\) runs as PyG's own: its message reads x_i\.$"):
        model["a"](x, data.edge_index)
    with pytest.warns(Note, match=r"^GATConv \(b\) runs as PyG's own: its attention weights are asked for"):
        model["b"](x, data.edge_index, return_attention_weights=True)
    model["a"](x, data.edge_index)  # a second warning would be an error here
    model["b"](x, data.edge_index, return_attention_weights=True)
    model["b"](x, data.edge_index)
    assert explain(model) == {"a (EdgeConv)": "PyG: its message reads x_i", "b (GATConv)": "weft"}
    with pytest.warns(Note, match="Linear has no layer of PyG"):
        weft.accelerate(nn.Linear(2, 2))
    with pytest.raises(UserError, match="a int cannot be accelerated"):
        weft.accelerate(3)


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_a_layer_that_differs_on_the_sample_is_not_used(wrong, monkeypatch):
    right = recognising.RECIPES["GCNConv"]

    def off(layer, x, edge_index, edge_weight=None):
        y = right(layer, x, edge_index, edge_weight)
        return y * 1.0001 if wrong == "forward" else y.detach() + 0 * y + 2 * (y - y.detach())

    monkeypatch.setitem(recognising.RECIPES, "GCNConv", off)
    model = g.GCNConv(W, C).double()
    fast = weft.accelerate(copy.deepcopy(model))
    data = directed()
    with pytest.warns(Note, match=r"GCNConv runs as PyG's own: it differed by .* on a sample"):
        out = fast(data.x, data.edge_index)
    assert torch.equal(out, model(data.x, data.edge_index))


def test_an_edge_index_is_looked_at_once_and_anew_when_it_was_written_to(monkeypatch):
    built = []
    build = views._alone
    monkeypatch.setattr(views, "_alone", lambda *args: built.append(1) or build(*args))
    data = directed()
    model = quiet(nn.ModuleList([g.GCNConv(W, W), g.GCNConv(W, W), g.GATConv(W, C)]).double())

    def run(of=model, d=data):
        h = d.x
        for conv in of:
            h = conv(h, d.edge_index)
        return h

    run()
    first = len(built)
    run()
    assert len(built) == first  # both GCN layers share one matrix, the second epoch builds none
    data.edge_index[0, 0] = (data.edge_index[0, 0] + 1) % 20
    found = run()
    assert len(built) == first + 2  # Â, and the arcs with loops; nothing for the samples
    plain_model = nn.ModuleList([g.GCNConv(W, W), g.GCNConv(W, W), g.GATConv(W, C)]).double()
    plain_model.load_state_dict(model.state_dict())
    assert difference(found, run(plain_model)) < TOLERANCE
    known = id(data.edge_index)
    assert known in views.BESIDE._found
    del data.edge_index
    gc.collect()
    assert known not in views.BESIDE._found


def test_layers_that_make_their_arcs_anew_find_the_pattern_again(monkeypatch):
    sorted_ = []
    order = views._sorted
    monkeypatch.setattr(views, "_sorted", lambda *args: sorted_.append(1) or order(*args))
    data = directed()
    conv = quiet(g.LGConv())
    first = conv(data.x, data.edge_index)
    before = len(sorted_)
    assert torch.equal(first, conv(data.x, data.edge_index))
    assert len(sorted_) == before
    heavier = conv(data.x, data.edge_index, data.edge_weight)
    assert len(sorted_) == before  # other numbers on the same pattern
    assert difference(heavier, g.LGConv()(data.x, data.edge_index, data.edge_weight)) < TOLERANCE


def test_what_a_makes_of_an_input_is_kept_until_it_is_written_to(monkeypatch):
    products = []
    combine = recipes.combine
    monkeypatch.setattr(recipes, "combine", lambda *args: products.append(1) or combine(*args))
    data = directed()
    for make in (lambda: g.GCNConv(W, C), lambda: g.SAGEConv(W, C), lambda: g.GINConv(nn.Linear(W, C))):
        plain_conv = make().double()
        conv = quiet(copy.deepcopy(plain_conv))
        for epoch in range(4):
            before = len(products)
            out = conv(data.x, data.edge_index)
            assert difference(out, plain_conv(data.x, data.edge_index)) < TOLERANCE
            grads = [
                torch.autograd.grad(y.square().sum(), list(m.parameters()))
                for y, m in ((out, conv), (plain_conv(data.x, data.edge_index), plain_conv))
            ]
            assert max(difference(a, b) for a, b in zip(*grads, strict=True)) < TOLERANCE
            if epoch > 1:
                assert len(products) == before
        data.x[3] += 1  # another version: looked at anew
        assert difference(conv(data.x, data.edge_index), plain_conv(data.x, data.edge_index)) < TOLERANCE
        if not isinstance(plain_conv, g.GINConv):
            other = make().double()
            other.flow = "target_to_source"  # the same x and arcs, another A
            backwards = quiet(copy.deepcopy(other))
            for _ in range(3):
                out = backwards(data.x, data.edge_index)
                assert difference(out, other(data.x, data.edge_index)) < TOLERANCE
        hidden = data.x * 1
        for _ in range(3):
            before = len(products)
            conv(hidden.clone(), data.edge_index)  # a new tensor every time is never kept
            assert len(products) == before + 1


def test_dropout_of_arcs_repeats_by_seed_and_keeps_the_mean():
    data = directed()
    _, inverse = torch.unique(data.edge_index, dim=1, return_inverse=True)
    once = torch.stack([(inverse == k).nonzero()[0, 0] for k in range(int(inverse.max()) + 1)])
    single = data.edge_index[:, once]
    conv = quiet(g.GATConv(W, C, dropout=0.5).double())
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(conv(data.x, single))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    with torch.no_grad():
        mean = torch.stack([conv(data.x, single) for _ in range(100)]).mean(0)
        whole = conv.eval()(data.x, single)
    assert float((mean - whole).abs().max()) < 0.6  # a mean of 100; the spread is about 1
    conv.train()
    with pytest.warns(Note, match="it drops arcs, and some arc is there twice"):
        conv(data.x, torch.cat([single, single], 1))


def test_an_accelerated_model_is_copied_saved_and_explained_as_before():
    model = quiet(nn.Sequential(g.GCNConv(W, C)).double())
    data = directed()
    want = model[0](data.x, data.edge_index)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301  our own
        assert isinstance(other[0].forward, Fast)
        assert other[0].forward.layer.module is other[0]
        with torch.no_grad():
            other[0].bias += 1
        assert difference(other[0](data.x, data.edge_index), want + 1) < TOLERANCE
    assert difference(model[0](data.x, data.edge_index), want) < TOLERANCE  # A x may be kept by now
    assert list(model.state_dict()) == ["0.bias", "0.lin.weight"]
    seen = []
    handle = model[0].register_message_forward_hook(lambda m, args, out: seen.append(out.shape))
    with pytest.warns(Note, match="hooks watch its messages"):
        model[0](data.x, data.edge_index)
    handle.remove()
    assert len(seen) == 1
    with torch.inference_mode():
        assert difference(model[0](data.x, data.edge_index), want) < TOLERANCE


def test_another_graph_and_another_type_are_one_line():
    data = directed()
    conv = quiet(g.GCNConv(W, C))
    with pytest.raises(UserError, match="edge_index names vertex 22, but x has 9 rows"):
        conv(data.x[:9].float(), torch.tensor([[22], [0]]))
    with pytest.raises(UserError, match=r"GCNConv: x is torch\.float64 on cpu, its weights are"):
        conv(data.x, data.edge_index)


# On ranks.


@pytest.mark.parametrize("case", [c for c in CASES if c[0].startswith(KNOWN)], ids=lambda c: c[0])
def test_what_is_fast_on_ranks_is_right_without_it_too(case: Case, monkeypatch):
    label, make, call = case
    if any(word in label for word in ("median", "lstm", "max, flow")):
        pytest.skip("refused on ranks")
    wrap = weft.Job.wrap
    monkeypatch.setattr(weft.Job, "wrap", lambda job, model: wrap(job, model, fast=False))
    torch.manual_seed(3)
    assert worst(make(), call) < TOLERANCE


PHASES = "split", "gather", "reduce", "join"


def on_grid(comm, graph, strategy, sides):
    """Words of two GCN layers, forward and back: PyG's on a shared graph, and weft's on the same grid."""
    torch.manual_seed(0)
    found = []
    with ranks(comm) as job:
        data = job.share(graph, "random", strategy=strategy, grid=sides)
        model = job.wrap(nn.ModuleList([g.GCNConv(8, 5), g.GCNConv(5, 7)]).double())
        data.x = data.x.double()
        data.x.requires_grad_()

        def run():
            h = model[1](model[0](data.x, data.edge_index).relu(), data.edge_index)
            h.square().sum().backward()
            return job.collect(h)

        run()  # the plan is told once
        with Ledger() as ledger:
            h = run()
        found = [h, [ledger.words(phase) for phase in PHASES], explain(model)]
        blocks = data.edge_index.__dict__["_weft_tag"].names[1].space.blocks
        weights = [p.detach() for p in model.parameters()]
    grid, exchange = choose(strategy, comm.size, sides)
    A = Operator.build(graph, comm, grid, "gcn", exchange, blocks, torch.float64)
    layers = nn.ModuleList([GCNLayer(8, 5), GCNLayer(5, 7)]).double()
    with torch.no_grad():
        for layer, (bias, weight) in zip(layers, (weights[:2], weights[2:]), strict=True):
            layer.weight.copy_(weight.t())
            layer.bias.copy_(bias)
    x = A.layout.take(graph.features).double().requires_grad_()
    with Ledger() as ledger:
        h = layers[1](A, layers[0](A, x).relu())
        h.square().sum().backward()
    return [found, [A.layout.collect(h), [ledger.words(phase) for phase in PHASES]]]


@pytest.mark.parametrize(
    ("count", "strategy", "sides"),
    [(3, "halo", ""), (3, "1d", ""), (4, "2d", "2x2"), (3, "feature", ""), (6, "2d", "3x2"),
     (4, "1.5d", "2x2"), (8, "3d", "2x2x2")],
)  # fmt: skip
def test_words_of_pygs_gcn_are_those_of_wefts_own_on_any_grid(count, strategy, sides):
    graph = weft.load("sbm:nodes=97,features=8,classes=4")
    for (h, words, how), (want, wefts) in run_ranks(on_grid, count, "threads", graph, strategy, sides):
        assert words == wefts
        assert sum(words) > 0
        assert (words[0] > 0) == (words[3] > 0) == (strategy in ("2d", "3d", "feature"))
        assert difference(h, want) < TOLERANCE
        assert how == {"0 (GCNConv)": "weft", "1 (GCNConv)": "weft"}


class Equal(nn.Module):
    """Maxima and minima, also of weighted rows, which are learned; many are equal."""

    def __init__(self, reduce):
        super().__init__()
        self.sage, self.graph = g.SAGEConv(W, C, aggr=reduce), g.GraphConv(C, C, aggr=reduce)

    def forward(self, data):
        weight = data.edge_weight.round() * self.sage.lin_l.weight.sum()
        return self.graph(self.sage(data.x.round().relu(), data.edge_index).round(), data.edge_index, weight)


@pytest.mark.parametrize("grid", ["", "2x1x2"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_on_ranks_a_maximum_shares_its_gradient_among_equals_as_pygs_does(reduce, grid):
    said = []

    def call(model, data):
        out = model(data)
        said.append(explain(model))
        return out

    torch.manual_seed(3)
    assert worst(Equal(reduce), call, count=4, grid=grid) < TOLERANCE
    assert said[-1] == {"sage (SAGEConv)": "weft", "graph (GraphConv)": "weft"}


def dropped(comm, model, data):
    with ranks(comm, seed=2) as job:
        shared = job.share(data, "random")
        return job.collect(job.wrap(copy.deepcopy(model))(shared.x, shared.edge_index)), explain(model)


def test_dropout_of_arcs_does_not_depend_on_ranks():
    data = directed()
    data.edge_index = torch.unique(data.edge_index, dim=1)  # no arc twice
    model = g.GATConv(W, C, heads=2, dropout=0.5).double()
    one = run_ranks(dropped, 1, "threads", model, data)[0][0]
    for out, _ in run_ranks(dropped, 3, "threads", model, data):
        assert difference(out, one) < TOLERANCE
    assert not torch.equal(one, model.eval()(data.x, data.edge_index))


class Dropping(nn.Module):
    """Dropout of rows, of some rows, of arcs and loops, of rows in another dim, of a weight."""

    def __init__(self):
        super().__init__()
        self.gat, self.lin = g.GATConv(W, C, heads=2, dropout=0.4), nn.Linear(W, W)

    def forward(self, data):
        drop = nn.functional.dropout
        h = drop(drop(data.x).t(), 0.3).t()
        h = h + drop(data.x.unsqueeze(0).repeat(3, 1, 1), 0.3).sum(0)
        some = drop(h[data.train_mask], 0.3)
        h = nn.functional.linear(h, drop(self.lin.weight, 0.2))
        return self.gat(h, data.edge_index), some


def masked(comm, model, data):
    with ranks(comm, seed=5) as job:
        out = job.wrap(copy.deepcopy(model))(job.share(data, "random"))
        return [job.collect(x) for x in out]


def test_masks_of_dropout_are_those_of_one_rank_whatever_is_dropped():
    data = directed()  # it has loops and an arc twice: GATConv runs as PyG's own
    model = Dropping().double()
    want = run_ranks(masked, 1, "threads", model, data)[0]
    for found in run_ranks(masked, 3, "threads", model, data):
        assert [difference(a, b) < TOLERANCE for a, b in zip(found, want, strict=True)] == [True, True]
    torch.manual_seed(9)
    other = run_ranks(masked, 1, "threads", model, directed(1))[0]
    assert not torch.equal(other[0], want[0])

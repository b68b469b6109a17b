"""A layer that reads what arcs carry: the same on every grid, in batches, over parts, by columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import Graph, open_store, to_pyg, write_store
from weft.kernels import linear
from weft.nn import MODELS, Layer, register
from weft.train import Trainer
from weft.train.config import BatchConfig, RunConfig
from weft.train.facts import take_facts

from .graphs import small
from .sampled_ranks import WAYS, compare, observe, settings

HOWS = ("none", "loops", "gcn")


class Gated(Layer):
    """y_i = Σ_j a_ij g_ij h_j W, the gate g of an arc made of its features and its type."""

    cut = ("weight",)
    data = ("features", "type")
    scaled = True

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))

    def partial(self, A: Any, h: Tensor) -> Tensor:
        blocks = A.plan.blocks()
        x, kind = (torch.cat([a.data[name] for a in blocks]) for name in self.data)
        gate = 1 + 0.5 * x.sum(1, keepdim=True) + 0.25 * kind[:, None]
        return A.entries.weigh(A.entries.values(h.dtype) * gate, linear(h, self.weight))


@pytest.fixture(autouse=True)
def models():
    for how in HOWS:
        name = f"gated_{how}"
        register(name, lambda config, own, w, how=how: ([Gated(a, b) for a, b in pairwise(w)], how))
        WAYS[name] = {"model.name": name}
    yield
    for how in HOWS:
        del MODELS[f"gated_{how}"], WAYS[f"gated_{how}"]


def carrying() -> Graph:
    graph = small()
    g = torch.Generator().manual_seed(4)
    arcs = graph.num_arcs
    return graph.replace(
        arc_data={
            "features": torch.randn(arcs, 3, generator=g), "type": torch.randint(3, (arcs,), generator=g),
            "unread": torch.ones(arcs),
        }
    )  # fmt: skip


def whole(how: str) -> RunConfig:
    made = settings(f"gated_{how}")
    made.batch = BatchConfig()
    return made


@pytest.mark.parametrize("how", HOWS)
def test_full_neighbourhoods_in_one_batch_are_full_batch_training(how):
    made = settings(f"gated_{how}", batch__fanouts="all,all", batch__batch_size=10**6, model__dropout=0.0)
    ours, full = Trainer(carrying(), made), whole(how)
    full.model.dropout = 0.0
    truth = Trainer(carrying(), full)
    assert set(truth.A.plan.matrix(0).data) == {"features", "type"}
    for epoch in (1, 2, 3):
        assert ours.step(epoch) == pytest.approx(truth.step(epoch), rel=1e-9)


def losses(comm: Any, source: Graph | str, made: RunConfig) -> list[float]:
    trainer = Trainer(open_store(source, verify=False) if isinstance(source, str) else source, made, comm)
    return [trainer.step(epoch) for epoch in (1, 2)]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("strategy", ["1d", "halo", "2d", "3d"])
def test_every_grid_gives_what_one_rank_gives(tmp_path, how, strategy):
    made = whole(how)
    alone = losses(None, carrying(), made)
    made.parallel.strategy = strategy
    store = str(write_store(carrying(), tmp_path / "g.weft"))
    for ours in run_ranks(losses, 8 if strategy == "3d" else 4, "threads", store, made):
        assert ours == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_batches_over_parts_give_what_one_process_gives_in_the_words_foretold(tmp_path, how, feed):
    store = str(write_store(carrying(), tmp_path / "g.weft"))
    alone = observe(None, carrying(), settings(f"gated_{how}"))
    for budget in ("30KB", "10MB"):
        made = settings(f"gated_{how}", batch__feed=feed, batch__memory_budget=budget)
        for ours in run_ranks(observe, 4, "threads", store, made):
            compare(ours, alone, (how, feed, budget))
            parts = ours["facts"]["copies"]["arcs"]
            assert (parts < 4) == (budget == "30KB")
            carried = {phase for phase in ours["words"] if phase.startswith("arc")}
            assert carried == ({"arc data", "arc types"} if parts < 4 else set())
            if parts < 4:
                assert ours["words"]["arc data"] == 3 * ours["words"]["arc types"]
                assert ours["bytes"] >= 8 * ours["words"]["arc types"]
            assert ours["held"] <= (30_000 if parts < 4 else 10**7)


@pytest.mark.parametrize("model", ["gat", "gatv2", "transformer", "gine", "resgated", "pna"])
@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_a_list_of_numbers_is_one_feature_an_arc(tmp_path, model, kind):
    """Also whole ones: kinds are named `type`. A loop carries the mean of them, as of other features."""
    given = torch.arange(carrying().num_arcs) % 7
    made = RunConfig()
    made.model.name, made.model.arc_features, made.train.dtype = model, -1, "float64"
    rows = carrying().replace(arc_data={"features": given.double()[:, None]})
    truth = losses(None, rows, made)
    as_list = carrying().replace(arc_data={"features": given.to(kind)})
    assert losses(None, as_list, made) == truth
    assert losses(None, as_list.with_self_loops(), made) == losses(None, rows.with_self_loops(), made)
    made.parallel.strategy = "2d"
    store = str(write_store(as_list, tmp_path / "g.weft"))
    for ours in run_ranks(losses, 4, "threads", store, made):
        assert ours == pytest.approx(truth, rel=1e-9)
    made.parallel.strategy, made.batch = "1d", settings("sage").batch
    assert losses(None, as_list, made) == losses(None, rows, made)


def test_a_model_that_reads_what_the_graph_lacks_is_refused_by_name():
    with pytest.raises(UserError, match="the arcs of small carry no 'features'; what they carry: none"):
        Trainer(small(), whole("none"))


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        ("gatv2", {"features": torch.ones(9, 3)}, {"arc_features": 5}, "5 features an arc, the graph has 3."),
        ("gine", {}, {"arc_features": 2}, "an arc, the graph has 0. Train with --arc-features"),
        ("pna", {"features": torch.ones(9)}, {"arc_features": 2}, "2 features an arc, the graph has 1."),
        ("rgcn", {"type": torch.arange(9) % 3}, {"relations": 2}, "Train with --relations 3, or without it."),
        ("rgcn", {"type": torch.arange(9) * 2**40}, {}, "hold a kind 8796093022208, the graph has 9 arcs"),
        ("rgcn", {"type": (torch.arange(9) == 4) * 9}, {}, "hold a kind 9, the graph has 9 arcs. Number the"),
        ("rgcn", {"type": torch.ones(9)}, {}, "are float32, 1-dimensional. Kinds"),
        ("rgcn", {}, {}, "rgcn reads kinds of arcs, the graph has none."),
    ],
)  # fmt: skip
def test_what_arcs_carry_must_be_what_the_model_reads(model, data, options, message):
    graph = Graph.from_arcs(torch.arange(9), (torch.arange(9) + 1) % 9, 9, arc_data=data).replace(
        features=torch.ones(9, 2), labels=torch.zeros(9, dtype=torch.long), num_classes=2,
        train_mask=torch.ones(9, dtype=torch.bool),
    )  # fmt: skip
    config = RunConfig()
    config.model.name = model
    for name, value in options.items():
        setattr(config.model, name, value)
    with pytest.raises(UserError) as caught:
        Trainer(graph, config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("ranks", "relations"), [(1, 9), (3, 9), (2, 12)])
def test_as_many_kinds_as_arcs_are_read_and_more_where_they_are_named(ranks, relations):
    largest = 8 if relations == 9 else 11
    some = torch.arange(9)
    few = Graph.from_arcs(some, (some + 1) % 9, 9, arc_data={"type": some.where(some != 4, largest)})
    config = RunConfig()
    config.model.name = "rgcn"
    if relations != 9:
        config.model.relations = relations
    run_ranks(lambda comm: take_facts(config.model, few, comm), ranks, "threads")
    assert config.model.relations == relations


@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_pygs_edge_attr_may_be_a_list(kind):
    pytest.importorskip("torch_geometric")
    given = torch.arange(carrying().num_arcs) % 7
    made = RunConfig()
    made.model.name, made.train.dtype = "gatv2", "float64"
    data = to_pyg(carrying().replace(arc_data={"features": given.to(kind)}))
    assert data.edge_attr.dim() == 1
    rows = carrying().replace(arc_data={"features": given.double()[:, None]})
    assert Trainer(data, made).step(1) == Trainer(rows, made).step(1)

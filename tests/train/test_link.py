"""Links on a grid are links in one process: losses, gradients, metrics; and the words foretold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, Store, hold_out, load, normalise, open_store, write_store
from weft.train import RunConfig, Trainer
from weft.train.links import Links, decoder_of
from weft.train.tasks import check_task
from weft.train.verify import Trace, compare, serial, trace

from .graphs import config, small
from .real_ranks import link_in_turn

WAYS: dict[str, dict[str, object]] = {
    "learned, mlp, clipped": {
        "model_name": "sage", "clip_norm": 0.05, "link_embedding_width": 3, "link_pair_batch": 200,
    },
    "features alone, dot": {"model_name": "gcn", "link_decoder": "dot", "link_negatives": "random"},
    "input dropout, ratio 2": {
        "model_name": "gin", "model_input_dropout": 0.3, "link_embedding_width": 5,
        "link_negatives_per_pair": 2, "link_decoder_layers": 3,
    },
    "max, three layers": {
        "model_name": "sage", "model_aggregate": "max", "model_layers": 3, "link_embedding_width": 2,
        "link_pair_batch": 300,
    },
}  # fmt: skip
GRIDS: dict[str, tuple[int, dict[str, object]]] = {
    "1d on 5": (5, {"strategy": "1d"}),
    "halo on 3": (3, {"strategy": "halo"}),
    "2d on 6": (6, {"strategy": "2d"}),
    "3d on 8": (8, {"strategy": "3d"}),
    "a-stationary on 4": (4, {"strategy": "a-stationary"}),
    "feature on 2": (2, {"strategy": "feature"}),
}


def links(features: bool = True) -> Graph:
    """Directed, so that A and its transpose differ."""
    graph = hold_out(small(), 0.05, 0.1, seed=3)
    return graph if features else graph.replace(features=None)


def settings(parallel: dict[str, object] | None = None, **options: object) -> RunConfig:
    rest = {k: v for k, v in options.items() if not k.startswith("link_")}
    made = config(**{"dtype": "float64", "epochs": 3, "task": "link", "model_hidden": 6, **rest})
    made.link.hits = 7
    for part, given in (
        (made.link, {k[5:]: v for k, v in options.items() if k.startswith("link_")}),
        (made.parallel, parallel or {}),
    ):
        for name, value in given.items():
            assert hasattr(part, name), name
            setattr(part, name, value)
    return made


def observe(comm: Communicator | None, graph: Graph | Store, made: RunConfig) -> dict[str, Any]:
    """Three epochs; what a rank moved in each, and what was foretold of each."""
    trainer = Trainer(graph, made, comm)
    assert isinstance(trainer.task, Links)
    seen, books, foretold = Trace(), [], []
    for epoch in (1, 2, 3):
        volume = trainer.predict(epoch)
        foretold.append({phase: (w, volume.messages[phase]) for phase, w in volume.words.items()})
        with Ledger(comm) as ledger:
            seen.losses.append(trainer.step(epoch))
        lines = {phase: line for phase, line in ledger.as_dict().items() if line["words"]}
        books.append({phase: (int(x["words"]), int(x["messages"])) for phase, x in lines.items()})
        seen.gradients[epoch] = trainer.gradients()
    seen.embedding = trainer.A.layout.collect(trainer.embed())
    return {
        "trace": seen, "losses": seen.losses, "metrics": trainer.evaluate(), "books": books,
        "foretold": foretold,
    }  # fmt: skip


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_grid_learns_links_as_one_process_does_and_moves_what_was_foretold(way, grid):
    ranks, parallel = GRIDS[grid]
    alone = observe(None, links(), settings(**WAYS[way]))
    for ours in run_ranks(observe, ranks, "threads", links(), settings(parallel, **WAYS[way])):
        rows = compare(ours["trace"], alone["trace"])
        assert max(rows.values()) < 1e-9, max(rows, key=rows.__getitem__)
        assert ("gradient of embeddings, epoch 3" in rows) == ("link_embedding_width" in WAYS[way])
        assert ("gradient of decoder.weights.0, epoch 1" in rows) == (WAYS[way].get("link_decoder") != "dot")
        for name, value in alone["metrics"].items():
            assert ours["metrics"][name] == pytest.approx(value, rel=1e-9), name
        # The first epoch may also make the aggregation that is kept.
        assert ours["books"][1:] == ours["foretold"][1:]
        assert {"pull", "back", "ask", "grad"} <= ours["books"][1].keys()
    assert alone["foretold"] == [{}] * 3


def test_a_graph_without_features_learns_its_own_on_ranks_and_alone():
    made = settings(model_name="sage")
    want = observe(None, links(features=False), made)
    assert want["losses"][-1] < want["losses"][0]
    for ours in run_ranks(observe, 4, "threads", links(features=False), made):
        assert ours["losses"] == pytest.approx(want["losses"], rel=1e-9)


def test_the_first_loss_is_that_of_the_dense_equation():
    """SAGE, dropout off, the mlp decoder, in plain torch."""
    made = settings(model_name="sage", model_dropout=0.0, link_embedding_width=3)
    graph = links()
    trainer = Trainer(graph, made)
    A = normalise(graph, "mean")
    dense = torch.zeros(160, 160, dtype=torch.float64)
    dense[graph.rows, graph.indices.long()] = A.weights.double() if A.weights is not None else 1.0
    h = trainer.inputs()
    assert h.shape[1] == trainer.x.shape[1] + 3
    one, two = trainer.model.layers
    h = torch.relu(h @ one.weight_self + dense @ h @ one.weight_near + one.bias)
    h = h @ two.weight_self + dense @ h @ two.weight_near + two.bias
    batch = trainer.task.pairs.batch(1, 0)
    z = h[batch.u] * h[batch.v]
    decoder = decoder_of(trainer.model)
    (w1, w2), (b1, b2) = decoder.weights, decoder.biases
    scores = (torch.relu(z @ w1 + b1) @ w2 + b2)[:, 0]
    true, false = scores[: batch.true], scores[batch.true :]
    want = F.softplus(-true).mean() + F.softplus(false).mean()
    assert trainer.step(1) == pytest.approx(want.item(), rel=1e-6)  # A's values are float32 here


def test_embeddings_belong_to_the_vertex_and_are_not_replicated():
    def work(comm):
        trainer = Trainer(links(False), settings({"strategy": "2d"}), comm)
        learned = trainer.encoder.features.learned
        return learned.shape[0], trainer.A.layout.collect(learned)

    alone = Trainer(links(False), settings()).encoder.features.learned
    seen = run_ranks(work, 4, "threads")
    assert [rows for rows, _ in seen] == [40] * 4
    assert all(torch.equal(rows, alone) for _, rows in seen)


def test_an_embedding_gradient_that_stays_at_the_wrong_rank_is_caught(monkeypatch):
    from weft.train import links as room

    graph, made = links(), settings(link_embedding_width=3)
    alone = serial(graph, made)

    def lost(*args, **options):
        loss, dh = pair_gradients(*args, **options)
        return loss, dh.flip(0)

    pair_gradients = room.pair_gradients
    monkeypatch.setattr(room, "pair_gradients", lost)
    ours = run_ranks(lambda comm: trace(graph, made, comm), 2, "threads")[0]
    assert compare(ours, alone)["gradient of embeddings, epoch 1"] > 1e-3


def test_a_clipped_gradient_has_the_norm_asked_for():
    trainer = Trainer(links(), settings(link_embedding_width=3, clip_norm=0.001))
    trainer.step(1)
    groups = [*trainer.task.clipped(trainer.model), [trainer.encoder.features.learned]]
    assert len(groups) == 3
    for group in groups:
        norm = torch.cat([p.grad.reshape(-1) for p in group]).norm()
        assert float(norm) == pytest.approx(0.001, rel=1e-2)


def test_a_run_from_a_store_is_the_run_from_memory(tmp_path):
    store = open_store(write_store(links(), tmp_path / "g.weft"), verify=False)
    made = settings({"strategy": "halo"}, link_embedding_width=4)
    for ours, theirs in zip(
        run_ranks(observe, 3, "threads", store, made),
        run_ranks(observe, 3, "threads", links(), made),
        strict=True,
    ):
        assert ours["losses"] == theirs["losses"]
        assert ours["metrics"] == theirs["metrics"]


def test_fit_keeps_the_best_validation_epoch_and_its_embeddings():
    made = settings(epochs=15, link_embedding_width=4, link_best_by="auc", lr=0.1)
    trainer, seen = Trainer(links(), made), []
    result = trainer.fit(on_epoch=seen.append)
    best = max(seen, key=lambda r: (r["val_auc"], -r["val_loss"]))
    assert result.best_epoch == best["epoch"]
    assert result.scores == {k: best[k] for k in result.scores}
    assert result.best_epoch < 15 or len({r["val_auc"] for r in seen}) > 1
    assert set(result.as_dict()) >= {"val_hits", "val_mrr", "val_auc", "test_hits", "test_mrr", "test_auc"}


def test_a_seed_repeats_a_run_to_the_bit_and_another_does_not():
    a, b, c = (observe(None, links(), settings(seed=seed)) for seed in (0, 0, 1))
    assert a["losses"] == b["losses"] != c["losses"]


def test_cora_links_are_found(data: Path):
    made = settings(model_name="sage", model_hidden=64, model_dropout=0.0, epochs=60, lr=0.01)
    made.train.evaluate_every, made.train.dtype, made.train.weight_decay = 10, "float32", 0.0
    made.link = dataclasses.replace(made.link, best_by="auc", hits=20)
    result = Trainer(hold_out(load("cora", data), seed=0), made).fit()
    assert result.scores["test_auc"] > 0.88


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_learn_links_as_one_process_does(mpi_ranks, tmp_path, ranks):
    ways = [{"strategy": name} for name in ("1d", "halo", "2d", "3d", "a-stationary", "feature")]
    path = str(write_store(links(), tmp_path / "g.weft"))
    for serial_losses, *losses in mpi_ranks(link_in_turn, ranks, path, ways):
        assert len(losses) == len(ways)
        for loss in losses:
            assert loss == pytest.approx(serial_losses, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"link_decoder": "dott"}, "unknown decoder 'dott'. Did you mean 'dot'?"),
        ({"link_negatives": "all"}, "unknown negatives 'all'."),
        ({"link_best_by": "aux"}, "unknown best_by 'aux'. Did you mean 'auc'?"),
        ({"link_hits": 500}, "Hits@500 needs at least 500 false pairs, there are 40. Use --hits 40 or less."),
        ({"model_hidden": 10**8}, "a model of 2 layers with hidden=100000000 and 0 learned features on 160"),
        ({"link_embedding_width": 10**12}, "a model of 2 layers with hidden=6 and 1000000000000 learned"),
        ({"link_hits": 0}, "hits must be at least 1, not 0."),
        ({"link_pair_batch": -1}, "pair_batch must be at least 0, not -1."),
        ({"clip_norm": -1.0}, "clip_norm must not be negative, as -1 is. Use 0 for none."),
        ({"task": "links"}, "unknown task 'links'. Did you mean 'link'?"),
    ],
)
def test_a_mistake_is_one_line(change, message):
    with pytest.raises(UserError) as caught:
        check_task(links(), settings(**change))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_graph_without_pairs_or_arcs_is_refused():
    with pytest.raises(UserError, match="small has no val_pairs to judge by"):
        check_task(small(), settings())
    with pytest.raises(UserError, match="has no arcs to learn links from"):
        check_task(Graph.from_arcs([], [], 5), settings())

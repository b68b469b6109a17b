"""Links from samples: the same on any ranks and feed; with all neighbours, as on the whole graph."""

from __future__ import annotations

from typing import Any

import pytest

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, hold_out
from weft.parallel import Volume
from weft.train import RunConfig, Trainer
from weft.train.links import Links
from weft.train.verify import Trace, compare

from .graphs import small
from .sampled_ranks import check_words
from .test_link import links, settings

WAYS: dict[str, dict[str, object]] = {
    "sage, learned": {"model_name": "sage", "link_embedding_width": 3, "clip_norm": 0.05},
    "gcn, features": {"model_name": "gcn"},
    "sage max, both": {"model_name": "sage", "model_aggregate": "max", "link_embedding_width": 4},
    "gat, learned, clipped": {
        "model_name": "gat", "model_heads": 2, "link_embedding_width": 3, "clip_norm": 0.05,
        "model_input_dropout": 0.2,
    },
}  # fmt: skip


def sampled(
    parallel: dict[str, object] | None = None, fanouts: str = "4,3", batch: dict[str, object] | None = None,
    **options: object,
) -> RunConfig:  # fmt: skip
    made = settings(parallel, **options)
    made.batch.batch_size, made.batch.fanouts, made.batch.feed = 250, fanouts, "pull"
    for name, value in (batch or {}).items():
        setattr(made.batch, name, value)
    return made


def observe(comm: Communicator | None, graph: Graph, made: RunConfig) -> dict[str, Any]:
    """Two epochs; that they move what was foretold of each is checked here."""
    trainer = Trainer(graph, made, comm)
    seen, moved = Trace(), Volume()
    for epoch in (1, 2):
        foretold = trainer.predict(epoch)
        with Ledger(comm) as ledger:
            seen.losses.append(trainer.step(epoch))
        moved = Volume.of(ledger)
        if isinstance(comm, Communicator):
            check_words(trainer, moved, foretold)
        seen.gradients[epoch] = trainer.gradients()
    seen.embedding = trainer.A.layout.collect(trainer.embed())
    learned = trainer.encoder.features.learned
    return {
        "trace": seen, "metrics": trainer.evaluate(), "words": moved.words, "facts": trainer.facts(),
        "learned": None if learned is None else learned.shape,
    }  # fmt: skip


def check_same(ours: dict[str, Any], alone: dict[str, Any], way: str) -> None:
    rows = compare(ours["trace"], alone["trace"])
    assert max(rows.values()) < 1e-9, max(rows, key=rows.__getitem__)
    assert ("gradient of embeddings, epoch 2" in rows) == ("link_embedding_width" in WAYS[way])
    for name, value in alone["metrics"].items():
        assert ours["metrics"][name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("ranks", "strategy"), [(3, "halo"), (4, "2d")])
@pytest.mark.parametrize("parts", [False, True], ids=["all arcs", "a part each"])
def test_ranks_sample_links_as_one_process_does(way, ranks, strategy, parts, monkeypatch):
    alone = observe(None, links(), sampled(**WAYS[way]))
    if parts:
        monkeypatch.setattr("weft.train.sampled.machine_bytes", lambda: 0)
    for feed in ("pull", "push-pull"):
        made = sampled({"strategy": strategy}, batch={"feed": feed}, **WAYS[way])
        for ours in run_ranks(observe, ranks, "threads", links(), made):
            check_same(ours, alone, way)
            assert ("frontier" in ours["words"] or "sample" in ours["words"]) == parts
            assert ("push" in ours["words"]) == (feed == "push-pull")


@pytest.mark.parametrize("way", WAYS)
def test_a_pipelined_run_of_links_is_the_same_on_ranks(way):
    alone = observe(None, links(), sampled(batch={"pipeline": True}, **WAYS[way]))
    for feed in ("pull", "push-pull"):
        made = sampled({"strategy": "halo"}, batch={"feed": feed, "pipeline": True}, **WAYS[way])
        for ours in run_ranks(observe, 3, "threads", links(), made):
            check_same(ours, alone, way)
            assert ours["facts"]["pipeline"]


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
@pytest.mark.parametrize("way", ["gcn, features", "sage, learned", "gat, learned, clipped"])
def test_copies_of_arcs_and_features_change_nothing_and_what_is_learned_is_never_copied(way, feed):
    alone = observe(None, links(), sampled(**WAYS[way]))

    def copies(budget: str) -> dict[str, int]:
        made = sampled(batch={"feed": feed, "memory_budget": budget}, **WAYS[way])
        ranks = run_ranks(observe, 4, "threads", links(), made)
        for ours in ranks:
            check_same(ours, alone, way)
        return ranks[0]["facts"]["copies"]

    most = copies("10MB")
    assert (most["arcs"], most["features"]) == (4, 1 if "link_embedding_width" in WAYS[way] else 4)
    least = most["arcs_bytes"] // 4 + 4 * 160 + most["features_bytes"] // most["features"]
    fewest = copies(f"{least}B")
    assert (fewest["arcs"], fewest["features"]) == (1, 1)


def test_learned_features_lie_in_columns_under_push_pull_and_no_rank_has_all():
    """160 vertices, 8 given features and 3 learned: 4 ranks hold 3, 3, 3 and 2 of the 11 columns."""
    made = sampled(batch={"feed": "push-pull"}, **WAYS["sage, learned"])
    shapes = [tuple(ours["learned"]) for ours in run_ranks(observe, 4, "threads", links(), made)]
    assert shapes == [(160, 0), (160, 0), (160, 1), (160, 2)]
    made = sampled(batch={"feed": "pull"}, **WAYS["sage, learned"])
    assert [tuple(ours["learned"]) for ours in run_ranks(observe, 4, "threads", links(), made)] == [
        (40, 3)
    ] * 4


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_a_graph_without_features_learns_its_own_from_samples(feed):
    made = sampled(batch={"feed": feed}, model_name="sage")
    want = observe(None, links(features=False), sampled(model_name="sage"))
    for ours in run_ranks(observe, 4, "threads", links(features=False), made):
        assert max(compare(ours["trace"], want["trace"]).values()) < 1e-9


def test_auto_counts_the_bytes_of_both_feeds_for_links_too():
    graph = hold_out(small(features=64), 0.05, 0.1, seed=3)
    for hidden, best in ((2, "push-pull"), (64, "pull")):
        made = sampled(batch={"feed": "auto"}, model_name="sage", model_hidden=hidden, model_dropout=0.0)
        for ours in run_ranks(observe, 3, "threads", graph, made):
            assert ours["facts"]["feed"] == best
            assert any(f"feed      {best}:" in note for note in ours["facts"]["said"])


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_a_run_of_links_keeps_its_best_weights_and_embeddings(feed):
    """What is restored is what the best epoch was judged by, wherever weights and embeddings lie."""

    def work(comm: Communicator) -> tuple[int, dict[str, float], dict[str, float]]:
        made = sampled(batch={"feed": feed}, epochs=8, link_embedding_width=3, link_best_by="auc", lr=0.1)
        seen: list[dict[str, float]] = []
        result = Trainer(links(), made, comm).fit(on_epoch=seen.append)
        best = max(seen, key=lambda r: (r["val_auc"], -r["val_loss"]))
        return int(best["epoch"]) - result.best_epoch, result.scores, {k: best[k] for k in result.scores}

    for off, scores, best in run_ranks(work, 3, "threads"):
        assert off == 0
        assert scores == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_all_neighbours_give_the_full_graph_training(way):
    plain = WAYS[way] | ({"model_dropout": 0.0, "model_input_dropout": 0.0} if "gat" in way else {})
    whole = observe(None, links(), settings(link_pair_batch=250, **plain))
    ours = observe(None, links(), sampled(fanouts="all,all", **plain))
    rows = compare(ours["trace"], whole["trace"])
    assert max(rows.values()) < 1e-9, max(rows, key=rows.__getitem__)
    fewer = observe(None, links(), sampled(fanouts="1,1", **plain))
    assert compare(fewer["trace"], whole["trace"])["loss"] > 1e-6


def test_a_batch_larger_than_the_pairs_says_what_is_used():
    made = sampled()
    made.batch.batch_size = 10**6
    trainer = Trainer(links(), made)
    assert isinstance(trainer.task, Links)
    total = trainer.task.pairs.total
    assert f"--batch-size 1,000,000 is more than the {total:,} training pairs" in trainer.notes()[0]
    assert (trainer.facts()["batches"], trainer.facts()["batch_size"]) == (1, total)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feed": "pul"}, "unknown feed 'pul'. Did you mean 'pull'?"),
        ({"memory_budget": "1KB"}, "a memory budget of 1 kB is too small for one copy"),
        ({"batch_size": -1}, "batch_size must be at least 0, not -1."),
    ],
)
def test_a_mistake_is_one_line(change, message):
    with pytest.raises(UserError) as caught:
        Trainer(links(), sampled(batch=change))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_fan_outs_that_do_not_match_the_layers_are_refused():
    with pytest.raises(UserError, match="gives 3 of the 2 hops"):
        Trainer(links(), sampled(fanouts="4,3,2"))

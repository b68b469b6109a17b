"""Mini-batches: the same losses and gradients however they are fed, with the words foretold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, load, split, write_store
from weft.kernels import native
from weft.minibatch import STALENESS, parse_bytes, seed_reads
from weft.partition import PartitionOptions, batch_volume, partition_graph
from weft.train import Trainer
from weft.train.classes import Classes
from weft.train.config import BatchConfig
from weft.train.encoders import Passed
from weft.train.result import agrees

from .graphs import multilabel, small
from .sampled_ranks import WAYS, both_feeds, compare, observe, settings


@pytest.mark.parametrize("way", WAYS)
def test_push_pull_and_pull_give_what_one_process_gives(way):
    """13 features, which neither 3 nor 8 ranks divide."""
    graph = small(features=13)
    alone = observe(None, graph, settings(way))
    for ranks in (3, 8):
        for feed in ("pull", "push-pull"):
            for ours in run_ranks(observe, ranks, "threads", graph, settings(way, batch__feed=feed)):
                compare(ours, alone, (way, ranks, feed))


@pytest.mark.parametrize("way", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_parts_and_copies_change_nothing_but_the_words(way, feed):
    alone = observe(None, small(), settings(way))
    seen, held = {}, {}
    for budget in ("7KB", "9KB", "16KB", "10MB"):
        made = settings(way, batch__feed=feed, batch__memory_budget=budget)
        ranks = run_ranks(observe, 4, "threads", small(), made)
        for ours in ranks:
            compare(ours, alone, (way, feed, budget))
        held[budget] = max(ranks, key=lambda r: r["held"])
        copies = ranks[0]["facts"]["copies"]
        seen[budget] = (copies["arcs"], copies["features"], sum(sum(r["words"].values()) for r in ranks))
    words = [seen[budget][2] for budget in seen]
    assert seen["7KB"][0] < 4  # over parts the frontier travels
    assert all(ours["held"] <= parse_bytes(budget) for budget, ours in held.items())
    assert seen["10MB"][:2] == (4, 4)  # everything everywhere
    assert words[0] > words[-1]


@pytest.mark.parametrize("fanouts", ["4,3", "all,all"])
@pytest.mark.parametrize("method", ["hash", "metis"])
def test_pull_fetches_the_volume_of_the_hypergraph_of_what_seeds_read(tmp_path, method, fanouts):
    """Nets are input vertices, pins the seeds that read them: Σ (λ − 1) rows of 13 features, exactly."""
    graph, ranks = small(features=13), 4
    parts = partition_graph(graph, ranks, method, PartitionOptions()).numpy()
    np.save(tmp_path / "parts.npy", parts)
    made = settings("sage", batch__fanouts=fanouts, batch__feed="pull", batch__memory_budget="9KB")
    made.parallel.partition = str(tmp_path / "parts.npy")
    alone = Trainer(graph, settings("sage", batch__fanouts=fanouts))
    volume = arcs = 0
    for step in alone.task.epoch(1):
        blocks = alone.encoder.sampler.blocks(step.ids, step.noise.epoch)
        volume += batch_volume(*seed_reads(blocks), parts, ranks)
        pairs = [(b.targets.repeat_interleave(b.indptr.diff()), b.neighbours) for b in blocks]
        rows, columns = (torch.cat(each).numpy() for each in zip(*pairs, strict=True))
        arcs += batch_volume(rows, columns, parts, ranks)

    def work(comm: Communicator) -> tuple[int, int]:
        trainer = Trainer(graph, made, comm)
        with Ledger(comm) as books:
            trainer.step(1)
        return books.words("pull"), trainer.facts()["copies"]["features"]

    found = run_ranks(work, ranks, "threads")
    assert {held for _, held in found} == {1}  # no rank has copies of others' rows
    assert sum(words for words, _ in found) == 13 * volume
    assert volume != arcs  # which is what a hop's arcs would say


def test_more_ranks_than_features_leaves_some_without_a_column():
    alone = observe(None, small(), settings("sage"))
    for ours in run_ranks(observe, 11, "threads", small(), settings("sage", batch__feed="push-pull")):
        compare(ours, alone, "11 ranks, 8 features")


def test_targets_of_two_ranks_may_be_one_vertex_without_the_native_kernels_too(monkeypatch):
    """Push-pull of attention labels the blocks of all ranks, one below the other."""
    monkeypatch.setattr(native, "extension", None)
    alone = observe(None, small(), settings("gat"))
    for ours in run_ranks(observe, 2, "threads", small(), settings("gat", batch__feed="push-pull")):
        compare(ours, alone, "torch's kernels")


def test_any_partition_places_rows_and_seeds(tmp_path):
    np.save(tmp_path / "parts.npy", np.arange(160) % 2 * 2)  # rank 1 of 3 owns nothing
    alone = observe(None, small(), settings("sage"))
    for feed in ("pull", "push-pull"):
        made = settings("sage", batch__feed=feed, parallel__partition=str(tmp_path / "parts.npy"))
        for ours in run_ranks(observe, 3, "threads", small(), made):
            compare(ours, alone, feed)


def test_many_labels_and_a_grid_for_evaluation():
    alone = observe(None, multilabel(), settings("sage"))
    made = settings("sage", batch__feed="push-pull", parallel__strategy="2d")
    for ours in run_ranks(observe, 4, "threads", multilabel(), made):
        compare(ours, alone, "multilabel")


@pytest.mark.filterwarnings("ignore:.* does not read weights:weft.errors.Note")
@pytest.mark.parametrize("weighted", [False, True])
def test_full_neighbourhoods_in_one_batch_are_full_batch_training(weighted):
    """The truth: what the whole graph gives."""
    graph = small()
    if weighted:
        g = torch.Generator().manual_seed(0)
        graph = graph.replace(weights=0.5 + torch.rand(graph.num_arcs, generator=g, dtype=torch.float64))
    for way in WAYS:
        hops = "all,all,all" if way == "gcn" else "all,all"
        more = {"model__attention_dropout": 0.0} if way == "va" else {}
        made = settings(way, batch__fanouts=hops, batch__batch_size=10**6, model__dropout=0.0, **more)
        made.batch.replace, made.model.input_dropout = False, 0.0
        ours = Trainer(graph, made)
        made.batch = BatchConfig()
        full = Trainer(graph, made)
        assert (ours.encoder.name, full.encoder.name) == ("pull", "whole")
        for epoch in (1, 2, 3):
            assert ours.step(epoch) == pytest.approx(full.step(epoch), rel=1e-9)
        assert ours.evaluate()["test_accuracy"] == full.evaluate()["test_accuracy"]


def test_the_words_of_push_pull_follow_from_the_blocks_of_all_ranks():
    """Counted here from a sampler that knows everything, not from what the feed says of itself."""
    ranks, width = 3, 6
    made = settings("sage", batch__feed="push-pull", model__dropout=0.0)
    whole = Trainer(small(), made)
    batches, sampler = whole.task.steps, whole.encoder.sampler
    owner = run_ranks(lambda comm: Trainer(small(), made, comm).encoder.owners, ranks, "threads")[0].find(
        torch.arange(160)
    )[0]
    targets = [0] * ranks
    for number in range(batches):
        seeds = whole.task.step(1, number).ids
        for rank in range(ranks):
            share = seeds[owner[seeds] == rank]
            targets[rank] += sampler.blocks(share, number)[0].targets.numel()

    def work(comm: Communicator) -> dict[str, int]:
        trainer = Trainer(small(), made, comm)
        with Ledger(comm) as books:
            trainer.step(1)
        return {phase: books.words(phase) for phase in books.phases}

    for rank, words in enumerate(run_ranks(work, ranks, "threads")):
        others = sum(targets) - targets[rank]
        assert words["push"] == others + (ranks - 1) * batches  # the targets, and how many
        assert words["pull"] == targets[rank] * width * (ranks - 1)
        assert words["errors"] < others * width  # zeros stay at home
        assert words["bits"] >= others * width / 32


def test_the_weights_follow_the_recurrence_of_the_pipeline():
    """w_{t+1} = w_t − α ∇f_t(w_{t−3}), step by step, with gradients that an unpipelined trainer gives."""
    more: dict[str, Any] = {
        "batch__batch_size": 7,
        "train__optimizer": "sgd",
        "train__weight_decay": 0.0,
        "train__lr": 0.3,
    }
    plain = settings("sage", **more)
    late = Trainer(small(), settings("sage", batch__pipeline=True, **more))
    fresh = Trainer(small(), plain)

    def gradient(trainer: Trainer, number: int, weights: list[Tensor]) -> list[Tensor]:
        """∇f of one batch at these weights."""
        with torch.no_grad():
            for p, w in zip(trainer.encoder.live.parameters(), weights, strict=True):
                p.copy_(w)
        found: list[Tensor] = []

        def keep(passed: Passed) -> None:
            found.extend(p.grad.clone() for p in passed.model.parameters())

        trainer.encoder.run([trainer.task.step(1, number)], keep)
        return found

    w = [[p.detach().clone() for p in fresh.model.parameters()]]
    for t in range(fresh.task.steps):
        stale = w[max(0, t - STALENESS)]
        w.append([p - 0.3 * g for p, g in zip(w[t], gradient(fresh, t, stale), strict=True)])
    assert fresh.task.steps == 7  # more than are in flight
    late.step(1)
    for ours, theirs in zip(late.model.parameters(), w[-1], strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    # Without the pipeline there is no delay: the recurrence with w_t itself.
    now = Trainer(small(), plain)
    now.step(1)
    w = [w[0]]
    for t in range(fresh.task.steps):
        w.append([p - 0.3 * g for p, g in zip(w[t], gradient(fresh, t, w[t]), strict=True)])
    for ours, theirs, delayed in zip(now.model.parameters(), w[-1], late.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
        assert not torch.allclose(ours, delayed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", ["sage", "gat", "gin", "agnn", "va"])
def test_a_pipelined_run_is_the_same_on_ranks(way):
    alone = observe(None, small(), settings(way, batch__pipeline=True))
    for feed in ("pull", "push-pull"):
        made = settings(way, batch__feed=feed, batch__pipeline=True)
        for ours in run_ranks(observe, 3, "threads", small(), made):
            compare(ours, alone, feed)


def test_auto_takes_the_feed_that_moves_fewer_bytes_and_says_so():
    for hidden, best in ((2, "push-pull"), (64, "pull")):
        made = settings("sage", model__hidden=hidden, model__dropout=0.0)
        assert made.batch.feed == "auto"
        for ours in run_ranks(observe, 3, "threads", small(), made):
            assert ours["facts"]["feed"] == best
            assert any(f"feed      {best}:" in note and "MB a batch" in note for note in ours["notes"])
        asked = {}
        for feed in ("pull", "push-pull"):
            made = settings("sage", model__hidden=hidden, model__dropout=0.0, batch__feed=feed)
            asked[feed] = sum(ours["bytes"] for ours in run_ranks(observe, 3, "threads", small(), made))
        assert min(asked, key=lambda feed: asked[feed]) == best


def test_a_run_trains_keeps_its_best_weights_and_reports():
    def work(comm: Communicator) -> tuple[Any, ...]:
        made = settings("sage", batch__feed="push-pull", train__epochs=8)
        trainer = Trainer(small(), made, comm)
        result = trainer.fit()
        return result.loss, result.accuracy, result.gather(trainer)

    loss, accuracy, summary = run_ranks(work, 2, "threads")[0]
    assert loss[-1] < loss[0]
    assert accuracy["test"] > 0.5
    assert agrees(summary["words"], summary["predicted_words"])
    assert summary["words"].keys() == summary["predicted_words"].keys() >= {"push", "pull", "bits", "errors"}
    assert summary["feed"] == "push-pull"
    assert (summary["batches"], summary["batch_size"]) == (3, 19)


def test_a_batch_larger_than_the_training_set_says_what_is_used():
    trainer = Trainer(small(), settings("sage", batch__batch_size=5000))
    assert isinstance(trainer.task, Classes)
    assert trainer.task.batch_size == trainer.task.counts["train"] == 48
    assert any("--batch-size 5,000 is more than the 48 training vertices" in note for note in trainer.notes())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"batch__fanouts": "25"},
            "--fanouts 25 gives 1 of the 2 hops that the model takes. Use --fanouts 25,10, or --layers 1.",
        ),
        ({"batch__feed": "pul"}, "unknown feed 'pul'. Did you mean 'pull'?"),
        ({"batch__batch_size": -3}, "batch_size must be at least 0, not -3."),
        ({"batch__memory_budget": "1KB"}, "a memory budget of 1 kB is too small for one copy"),
        ({"batch__memory_budget": "much"}, "memory budget 'much' is not a size. Write --memory-budget 2GB"),
        ({"train__optimizer": "adafactor"}, "adafactor needs whole weights"),
    ],
)
def test_a_mistake_is_one_line(more, message):
    with pytest.raises(UserError) as caught:
        Trainer(small(), settings("sage", **more))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_give_the_same_by_both_feeds(mpi_ranks, tmp_path, ranks):
    """13 features, which no number of ranks here divides; replicated arcs, and one part of them a rank."""
    store = str(write_store(small(features=13), tmp_path / "g.weft"))
    assert mpi_ranks(both_feeds, ranks, store, list(WAYS)) == list(range(ranks))


# Accuracy


def accuracy(graph: Graph, batches: bool = True, **more: Any) -> float:
    """Test accuracy of GraphSAGE 32 wide, evaluated exactly, with the weights of the best validation."""
    made = settings("sage", train__dtype="float32", train__evaluate_every=2, **more)
    made.model.hidden, made.batch.fanouts = 32, "25,10"
    if not batches:
        made.batch = BatchConfig()
    return Trainer(graph, made).fit().accuracy["test"]


def learn_alike(graph: Graph, full: dict[str, Any], batches: dict[str, Any]) -> None:
    """Sampled within a point of full batch; pipelined within a point of that, in the same epochs."""
    best = accuracy(graph, False, **full)
    sampled, late = accuracy(graph, **batches), accuracy(graph, batch__pipeline=True, **batches)
    assert best > 0.9  # something was learned
    assert sampled > best - 0.01
    assert late > sampled - 0.01


@pytest.mark.slow
def test_sampling_and_the_pipeline_learn_as_well_as_full_batch_on_the_planted_graph():
    batches = {"batch__batch_size": 200, "train__epochs": 60, "train__lr": 0.01}
    learn_alike(load("sbm"), {"train__epochs": 150, "train__lr": 0.01}, batches)


@pytest.mark.slow
def test_sampling_and_the_pipeline_learn_as_well_as_full_batch_on_coauthor_cs(data: Path):
    """Gradients three steps old want a smaller step: at lr 0.01 the pipeline swings (docs/log.md).

    Of the 6,805 words the thousand that most authors use: the rest costs six times the minutes.
    """
    whole = load("coauthor_cs", data)
    words = whole.features.count_nonzero(dim=0).argsort(descending=True, stable=True)[:1000]
    graph = split(whole.replace(features=whole.features[:, words].contiguous()), 0.6, 0.2, seed=0)
    batches = {"batch__batch_size": 1000, "train__epochs": 24, "train__lr": 0.005}
    learn_alike(graph, {"train__epochs": 120, "train__lr": 0.01}, batches)

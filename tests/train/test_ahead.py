"""Pull with rows kept between batches: identical results, and the fewest words, foretold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from weft.cli import main
from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import hold_out, write_store
from weft.minibatch import plan_fetches
from weft.train import Trainer

from .graphs import small
from .sampled_ranks import kept, observe, settings


def ways(**more: Any) -> Any:
    return settings("sage", batch__feed="pull", batch__batch_size=8, **more)


@pytest.mark.parametrize(
    ("ranks", "more"),
    [(2, {}), (5, {}), (3, {"batch__pipeline": True}), (3, {"batch__memory_budget": "9KB"})],
)
def test_rows_that_are_kept_change_nothing_but_the_words(ranks, more):
    """To the bit: the same rows in the same places. `observe` checks the foretold words."""
    plain = run_ranks(observe, ranks, "threads", small(), ways(**more), 1)
    words = [sum(r["words"].get("pull", 0) for r in plain)]
    for cache in ("5%", "100%"):
        found = run_ranks(observe, ranks, "threads", small(), ways(batch__cache=cache, **more), 1)
        for ours, theirs in zip(found, plain, strict=True):
            assert ours["losses"] == theirs["losses"]
            for key in ("gradients", "weights"):
                assert all(torch.equal(ours[key][name], theirs[key][name]) for name in theirs[key])
            assert ours["facts"]["cache"] == int(160 * float(cache[:-1]) / 100)
        words.append(sum(r["words"].get("pull", 0) for r in found))
    assert words == sorted(words, reverse=True)
    assert words[-1] < words[0]


def test_the_words_are_the_fewest_that_the_room_allows():
    """Counted here from a sampler that knows everything."""
    ranks, width = 3, 8
    made = ways(batch__cache="10%")

    def work(comm: Communicator) -> tuple[dict[str, int], torch.Tensor]:
        trainer = Trainer(small(), made, comm)
        with Ledger(comm) as books:
            trainer.step(1)
        return {p: books.words(p) for p in books.phases}, trainer.A.layout.blocks.parts

    found = run_ranks(work, ranks, "threads")
    whole, owner = Trainer(small(), settings("sage", batch__feed="pull", batch__batch_size=8)), found[0][1]
    for rank, (words, _) in enumerate(found):
        reads = []
        for number, step in enumerate(whole.task.epoch(1)):
            share = step.ids[owner[step.ids] == rank]
            reads.append(whole.encoder.sampler.blocks(share, number)[0].sources)
        schedule = plan_fetches(reads, [owner[r.long()] != rank for r in reads], 16)
        assert schedule.distinct < schedule.fetched < schedule.read
        assert words["pull"] == schedule.fetched * width
        assert words["ask"] < schedule.fetched + 3 * ranks * len(reads) + words["pull"]


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_plans_the_rest():
    def work(comm: Communicator) -> list[bool]:
        whole, half = (Trainer(small(), ways(batch__cache="10%"), comm) for _ in range(2))
        whole.train(whole.task.epoch(1))
        half.train(half.task.epoch(1, most=2))
        half.train(half.task.epoch(1, first=2))
        pairs = zip(whole.model.parameters(), half.model.parameters(), strict=True)
        return [torch.equal(a, b) for a, b in pairs]

    assert all(all(same) for same in run_ranks(work, 3, "threads"))


@pytest.mark.slow
def test_real_ranks_keep_rows_too(mpi_ranks, tmp_path):
    store = str(write_store(small(features=13), tmp_path / "g.weft"))
    assert mpi_ranks(kept, 3, store, ["sage", "gcn", "gat"]) == [0, 1, 2]


def test_one_rank_has_everything_and_keeps_nothing():
    assert "cache" not in observe(None, small(), ways(batch__cache="10%"))["facts"]


def test_learned_features_are_not_kept():
    made = ways(batch__cache="10%", train__task="link")
    made.link.embedding_width = 3
    graph = hold_out(small(), 0.05, 0.1, 0)
    with pytest.raises(UserError, match="learned features change with every step"):
        run_ranks(lambda comm: Trainer(graph, made, comm), 2, "threads")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batch-size 9 --cache 10%", "feed auto does not read cache, pull does."),
        ("--batch-size 9 --feed push-pull --cache 10%", "feed push-pull does not read cache, pull does."),
        ("--cache 10% --feed pull", "is for mini-batches, the whole graph is in every step here."),
        ("--batch-size 9 --feed pull --cache 0%", "cache '0%' is no share above 0% up to 100%."),
        ("--batch-size 9 --feed pull --cache much", "cache 'much' is not a size. Write --cache 2GB"),
        ("--batch-size 9 --feed pull --cache 3 --ranks 2 --engine threads", "has no room for one row of"),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert main(["train", "sbm:nodes=300,classes=3", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1

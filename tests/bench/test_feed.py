"""What pull and push-pull move, at the size of the paper's example."""

from __future__ import annotations

import pytest

from weft.bench.feed import Task, bench_feed, finite
from weft.errors import UserError


@pytest.mark.slow
def test_push_pull_moves_a_sixth_of_pull_on_a_million_vertices():
    """GraphSAGE 100-16-16, fan-outs 25 and 10, 1000 seeds, 4 ranks, without the help of dropout.

    bench_feed itself asserts that every rank received the words that were predicted.
    """
    task = Task([16], 1000, "25,10", "sage", dropout=0.0, batches=2, rounds=1)
    result = bench_feed("kronecker:scale=20,degree=16", [100], [4], task, "threads")
    assert result["vertices"] >= 1_000_000
    pull, push = result["rows"]
    assert (pull["feed"], push["feed"]) == ("pull", "push-pull")
    assert push["bytes"] <= pull["bytes"] / 6


def test_crossings_read_as_words():
    assert [finite(c, 256) for c in (None, 0.0, 17.2)] == ["above 256", "always", "18"]


def test_an_epoch_shorter_than_asked_for_is_measured_as_it_is():
    task = Task([2], 1000, "3,2", "sage", dropout=0.0, batches=5, rounds=1)
    rows = bench_feed("er:nodes=60,degree=4", [4], [2], task, "threads")["rows"]
    for row in rows:
        assert row["batches"] == 1
        assert row["batch_size"] <= 60
        assert row["seeds_per_second"] * row["seconds"] == pytest.approx(row["batch_size"])


def test_one_rank_has_nothing_to_compare():
    task = Task([2], 10, "3,2", "sage", dropout=0.0, batches=1, rounds=1)
    with pytest.raises(UserError, match="Use --ranks 2 or more"):
        bench_feed("er:nodes=60,degree=4", [4], [1, 2], task, "threads")

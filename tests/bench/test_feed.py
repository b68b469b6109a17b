"""What pull and push-pull move, at the size of the paper's example."""

from __future__ import annotations

import pytest

from weft.bench.feed import Task, bench_feed, finite


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
    assert [finite(c) for c in (None, 0.0, 17.2)] == ["never", "always", "18"]

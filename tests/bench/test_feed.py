"""What pull and push-pull move, at the size of the paper's example."""

from __future__ import annotations

import json
import threading

import pytest
import torch

from weft.bench import cache
from weft.bench.feed import Task, bench_feed, finite
from weft.bench.ranks import furnished
from weft.cli import bench_feed as command
from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import load, write_store


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


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Data sets without features: one in a file of arcs, one in a store with labels and a split."""
    drawn = load("er:nodes=60,degree=4,features=3,classes=5,directed=true")
    write_store(drawn, tmp_path / "mine.weft")
    lines = [f"{u} {v}\n" for v in range(60) for u in drawn.indices[drawn.indptr[v] : drawn.indptr[v + 1]]]
    (tmp_path / "arcs.txt").write_text("".join(lines))
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    return drawn


@pytest.mark.parametrize("graph", ["arcs", "mine", "karate", "er:nodes=60,degree=4", "er"])
def test_any_graph_is_given_features_of_the_width_that_is_measured(files, graph):
    found = furnished(graph, 4, 7)
    assert found.num_features == 4
    assert found.labels is not None
    assert found.train_mask is not None
    assert torch.equal(found.features, furnished(graph, 4, 7).features)
    if graph == "mine":  # what it brings says which vertices are seeds
        assert torch.equal(found.train_mask, files.train_mask)
        assert (found.num_classes, found.num_arcs) == (5, files.num_arcs)


@pytest.mark.parametrize("graph", ["arcs", "mine", "karate"])
def test_real_graphs_are_measured_as_generated_ones(files, graph):
    task = Task([2], 20, "3,2", "sage", dropout=0.0, batches=1, rounds=1)
    result = bench_feed(graph, [4, 6], [2], task, "threads")
    assert [row["features"] for row in result["rows"]] == [4, 4, 6, 6]
    assert all(row["bytes"] > 0 for row in result["rows"])
    kept = cache.bench_cache(graph, 4, 2, ["20%"], cache.Task(20, "3,2", "sage", 2, "random"), "threads")
    assert [row["vertices"] for row in kept] == [result["vertices"]] * 2


def test_a_graph_that_is_not_there_is_one_line(files):
    with pytest.raises(UserError, match=r"unknown graph 'arc'\. Did you mean 'arcs'\?"):
        furnished("arc", 4)


SMALL = ["--features", "3,5", "--hidden", "2", "--batch-size", "20", "--batches", "1", "--rounds", "1",
         "--fanouts", "3,2", "--dropout", "0"]  # fmt: skip


@pytest.fixture
def job(monkeypatch):
    """run(arguments) on three virtual ranks that believe to be mpirun's."""
    here = threading.local()
    monkeypatch.setattr("weft.comm.in_job", lambda: True)
    monkeypatch.setattr("weft.comm.connect", lambda *_: here.comm)

    def work(comm, arguments):
        here.comm = comm
        return command.run(arguments)

    return lambda *arguments: run_ranks(work, 3, "threads", list(arguments))


def test_ranks_that_somebody_started_are_joined_and_move_the_same(files, job, capsys):
    assert job("mine", *SMALL, "--json") == [0] * 3
    joined = json.loads(capsys.readouterr().out)
    task = Task([2], 20, "3,2", "sage", dropout=0.0, batches=1, rounds=1)
    started = bench_feed("mine", [3, 5], [3], task, "threads")
    for key in ("ranks", "features", "hidden", "feed", "bytes", "messages", "by_phase"):
        assert [row[key] for row in joined["rows"]] == [row[key] for row in started["rows"]], key
    assert joined["crossings"] == started["crossings"]
    assert joined.keys() == started.keys()


def test_joined_ranks_are_nobody_elses_to_count_and_share_a_mistake(files, job):
    with pytest.raises(UserError, match="these ranks were started by somebody else already"):
        job("mine", *SMALL, "--ranks", "2")
    with pytest.raises(UserError, match=r"unknown graph 'min'\. Did you mean 'mine'\?"):
        job("min", *SMALL)

"""The four ways to run batches, on virtual ranks: the same losses, and every row there."""

from __future__ import annotations

import json
import threading

import pytest

from weft.cli import bench_pipeline, main
from weft.comm import run_ranks
from weft.errors import UserError

SMALL = ["--batch-size", "40", "--batches", "2", "--rounds", "1", "--hidden", "4", "--fanouts", "3,2"]


def test_a_row_for_each_way_and_losses_that_do_not_depend_on_who_draws(capsys):
    words = "--ranks 2 --engine threads"
    graph = "sbm:nodes=200,classes=3,features=5"
    assert main(["bench", "pipeline", graph, *words.split(), *SMALL, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["pipeline"], r["prefetch"]) for r in rows] == [(False, 0), (False, 2), (True, 0), (True, 2)]
    assert all(r["drawing"] > 0 and r["seconds"] > 0 for r in rows)
    assert rows[0]["waiting"] >= rows[0]["drawing"]  # who draws when the batch begins waits for all of it


@pytest.fixture
def job(monkeypatch):
    """run(arguments) on three virtual ranks that believe to be mpirun's."""
    here = threading.local()
    monkeypatch.setattr("weft.comm.in_job", lambda: True)
    monkeypatch.setattr("weft.comm.connect", lambda *_: here.comm)

    def work(comm, arguments):
        here.comm = comm
        return bench_pipeline.run(arguments)

    return lambda *arguments: run_ranks(work, 3, "threads", list(arguments))


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_ranks_that_somebody_started_are_joined_and_the_first_tells_once(job, capsys, feed):
    graph = "sbm:nodes=200,classes=3,features=5"
    assert job(graph, *SMALL, "--feed", feed, "--json") == [0] * 3
    told = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in told["rows"]] == [3] * 4
    assert all(row["seconds"] > 0 for row in told["rows"])
    assert told["engine"] == "threads"


def test_joined_ranks_are_nobody_elses_to_count_and_share_a_mistake(job):
    with pytest.raises(UserError, match=r"these ranks were started by somebody else already"):
        job("karate", "--ranks", "2")
    with pytest.raises(UserError, match=r"unknown graph 'karte'\. Did you mean 'karate'\?"):
        job("karte")


def test_a_feed_that_is_not_known_is_one_line(capsys):
    assert main(["bench", "pipeline", "--feed", "pul"]) == 2
    assert "unknown feed 'pul'. Did you mean 'pull'?" in capsys.readouterr().err

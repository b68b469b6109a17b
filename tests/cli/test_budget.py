"""`--memory-budget` on the whole graph, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

from weft.cli import main

TRAIN = ["train", "sbm:nodes=6001,features=250,degree=6", "--epochs", "2", "--hidden", "12", "--ranks", "2",
         "--engine", "threads"]  # fmt: skip


def test_a_run_from_files_is_the_run_in_memory_and_predicts_from_files_too(capsys):
    assert main([*TRAIN, "--out", "plain", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*TRAIN, "--out", "tight", "--memory-budget", "3MB", "--json"]) == 0
    tight = json.loads(capsys.readouterr().out)
    assert tight["file_bytes"] > 2 * 3001 * 250 * 4  # features, and A X, of two ranks
    assert tight["loss"] == plain["loss"]
    assert tight["test_accuracy"] == plain["test_accuracy"]
    assert tight["words"] == tight["predicted_words"] == plain["words"] != {}
    for run in ("plain", "tight"):  # the budget stands in the run's config.toml
        assert main(["predict", run, "--ranks", "2", "--engine", "threads", "--json"]) == 0
        capsys.readouterr()
    rows = [Path(f"{run}/predictions/embeddings.npy").read_bytes() for run in ("plain", "tight")]
    assert rows[0] == rows[1]


def test_a_budget_below_the_arcs_is_one_line(capsys):
    assert main([*TRAIN, "--memory-budget", "10KB"]) == 2
    err = capsys.readouterr().err
    assert "a memory budget of 10 kB is too small: the arcs of a rank take" in err
    assert err.count("\n") == 1

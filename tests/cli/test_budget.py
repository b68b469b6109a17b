"""`--memory-budget` on the whole graph, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft import memory, paged
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


@pytest.mark.parametrize(
    "batches", [[], ["--batch-size", "90", "--fanouts", "4,4"]], ids=["whole", "batches"]
)
@pytest.mark.parametrize("model", ["gcn", "sage", "sgc"])
def test_inference_from_files_gives_the_bits_of_inference_in_memory(model, batches, capsys, monkeypatch):
    monkeypatch.setattr(memory, "_LARGE", 256)
    monkeypatch.setattr(paged, "PIECE", 4096)
    made: list[int] = []
    make = paged.Paged.make
    monkeypatch.setattr(paged.Paged, "make", lambda size: (made.append(size), make(size))[1])
    train = ["train", "sbm:nodes=301,features=150,degree=6", "--epochs", "1", "--ranks", "1"]
    batches = [*batches, *([] if model == "sgc" else ["--hidden", "12"])]
    assert main([*train, "--model", model, *batches, "--out", "r"]) == 0
    for ranks, budget, more in (("1", "100KB", []), ("3", "45KB", ["--strategy", "halo"])):
        words = ["predict", "r", "--ranks", ranks, "--engine", "threads", *more]
        assert main([*words, "--into", f"plain{ranks}"]) == 0
        assert not made
        assert main([*words, "--memory-budget", budget, "--into", f"tight{ranks}"]) == 0
        assert made  # files
        made.clear()
        for name in ("embeddings.npy", "classes.npy"):
            assert np.array_equal(np.load(f"plain{ranks}/{name}"), np.load(f"tight{ranks}/{name}")), name

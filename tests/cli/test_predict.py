from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli import main


def test_train_on_ranks_then_predict_on_others(capfd):
    train = ["train", "sbm:nodes=301,features=8", "--epochs", "3", "--hidden", "6", "--out", "r", "--json"]
    assert main([*train, "--ranks", "2", "--trace", "t.json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["ranks"] == 2
    assert summary["words"] == summary["predicted_words"] != {}
    assert {"spmm", "dense", "waiting"} <= summary["time"].keys()
    assert json.loads(Path("t.json").read_text())["traceEvents"]
    assert main(["predict", "r", "--ranks", "3", "--strategy", "halo", "--json"]) == 0
    capfd.readouterr()
    assert main(["predict", "r", "--ranks", "1", "--into", "alone"]) == 0
    capfd.readouterr()
    assert main(["predict", "r", "--ranks", "2", "--memory", "10kB", "--into", "small"]) == 0
    capfd.readouterr()
    for name in ("embeddings.npy", "classes.npy"):
        one = np.load(f"alone/{name}")
        assert one.shape[0] == 301
        for other in ("r/predictions", "small"):
            np.testing.assert_allclose(one, np.load(f"{other}/{name}"), atol=1e-5)
    for words, message in (
        ("--memory 100", "bytes; 100 may be used. Allow more."),
        ("--memory much", "memory 'much' is not a size. Write --memory 2GB, or 500MB."),
        ("--memory-budget much", "memory budget 'much' is not a size. Write --memory-budget 2GB, or 500MB."),
        ("--memory 1GB --strategy 2d", "layer by layer, rows are cut by --partition alone."),
    ):
        assert (
            main(
                ["predict", "r", "--ranks", "1", *words.split(), "--into", words.strip("-").replace(" ", "")]
            )
            == 2
        )
        err = capfd.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert main(["predict", "r", "--ranks", "1"]) == 2
    assert "r/predictions exists already" in capfd.readouterr().err
    assert main(["predict", "r", "karate", "--ranks", "2", "--into", "other"]) == 2
    assert "8 features, the graph has 34" in capfd.readouterr().err


@pytest.mark.parametrize("model", ["gat", "agnn", "va"])
def test_attention_is_trained_and_used_on_any_ranks(model, capsys):
    train = ["train", "sbm:nodes=101,features=8", "--epochs", "2", "--hidden", "6", "--out", "r", "--json"]
    heads = ["--heads", "3", "--attention-dropout", "0.5"] if model == "gat" else []
    here = ["--dtype", "float64", "--engine", "threads"]
    assert main([*train, "--model", model, *heads, *here, "--ranks", "4", "--strategy", "a-stationary"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["words"] == summary["predicted_words"] != {}
    for ranks, strategy in (("1", "1d"), ("4", "2d")):
        assert main(["predict", "r", "--ranks", ranks, "--strategy", strategy, "--into", strategy]) == 0
    for name in ("embeddings.npy", "classes.npy"):
        one, four = np.load(f"1d/{name}"), np.load(f"2d/{name}")
        assert one.shape[0] == 101
        np.testing.assert_allclose(one, four, atol=1e-12)

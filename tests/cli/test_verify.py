from __future__ import annotations

import json

import pytest

from weft.cli import main

SMALL = ["sbm:nodes=211,features=8", "--epochs", "3", "--hidden", "6", "--dtype", "float64"]


@pytest.mark.parametrize("strategy", ["1d", "halo", "2d", "feature"])
def test_equal_runs_say_so_in_json(strategy, capsys):
    options = ["--ranks", "4", "--engine", "threads", "--strategy", strategy, "--json"]
    assert main(["verify", *SMALL, *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["equal"] is True
    assert set(answer["max_relative_difference"]) == {"loss", "gradient", "embedding"}
    assert max(answer["max_relative_difference"].values()) < 1e-9


def test_different_runs_exit_with_1(capsys, monkeypatch):
    from weft.train import verify

    monkeypatch.setitem(verify.TOLERANCE, "float64", -1.0)  # nothing is that equal
    assert main(["verify", *SMALL, "--ranks", "2", "--engine", "threads"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERS" in out
    assert "NOT equal" in out


def test_real_ranks_verify_and_a_wrong_grid_is_one_line(capfd):
    assert main(["verify", *SMALL, "--ranks", "3", "--strategy", "a-stationary"]) == 0
    assert "equal to the serial run within 1e-09: a-stationary on 3 ranks" in capfd.readouterr().out
    assert main(["verify", *SMALL, "--ranks", "4", "--strategy", "2d", "--grid", "3x2"]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "4 ranks were given as 3x2" in err


@pytest.mark.parametrize(
    ("model", "strategy"), [("gat", "a-stationary"), ("agnn", "2d"), ("va", "halo"), ("gat", "feature")]
)
def test_attention_is_verified_with_all_its_dropout(model, strategy, capsys):
    dropouts = ["--attention-dropout", "0.4", "--input-dropout", "0.2"]
    dropouts += ["--heads", "3"] if model == "gat" else []
    options = ["--ranks", "4", "--engine", "threads", "--model", model, "--strategy", strategy, "--json"]
    assert main(["verify", *SMALL, *dropouts, *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["equal"] is True
    assert max(answer["max_relative_difference"].values()) < 1e-9

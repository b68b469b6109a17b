"""weft train: the run folder, --json, repeated runs, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch

from weft.graph import write_store
from weft.nn import ModelConfig, build

from ..train.graphs import multilabel, small
from .conftest import ONE_RANK

QUICK = ["--epochs", "8", "--hidden", "8", "--lr", "0.05"]
KEYS = {
    "loss", "train_accuracy", "val_accuracy", "test_accuracy", "epoch_seconds", "strategy", "grid",
    "exchange", "ranks", "words", "messages", "predicted_words", "peak_rss_bytes",
}  # fmt: skip
"""DESIGN, section 7."""


@pytest.fixture(autouse=True)
def graph() -> None:
    write_store(small(), "small.weft")


def weights(run: str) -> dict[str, torch.Tensor]:
    return torch.load(Path(run) / "weights.pt", weights_only=True)


def lines(run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def same_run(a: str, b: str) -> bool:
    aside = ("seconds", "rss_bytes", "at")  # what no seed decides
    untimed = [[{k: v for k, v in line.items() if k not in aside} for line in lines(run)] for run in (a, b)]
    ours, theirs = weights(a), weights(b)
    alike = ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    return alike and untimed[0] == untimed[1]


# What is printed


def test_json_is_one_object_on_standard_output_and_nothing_else(weft):
    answer = weft("train", "small.weft", *QUICK, "--json")
    assert answer.status == 0
    assert answer.out.count("\n") == 1
    result = json.loads(answer.out)
    assert result.keys() >= KEYS
    assert len(result["loss"]) == 8
    assert all(0 <= result[f"{split}_accuracy"] <= 1 for split in ("train", "val", "test"))
    assert (result["strategy"], result["grid"], result["ranks"]) == ("1d", [1, 1, 1], 1)
    assert len(result["peak_rss_bytes"]) == 1
    assert result["epoch_seconds"] > 0
    assert result["run"] == "runs/small-gcn-1"
    saved = json.loads(Path("runs/small-gcn-1/summary.json").read_text())
    assert saved == result


def test_json_writes_what_is_unknown_as_null(weft):
    write_store(small().replace(test_mask=None), "untested.weft")
    answer = weft("train", "untested.weft", *QUICK, "--json")
    assert "NaN" not in answer.out
    assert json.loads(answer.out)["test_accuracy"] is None


def test_people_read_the_graph_the_model_the_accuracy_and_the_folder(weft):
    answer = weft("train", "small.weft", *QUICK, "--layers", "3", "--log-every", "8")
    headings = [line.split()[0] for line in answer.out.splitlines() if not line.startswith(" ")]
    assert headings == ["graph", "model", "set", "epoch", "epoch", "accuracy", "epochs", "memory", "run"]
    assert "160 vertices" in answer.out
    assert "gcn 8-8-8-4, float32" in answer.out
    assert "(chance 0.250)" in answer.out
    assert "\nepoch     8/8   loss " in answer.out  # nobody watches: a line, and no bar
    assert answer.err == ""


def test_many_labels_are_told_as_micro_f1(weft):
    write_store(multilabel(), "many.weft")
    answer = weft("train", "many.weft", *QUICK)
    assert "micro-F1" in answer.out
    assert "chance" not in answer.out


def test_a_loss_that_explodes_is_one_line(weft):
    answer = weft("train", "small.weft", "--lr", "1e30", "--optimizer", "sgd", "--out", "run")
    assert answer.status == 2
    assert answer.err.count("\n") == 1
    assert "Lower --lr, now 1e+30," in answer.err
    assert not Path("run/weights.pt").exists()
    assert Path("run/metrics.jsonl").exists()  # how it went can be read there


# What is kept


def test_a_run_folder_holds_config_metrics_weights_and_summary(weft):
    assert weft("train", "small.weft", *QUICK, "--model", "sage", "--out", "deep/run").status == 0
    names = sorted(path.name for path in Path("deep/run").iterdir())
    assert names == ["config.toml", "measured.json", "metrics.jsonl", "summary.json", "weights.pt"]
    assert [line["epoch"] for line in lines("deep/run")] == list(range(1, 9))
    model = build(ModelConfig(name="sage", hidden=8), inputs=8, outputs=4)
    model.load_state_dict(weights("deep/run"))
    config = tomllib.loads(Path("deep/run/config.toml").read_text())
    assert (config["model"]["name"], config["train"]["epochs"]) == ("sage", 8)


def test_the_config_of_a_run_repeats_it_to_the_bit(weft):
    settings = "--model gin --seed 9 --dropout 0.3 --input-dropout 0.1 --scheduler cosine --optimizer sgd"
    more = ["--set", "train.optimizer_options.momentum=0.5", "--out", "first"]
    assert weft("train", "small.weft", *QUICK, *settings.split(), *more).status == 0
    assert weft("train", "first/config.toml").status == 0
    assert weft("train", "first/config.toml", "--out", "third").status == 0
    assert weft("train", "first/config.toml", "--out", "other", "--seed", "10").status == 0
    assert same_run("first", "runs/small-gin-1")
    assert same_run("first", "third")
    assert not same_run("first", "other")


def test_a_graph_without_split_is_split_by_shares_or_counts(weft):
    bare = small().replace(train_mask=None, val_mask=None, test_mask=None)
    write_store(bare, "bare.weft")
    rows = {
        name: json.loads(weft("train", "bare.weft", *QUICK, *words, "--json").out)["loss"][0]
        for name, words in {
            "default": [], "same": ["--train-share", "0.6"], "seed": ["--seed", "1"],
            "counts": ["--train-share", "10", "--val-share", "40"],
        }.items()
    }  # fmt: skip
    assert rows["default"] == rows["same"]
    assert len(set(rows.values())) == 3
    answer = weft("train", "bare.weft", *QUICK, "--train-share", "0.9", "--val-share", "0.9")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "train=0.9 and val=0.9" in answer.err


def test_threads_are_set_as_asked(weft):
    before = torch.get_num_threads()
    try:
        answer = weft("train", "small.weft", *QUICK, "--threads", "2")
        assert "2 threads" in answer.out
    finally:
        torch.set_num_threads(before)


# Ctrl-C


def test_ctrl_c_in_an_epoch_saves_the_run_and_exits_with_130(weft, monkeypatch):
    from weft.train.run import RunFolder

    record = RunFolder.record

    def third_is_last(folder: RunFolder, metrics: dict[str, float]) -> None:
        record(folder, metrics)
        if metrics["epoch"] == 3:
            raise KeyboardInterrupt

    words = ["small.weft", "--hidden", "8", "--keep-weights", "last"]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "record", third_is_last)
        answer = weft("train", *words, "--epochs", "50", "--out", "run")
    assert answer.status == 130
    assert "3, stopped by Ctrl-C" in answer.out
    assert weft("train", *words, "--epochs", "3", "--out", "whole").status == 0
    assert same_run("run", "whole")
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["interrupted"], len(summary["loss"])) == (True, 3)


def test_sigint_ends_a_real_process_cleanly_with_its_weights_kept():
    # A shell that runs tests in the background has them ignore SIGINT, and children inherit that.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["train", "small.weft", "--epochs", "100000000", "--out", "run", "--json", *ONE_RANK]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        metrics, deadline = Path("run/metrics.jsonl"), time.monotonic() + 120
        while not (metrics.exists() and "\n" in metrics.read_text()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no metrics in two minutes"
            time.sleep(0.01)  # between two looks
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    result = json.loads(out)
    assert result["interrupted"]
    assert 0 < len(result["loss"]) < 100000000
    build(ModelConfig(), inputs=8, outputs=4).load_state_dict(weights("run"))


def test_an_edge_lists_columns_are_named_in_the_config_too(weft, tmp_path):
    from weft.cli.ranks import load_graph
    from weft.train.config import RunConfig

    (tmp_path / "g.csv").write_text("0,1,0.5,7\n1,2,1.5,8\n")
    config = RunConfig()
    config.data.graph, config.data.arc_columns = "g.csv", "_,kind"
    assert load_graph(config).arc_data["kind"].tolist() == [7, 8]
    answer = weft("train", "karate", "--epochs", "1", "--arc-columns", "time")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "names the columns of an edge list, karate is none" in answer.err

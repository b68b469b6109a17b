from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

QUICK = ["karate", "--epochs", "4", "--hidden", "8", "--hits", "3", "--evaluate-every", "2", "--seeds", "2"]


def test_every_seed_has_its_row_and_the_mean_is_theirs(weft):
    answer = weft("bench", "link", *QUICK, "--json", "--records", "log.jsonl")
    assert answer.status == 0
    result = json.loads(answer.out)
    assert [row["seed"] for row in result["rows"]] == [0, 1]
    aucs = [row["test_auc"] for row in result["rows"]]
    assert aucs[0] != aucs[1]
    assert result["test_auc"] == {"mean": statistics.fmean(aucs), "sd": pytest.approx(statistics.stdev(aucs))}
    lines = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert [(line["seed"], line.get("epoch")) for line in lines] == [
        (0, 2), (0, 4), (0, None), (1, 2), (1, 4), (1, None)
    ]  # fmt: skip


def test_a_row_is_what_weft_train_gives(weft):
    row = json.loads(weft("bench", "link", *QUICK, "--json").out)["rows"][1]
    settings = ["--seed", "1", "--lr", "0.005", "--weight-decay", "0", "--clip-norm", "1", "--model", "sage"]
    train = weft("train", *QUICK[:-2], "--task", "link", *settings, "--json")
    result = json.loads(train.out)
    assert {k: row[k] for k in ("test_auc", "test_mrr", "best_epoch")} == {
        k: result[k] for k in ("test_auc", "test_mrr", "best_epoch")
    }


def test_people_see_a_line_per_seed_and_the_spread(weft):
    out = weft("bench", "link", *QUICK).out
    assert "seed 1: val Hits@3" in out
    assert "test_auc" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "node"], "bench link measures --task link, not node."),
        (["--ranks", "2"], "bench link runs in one process."),
        (["--seeds", "0"], "--seeds must be at least 1, not 0."),
        (["--records", "there.jsonl"], "there.jsonl exists already."),
    ],
)
def test_a_mistake_is_one_line(weft, words, message):
    Path("there.jsonl").touch()
    answer = weft("bench", "link", *QUICK, *words)
    assert answer.status == 2
    assert answer.err.startswith(f"weft: {message}")
    assert answer.err.count("\n") == 1

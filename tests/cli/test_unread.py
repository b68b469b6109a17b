"""An option that the run does not read is refused: one line that names both, exit status 2."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from weft.cli import main
from weft.nn import MODELS, GCNLayer, register

LINES = [
    ("train karate --heads 8 --attention-dropout 0.6", "model gcn does not read heads, gat, gatv2 and"),
    ("train karate --heads 1", "Leave out --heads, or use --model gat."),
    ("train karate --model agnn --slope 0.2", "model agnn does not read slope, gat and gatv2 do."),
    ("train karate --set model.aggregate=max", "model gcn does not read aggregate, sage does."),
    ("train karate --model gat --normalise none", "model gat does not read normalise, gcn, sage, gin"),
    ("train karate --model va --form besta", "model va does not read form, agnn does."),
    ("train karate --task link --train-share 0.6", "task link does not read train_share, node does."),
    ("train karate --hold-val 0.05", "task node does not read hold_val, link does."),
    ("train karate --task node --best-by mrr", "task node does not read best_by, link does."),
    ("train karate --task link --batch-size 9 --pair-batch 9", "pair_batch is for steps over the whole"),
    ("train karate --epsilon 0.1", "partition random does not read epsilon, metis, hypergraph, stochastic"),
    ("train karate --partition metis --preset auto", "partition metis does not read preset, hypergraph"),
    ("train karate --feed auto", "feed is for mini-batches, the whole graph is in every step here."),
    (
        "train karate --set train.scheduler_options.gamma=0.5",
        "scheduler none does not read scheduler_options, {'gamma': 0.5} were given.",
    ),
    ("predict runs/mine --out there", "Leave out --out. Where to write is --into DIR."),
    ("predict runs/mine --epochs 5", "weft predict does not read epochs. Leave out --epochs."),
    ("predict runs/mine --rank-logs", "weft predict does not read rank_logs."),
    ("predict runs/mine --batch-size 5", "weft predict does not read batch_size."),
    ("verify karate --out runs/mine", "weft verify does not read out. Leave out --out."),
    ("plan karate --trace t.json", "weft plan does not read trace. Leave out --trace."),
    ("verify karate --aggregate mean", "model gcn does not read aggregate, sage does."),
    ("verify karate --epsilon 0.03", "partition random does not read epsilon"),
    ("bench link karate --model gcn --heads 2", "model gcn does not read heads, gat, gatv2 and"),
    ("bench link karate --batch-size 5 --pair-batch 2", "pair_batch is for steps over the whole graph"),
    ("bench epoch --model sage --heads 1", "model sage does not read heads, gat, gatv2 and"),
    ("bench attention -m agnn,va --heads 1", "models agnn and va do not read heads, gat, gatv2 and"),
    ("partition karate --parts 2 --method random --epsilon 0.03", "method random does not read epsilon"),
    ("partition karate --parts 2 --method block --seed 0", "method block does not read seed, random"),
    (
        "partition karate --parts 2 --method metis,hash --theta 0.1",
        "methods metis and hash do not read theta, stochastic does. "
        "Leave out --theta, or use --method stochastic.",
    ),
    ("bench grids karate --method random,hash --epsilon 0.1", "methods random and hash do not read epsilon"),
    ("bench partition karate --method metis --preset quality", "method metis does not read preset"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), LINES)
def test_it_is_refused_in_one_line(weft, words, message):
    answer = weft(*words.split())
    assert answer.status == 2
    assert message in answer.err
    assert answer.err.startswith("weft: ")
    assert answer.err.count("\n") == 1
    assert not list(Path().iterdir())


def test_one_of_several_methods_that_reads_it_is_enough(weft):
    assert (
        weft("partition", "karate", "--parts", "2", "--method", "random,metis", "--epsilon", "0.1").status
        == 0
    )


def test_predict_refuses_what_the_run_does_not_read_and_forgets_what_its_parts_did(weft):
    words = ["--epochs", "1", "--ranks", "2", "--engine", "threads", "--hidden", "4"]
    assert main(["train", "karate", *words, "--partition", "metis", "--epsilon", "0.2", "--out", "r"]) == 0
    assert "epsilon = 0.2" in Path("r/config.toml").read_text()
    answer = weft("predict", "r", "--heads", "1")
    assert answer.status == 2
    assert "model gcn does not read heads, gat, gatv2 and" in answer.err
    answer = weft("predict", "r", "--partition", "random", "--epsilon", "0.2")
    assert answer.status == 2
    assert "partition random does not read epsilon" in answer.err
    assert weft("predict", "r", "--partition", "random").status == 0
    # The serial run that verify compares with has parts of its own.
    words = ["--partition", "metis", "--epsilon", "0.2", "--ranks", "2", "--engine", "threads"]
    assert weft("verify", "karate", *words, "--epochs", "2").status == 0


def test_the_file_of_a_run_has_no_foreign_settings_and_repeats_it(weft):
    assert (
        weft("train", "karate", "--model", "sage", "--aggregate", "max", "--epochs", "2", "--out", "r").status
        == 0
    )
    text = Path("r/config.toml").read_text()
    assert 'aggregate = "max"' in text
    assert "heads" not in text
    assert "[link]" not in text
    assert weft("train", "r/config.toml", "--out", "again").status == 0
    assert Path("again/config.toml").read_text() == text
    answer = weft("train", "r/config.toml", "--model", "gcn")
    assert answer.status == 2
    assert "model gcn does not read aggregate, sage does." in answer.err


def test_help_says_who_reads_an_option(weft):
    words = " ".join(weft("train", "--help").out.split())
    assert "Slope of the LeakyReLU below 0. (gat, gatv2; 0.2)" in words
    assert "in [0, 1). (gat, gatv2, transformer, agnn, va; 0)" in words


@dataclass
class Options:
    reach: int = 2
    """How far it reaches."""
    gentle: bool = False
    """Whether it is gentle."""
    slope: float = 0.5


def test_a_model_of_a_script_brings_its_options_to_the_command_line(weft, monkeypatch):
    seen = []

    def make(config, own, widths):
        seen.append(own)
        return [GCNLayer(a, b) for a, b in pairwise(widths)], "gcn"

    monkeypatch.setitem(MODELS, "mine", MODELS["gcn"])
    register("mine", make, Options)
    words = " ".join(weft("train", "--help").out.split())
    assert "--reach N How far it reaches. (mine; 2)" in words
    assert "Whether it is gentle. (mine; no)" in words
    assert "below 0. (gat 0.2, gatv2 0.2, mine 0.5)" in words
    answer = weft(
        "train", "karate", "--model", "mine", "--reach", "5", "--gentle", "--epochs", "1", "--out", "r"
    )
    assert answer.status == 0
    assert seen[-1] == Options(5, True)
    assert weft("predict", "r", "--ranks", "1").status == 0
    assert seen[-1] == Options(5, True)
    answer = weft("train", "karate", "--reach", "5")
    assert "model gcn does not read reach, mine does." in answer.err

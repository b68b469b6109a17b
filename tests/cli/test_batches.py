"""Mini-batches from the command line: runs, mistakes, benchmarks. Nothing here looks at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli import main

GRAPH = "sbm:nodes=300,classes=3,features=10"
QUICK = ["--model", "sage", "--hidden", "8", "--epochs", "3", "--batch-size", "13", "--fanouts", "5,3"]


@pytest.fixture
def train(capsys):
    """`weft train` on the ranks that it is told to take: exit status and what was printed."""

    def call(*words):
        capsys.readouterr()
        status = main(["train", GRAPH, *words])
        return status, *capsys.readouterr()

    return call


@pytest.mark.parametrize("feed", ["pull", "push-pull", "auto"])
def test_a_run_in_batches_reports_its_words_and_an_exact_evaluation(weft, train, feed):
    status, out, err = train( *QUICK, "--feed", feed, "--ranks", "3", "--engine", "threads", "--json",
                  "--out", "run")  # fmt: skip
    assert status == 0, err
    result = json.loads(out)
    assert result["ranks"] == 3
    words, foretold = result["words"], result["predicted_words"]
    assert words.keys() == foretold.keys()
    for phase in words.keys() - {"errors"}:
        assert words[phase] == foretold[phase]
    if "errors" in words:  # those behind the ReLU that are 0 stay at home: how many, nobody knows before
        assert all(came < most for came, most in zip(words["errors"], foretold["errors"], strict=True))
    assert ("errors" in words) == (result["feed"] == "push-pull")
    assert result["feed"] == feed or feed == "auto"
    assert result["batch_size"] == 13
    assert result["fanouts"] == [5, 3]
    assert 0 < result["test_accuracy"] <= 1
    # The weights are whole: predict does the same full-graph pass.
    answer = weft("predict", "run", "--ranks", "1", "--json")
    assert answer.status == 0, answer.err
    assert Path("run/predictions/classes.npy").exists()
    assert "batch_size = 13" in Path("run/config.toml").read_text()


def test_a_pipelined_run_within_a_budget_says_what_it_holds(train):
    status, out, err = train(*QUICK, "--pipeline", "--memory-budget", "19KB", "--ranks", "3", "--engine",
                             "threads", "--feed", "pull")  # fmt: skip
    assert status == 0, err
    assert "pull feed, pipelined; a rank holds 2 parts of arcs and 1 of features" in out
    assert ", as predicted" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fanouts", "25"], "gives 1 of the 2 hops that the model takes. Use --fanouts 25,10"),
        (["--memory-budget", "100B"], "is too small for one copy"),
        (["--feed", "both"], "unknown feed 'both'"),
        (["--fanouts", "25,x"], "fan-out 'x' in '25,x' is not a number from 1, nor all."),
        (["--fanouts", "99999999999999999999,2"], "is above 2,147,483,647. Write all for every neighbour."),
        (["--replace", "--fanouts", "2000000000,5"], "2,000,000,000 draws for each of 13 vertices"),
        (["--batch-size", "0", "--fanouts", "25,10"], "fanouts is for mini-batches"),
        (["--batch-size", "0"], "fanouts is for mini-batches, the whole graph is in every step here."),
    ],
)
def test_a_mistake_is_one_line_and_status_2(weft, options, message):
    answer = weft("train", GRAPH, *QUICK, *options, "--ranks", "1")
    assert answer.status == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_verify_compares_batches_with_those_of_one_process(weft, feed):
    answer = weft("verify", GRAPH, *QUICK, "--feed", feed, "--ranks", "3", "--engine", "threads", "--dtype",
                  "float64", "--memory-budget", "17KB", "--json")  # fmt: skip
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["equal"]


def test_sampling_is_measured_beside_numpy(weft):
    answer = weft("bench", "sample", "kronecker:scale=8,degree=8,features=6,classes=3", "--batch-size", "20",
                  "--rounds", "2", "--threads", "1", "--json")  # fmt: skip
    assert answer.status == 0, answer.err
    result = json.loads(answer.out)
    (row,) = result["sampling"]
    assert row["ratio"] == pytest.approx(row["weft_seeds"] / row["numpy_seeds"])
    assert result["training"][0]["seeds"] > 0
    answer = weft("bench", "sample", "kronecker:scale=8,degree=8", "--batch-size", "20", "--rounds", "1")
    assert "sampled seeds/s" in answer.out


def test_the_numpy_sampler_gives_blocks_like_ours():
    """The contender of the benchmark does the same work: sizes of rows, each source once, targets first."""
    import numpy as np
    import torch

    from weft.bench.sample import NumpySampler
    from weft.graph import load
    from weft.minibatch import Reads, Sampler, Topology

    graph = load("kronecker:scale=8,degree=12")
    seeds = torch.arange(0, 256, 9)
    ours = Sampler(Topology.read(graph, Reads("mean")), [5, 4], seed=0).blocks(seeds, 0)[::-1]
    theirs = NumpySampler(graph.indptr.numpy(), graph.indices.numpy(), [5, 4]).blocks(seeds.numpy())
    assert np.array_equal(theirs[0][1], ours[0].indptr.numpy())
    for (sources, indptr, local), targets in zip(theirs, [seeds.numpy(), theirs[0][0]], strict=True):
        assert np.array_equal(sources[: len(targets)], targets)
        assert len(set(sources.tolist())) == len(sources)
        for i, v in enumerate(targets):
            row = sources[local[indptr[i] : indptr[i + 1]]]
            neighbours = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
            assert set(row.tolist()) <= set(neighbours)
            assert len(set(row.tolist())) == len(row)


def test_feeds_are_measured_side_by_side(weft):
    answer = weft("bench", "feed", "kronecker:scale=8,degree=8", "--features", "4,16", "--hidden", "2,32",
                  "--ranks", "2", "--batch-size", "40", "--rounds", "1", "--batches", "1",
                  "--engine", "threads", "--json", "--plot", "feed.png")  # fmt: skip
    assert answer.status == 0, answer.err
    result = json.loads(answer.out)
    cost = {(r["features"], r["hidden"], r["feed"]): r["bytes"] for r in result["rows"]}
    assert cost[16, 2, "push-pull"] < cost[16, 2, "pull"]
    assert cost[4, 32, "push-pull"] > cost[4, 32, "pull"]
    assert {c["features"] for c in result["crossings"]} == {4, 16}
    assert Path("feed.png").stat().st_size > 10_000
    answer = weft("bench", "feed", "kronecker:scale=6,degree=4,features=3", "--engine", "threads")
    assert answer.status == 2
    assert "names its features" in answer.err


def test_bench_cache_shows_the_fewest_and_what_they_save(weft):
    words = ["kronecker:scale=7,degree=8", "--features", "10", "--batch-size", "8", "--budgets", "5%,100%"]
    answer = weft("bench", "cache", *words, "--ranks", "3", "--engine", "threads", "--json")
    assert answer.status == 0, answer.err
    none, some, all_ = json.loads(answer.out)["rows"]
    assert (none["room"], some["room"], all_["room"]) == (0, 6, 128)
    assert none["rows"] > some["rows"] > all_["rows"] == all_["distinct"]
    assert some["rows"] == some["fewest"]
    assert all_["less"] == none["words"] / all_["words"] > some["less"] > none["less"] == 1.0


def test_bench_cache_draws_and_refuses(weft):
    words = ["kronecker:scale=6,degree=4", "--features", "4", "--budgets", "10%", "--ranks", "2"]
    answer = weft("bench", "cache", *words, "--engine", "threads", "--plot", "cache.svg")
    assert answer.status == 0, answer.err
    assert "words as foretold" in answer.out
    assert Path("cache.svg").exists()
    for more, message in (
        (["--budgets", "x%"], "cache 'x%' is no share"), (["--ranks", "1"], "on one rank nothing travels"),
        (["--engine", "pigeon"], "unknown engine 'pigeon'"),
    ):  # fmt: skip
        answer = weft("bench", "cache", *words, "--engine", "threads", *more)
        assert answer.status == 2
        assert message in answer.err

"""weft train --task link, verify and predict with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.comm.threads import single
from weft.graph import load, open_store, write_store
from weft.graph.links import hold_out
from weft.train.predict import read_run, restore_links

LINK = ["--task", "link", "--hits", "3", "--epochs", "6", "--hidden", "8", "--engine", "threads"]
KEYS = {
    "loss", "val_hits", "val_mrr", "val_auc", "test_hits", "test_mrr", "test_auc", "epoch_seconds",
    "strategy", "grid", "ranks", "words", "messages", "predicted_words", "peak_rss_bytes",
}  # fmt: skip


def test_train_reports_the_links_it_found(weft):
    answer = weft("train", "karate", *LINK)
    assert answer.status == 0
    assert "4 edges to validate, 8 to test" in answer.out
    assert "Hits@3" in answer.out


def test_json_has_the_metrics_and_the_run_its_files(weft):
    answer = weft("train", "karate", *LINK, "--json", "--embedding-width", "5", "--out", "mine")
    result = json.loads(answer.out)
    assert result.keys() >= KEYS
    assert "test_accuracy" not in result
    assert np.load("mine/embeddings.npy").shape == (34, 5)
    lines = [json.loads(line) for line in Path("mine/metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    assert {"val_auc", "val_loss", "test_hits"} <= lines[-1].keys()
    again = weft("train", "mine/config.toml", "--json", "--out", "again")
    assert json.loads(again.out)["loss"] == result["loss"]


def test_words_on_ranks_are_as_predicted(weft):
    from weft.cli import main

    assert main(["train", "karate", *LINK, "--ranks", "4", "--strategy", "2d", "--out", "r"]) == 0
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["words"] == summary["predicted_words"]
    assert {"ask", "pull", "back"} <= summary["words"].keys()


def test_verify_compares_links_with_the_serial_run(weft):
    words = [*LINK, "--ranks", "3", "--strategy", "halo", "--dtype", "float64", "--embedding-width", "3"]
    answer = weft("verify", "karate", *words, "--json")
    result = json.loads(answer.out)
    assert answer.status == 0
    assert result["equal"]
    assert "gradient of embeddings, epoch 6" in result["differences"]


@pytest.mark.parametrize("ending", ["txt", "npy"])
@pytest.mark.parametrize("ranks", ["1", "3"])
def test_predict_scores_the_pairs_of_a_file(weft, ending, ranks):
    weft("train", "karate", *LINK, "--embedding-width", "4", "--out", "mine")
    pairs = np.array([[0, 33], [5, 2], [5, 2], [33, 0], [7, 7]])
    np.save("pairs.npy", pairs) if ending == "npy" else np.savetxt("pairs.txt", pairs, fmt="%d")
    answer = weft("predict", "mine", "--pairs", f"pairs.{ending}", "--ranks", ranks, "--json")
    assert answer.status == 0
    scores = np.load("mine/predictions/scores.npy")
    trainer = restore_links(hold_out(load("karate")), read_run(Path("mine")), None)
    import torch

    with torch.no_grad():
        want = trainer.task.score(torch.from_numpy(pairs), trainer.encode, trainer.model).numpy()
    assert np.allclose(scores, want, rtol=1e-4)
    assert scores[1] == scores[2]
    assert scores[0] == pytest.approx(scores[3], rel=1e-5)  # a score has no direction
    assert np.load("mine/predictions/embeddings.npy").shape == (34, 8)


def test_predict_takes_the_ids_of_the_source(weft):
    lines = [f"{10 * u + 7} {10 * v + 7}" for u, v in _karate_edges()]
    Path("g.txt").write_text("# Undirected graph\n" + "\n".join(lines) + "\n")
    weft("train", "g.txt", *LINK, "--out", "mine")
    Path("p.txt").write_text("7 17\n")
    assert weft("predict", "mine", "--pairs", "p.txt").status == 0
    ids = np.load("mine/predictions/ids.npy")
    assert ids[1] == 17
    Path("q.txt").write_text("7 18\n")
    answer = weft("predict", "mine", "--pairs", "q.txt", "--into", "other")
    assert answer.status == 2
    assert "no vertex of the graph has the id 18" in answer.err
    assert not Path("other").exists()


def _karate_edges() -> list[tuple[int, int]]:
    graph = load("karate")
    return [(u, v) for u, v in zip(graph.indices.tolist(), graph.rows.tolist(), strict=True) if u < v]


def test_a_store_keeps_the_pairs_that_it_came_with(weft):
    write_store(hold_out(load("karate"), seed=8), "k.weft")
    answer = weft("train", "k.weft", *LINK, "--json", "--out", "mine")
    assert answer.status == 0
    assert open_store("k.weft").num_pairs("test_pairs") == 8
    assert "val_pairs" in weft("info", "k.weft").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "links"], "unknown task 'links'. Did you mean 'link'?"),
        (["--task", "link", "--decoder", "dott"], "unknown decoder 'dott'. Did you mean 'dot'?"),
        (["--task", "link"], "Hits@20 needs at least 20 false pairs, there are 4. Use --hits 4 or less."),
        (
            ["--task", "link", "--hold-val", "0.9"],
            "hold_val=0.9 and hold_test=0.1 leave no arcs",
        ),
    ],
)
def test_a_mistake_is_one_line(weft, words, message):
    answer = weft("train", "karate", *words)
    assert answer.status == 2
    assert answer.err.startswith(f"weft: {message}")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0 99\n", "pairs: vertex id 99 is out of range for 34 vertices (0 to 33). Correct the id."),
        (None, "no file p.txt. Check the path."),
        ("zero one\n", "holds no pairs. Give two vertices a line."),
    ],
)
def test_a_bad_pairs_file_is_one_line(weft, content, message):
    weft("train", "karate", *LINK, "--out", "mine")
    if content is not None:
        Path("p.txt").write_text(content)
    answer = weft("predict", "mine", "--pairs", "p.txt")
    assert answer.status == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("mine/predictions").exists()


def test_pairs_are_for_runs_that_predict_links(weft):
    weft("train", "karate", "--epochs", "2", "--out", "mine")
    Path("p.txt").write_text("0 1\n")
    answer = weft("predict", "mine", "--pairs", "p.txt")
    assert answer.status == 2
    assert "--pairs needs a run of --task link" in answer.err


def test_another_graph_is_scored_over_all_its_arcs(weft):
    options = ["--task", "link", "--epochs", "2", "--hidden", "4", "--hits", "3", "--ranks", "1"]
    spec = "sbm:nodes=60,features=6,classes=2"
    assert weft("train", f"{spec},seed=0", *options, "--out", "mine").status == 0
    other = f"{spec},seed=5"
    for ranks in ("1", "2"):
        answer = weft(
            "predict", "mine", other, "--ranks", ranks, "--engine", "threads", "--into", f"p{ranks}"
        )
        assert answer.status == 0, answer.err
    with torch.no_grad():
        trainer = restore_links(load(other), read_run(Path("mine")), single())
        whole = trainer.embed().numpy()
    assert np.allclose(np.load("p1/embeddings.npy"), whole, atol=1e-6)
    assert np.allclose(np.load("p2/embeddings.npy"), whole, atol=1e-6)


def test_what_was_held_out_stays_out(weft):
    weft("train", "karate", "--task", "link", "--epochs", "1", "--hits", "2", "--ranks", "1", "--out", "mine")
    answer = weft("predict", "mine", "--seed", "4")
    assert answer.status == 2
    assert "seed chose the edges that the run was judged by; it is 0 for good. Leave it out." in answer.err


def test_an_array_that_is_no_list_of_pairs_is_one_line(weft):
    weft("train", "karate", "--task", "link", "--epochs", "1", "--hits", "2", "--ranks", "1", "--out", "mine")
    np.save("x.npy", np.int64(7))
    answer = weft("predict", "mine", "--pairs", "x.npy")
    assert answer.status == 2
    assert answer.err.count("\n") == 1

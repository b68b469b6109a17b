"""weft convert: round trips into the store."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.graph import load, split

from .test_generate import same


def test_any_graph_keeps_all_it_has(weft):
    answer = weft("convert", "karate", "club.weft")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == "club.weft: 34 vertices, 156 arcs, 34 features, 2 classes\n"
    assert same(load("club.weft"), load("karate"))
    assert weft("convert", "club.weft", "again.weft").status == 0
    assert same(load("again.weft"), load("karate"))


@pytest.mark.parametrize("name", ["g.txt", "g.csv", "g.tsv", "g.mtx", "g.npz"])
def test_every_format_becomes_the_same_store(weft, tmp_path, name):
    arcs = [(0, 1), (0, 2), (2, 1), (3, 3), (1, 3)]
    mark = {"g.csv": ",", "g.tsv": "\t"}.get(name, " ")
    if name == "g.npz":
        np.savez(name, indptr=[0, 2, 3, 4, 5], indices=[1, 2, 3, 1, 3])
    elif name == "g.mtx":
        body = "".join(f"{a + 1} {b + 1}\n" for a, b in arcs)
        (tmp_path / name).write_text(f"%%MatrixMarket matrix coordinate pattern general\n4 4 5\n{body}")
    else:
        (tmp_path / name).write_text("".join(f"{a}{mark}{b}\n" for a, b in arcs))
    assert weft("convert", name, "out.weft").status == 0
    graph = load("out.weft")
    assert sorted(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True)) == sorted(arcs)


def test_undirected_adds_the_reverse_of_every_arc(weft, tmp_path):
    (tmp_path / "g.txt").write_text("0 1\n1 2\n")
    assert weft("convert", "g.txt", "out.weft", "--undirected").status == 0
    assert load("out.weft").is_symmetric
    assert load("out.weft").num_arcs == 4


def test_features_labels_and_a_split_are_added(weft, tmp_path):
    (tmp_path / "g.txt").write_text("".join(f"{v} {(v + 1) % 10}\n" for v in range(10)))
    x, y = np.random.default_rng(0).normal(size=(10, 3)), np.arange(10) % 2
    np.save("x.npy", x)
    np.save("y.npy", y.astype(np.uint16))
    words = "g.txt out.weft --features x.npy --labels y.npy --split 2,0.2 --seed 7"
    answer = weft("convert", *words.split())
    assert answer.out == "out.weft: 10 vertices, 10 arcs, 3 features, 2 classes\n"
    graph = load("out.weft")
    assert torch.equal(graph.features, torch.from_numpy(x))
    assert graph.labels.tolist() == y.tolist()
    wanted = split(graph.replace(train_mask=None, val_mask=None, test_mask=None), 2, 0.2, seed=7)
    assert same(graph, wanted)
    assert [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [4, 2, 4]


def test_many_labels_may_be_zeros_and_ones_of_any_type(weft):
    flags = np.arange(34 * 3).reshape(34, 3) % 2
    for kind in (np.int8, np.float32, bool, ">i4"):
        np.save("y.npy", flags.astype(kind))
        assert weft("convert", "karate", f"{np.dtype(kind).name}.weft", "--labels", "y.npy").status == 0
        graph = load(f"{np.dtype(kind).name}.weft")
        assert graph.multilabel
        assert graph.labels.long().tolist() == flags.tolist()


def test_named_columns_of_an_edge_list_are_stored_and_mirrored(weft, tmp_path):
    (tmp_path / "g.csv").write_text("0,1,0.5,7\n1,2,1.5,8\n")
    answer = weft("convert", "g.csv", "out.weft", "--arc-columns", "weight,kind", "--undirected")
    assert answer.out.endswith("0 classes, arc data kind int64 4\n")
    graph = load("out.weft")
    assert (graph.weights.tolist(), graph.arc_data["kind"].tolist()) == ([0.5, 0.5, 1.5, 1.5], [7, 7, 8, 8])
    assert weft("convert", "out.weft", "again.weft").status == 0
    assert same(load("again.weft"), graph)


@pytest.mark.filterwarnings("default::weft.errors.Note")
@pytest.mark.parametrize("columns", ["features,time,type", "weight,features,features", "_,_,features"])
def test_an_edge_lists_features_train_a_model_over_arcs(weft, columns):
    """From the text to an epoch: a list of whole numbers is one feature an arc."""
    rng = np.random.default_rng(2)
    arcs, numbers = np.unique(rng.integers(30, size=(290, 2)), axis=0), rng.normal(size=290)
    rows = zip(arcs, numbers, rng.integers(5, size=290), strict=False)
    Path("e.csv").write_text("".join(f"{a},{b},{x:.3f},{k},{k}\n" for (a, b), x, k in rows))
    np.save("x.npy", rng.normal(size=(30, 4)))
    np.save("y.npy", np.arange(30) % 3)
    named = ("--arc-columns", columns)
    answer = weft("convert", "e.csv", "g.weft", *named, "--features", "x.npy", "--labels", "y.npy")
    assert (answer.status, answer.err) == (0, "")
    told = {"features,time,type": "float64 240, time", "weight,features,features": "int64 240x2\n"}
    assert f"arc data features {told.get(columns, 'int64 240')}" in answer.out
    answer = weft("train", "g.weft", "--model", "gatv2", "--epochs", "1", "--json", "--out", "run")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["loss"][0] > 0
    assert ("weft: gatv2 does not read weights: the arcs of e have" in answer.err) == ("weight" in columns)
    config = tomllib.loads(Path("run/config.toml").read_text())
    assert config["model"]["arc_features"] == (2 if columns.startswith("weight") else 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("g.csv o.weft --arc-columns time", "4 columns in '0,1,0.5,7'. Give 3: source, target, time."),
        ("g.csv o.weft --arc-columns weight,weight", "arc column 'weight' is named twice: an arc has one"),
        ("g.csv o.weft --arc-columns time,", "arc data cannot be named ''."),
        (
            "karate o.weft --arc-columns time",
            "of an edge list, karate is none. Leave it out.",
        ),
    ],
)
def test_wrong_columns_are_one_line(weft, tmp_path, words, message):
    (tmp_path / "g.csv").write_text("0,1,0.5,7\n1,2,1.5,8\n")
    answer = weft("convert", *words.split())
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert message in answer.err
    assert not (tmp_path / "o.weft").exists()


def test_several_files_within_a_memory_and_bad_lines_left_out(weft, tmp_path):
    (tmp_path / "a.txt").write_text("0 1\n1 2\nx 2\n")
    (tmp_path / "b.txt").write_text("2 0\n")
    answer = weft("convert", "a.txt", "b.txt", "g.weft", "--memory", "8GB", "--skip-bad")
    assert (answer.status, answer.err) == (0, "")
    assert "3 arcs" in answer.out
    assert "1 lines left out, the first: a.txt, line 3: id 'x' is not a whole number." in answer.out
    assert load("g.weft").indices.tolist() == [2, 0, 1]
    (tmp_path / "n.tsv").write_text("who\twhom\nann lee\tbob\n")
    assert weft("convert", "n.tsv", "n.weft", "--text-ids", "--header").status == 0
    names = load("n.weft").vertex_data["name"]
    assert [bytes(row.tolist()).rstrip(b"\0") for row in names] == [b"ann lee", b"bob"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("a.txt karate g.weft", "karate cannot be converted together with others. Convert it alone."),
        ("karate g.weft --memory 4GB", "--memory is for files that are read piece by piece, not for karate."),
        ("a.txt g.weft --memory many", "--memory takes a size such as 4GB, not 'many'."),
        ("a.txt g.weft --header", "--header is for --text-ids"),
        ("a.txt g.weft --split 0.5,0.2", "there are no labels to split. Give some with --labels."),
        ("a.txt g.weft --scratch no/where", "no folder no/where for scratch files. Make it first."),
        ("a.txt none.txt g.weft", "no file none.txt. Check the path."),
    ],
)
def test_what_cannot_be_converted_piece_by_piece_is_said(weft, tmp_path, words, message):
    (tmp_path / "a.txt").write_text("0 1\n")
    answer = weft("convert", *words.split())
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert message in answer.err
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("words", "place", "left"),
    [
        (("convert", "g.txt", "out.weft"), "stream.assemble.Pointers", [".out.weft.convert"]),
        (("convert", "karate", "out.weft"), "store._write", []),
        (("generate", "er", "--nodes", "50", "--stream", "--out", "out.weft"), "stream.assemble.Pointers",
         [".out.weft.convert"]),
        (("generate", "er", "--nodes", "50", "--stream", "--out", "out.txt"), "stream.drawn.in_order", []),
        (("generate", "er", "--nodes", "50", "--out", "out.weft"), "store._write", []),
        (("partition", "karate", "--parts", "2", "--out", "out.weft"), "store._write", []),
        (("partition", "g.weft", "--parts", "2", "--method", "stream", "--out", "out.weft"),
         "renumber.Writer", []),
    ],
)  # fmt: skip
def test_a_file_that_is_being_written_goes_when_the_command_is_told_to_end(
    weft, monkeypatch, words, place, left
):
    Path("g.txt").write_text("0 1\n1 2\n2 0\n")
    weft("convert", "karate", "g.weft")
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(f"weft.graph.{place}", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    answer = weft(*words)
    assert (answer.status, answer.err.splitlines()[-1]) == (143, "weft: stopped.")
    assert sorted(p.name for p in Path().iterdir()) == sorted([*left, "g.txt", "g.weft"])
    assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.undo()


def test_files_may_stand_on_both_sides_of_an_option(weft):
    Path("a.txt").write_text("0 1\n")
    Path("b.txt").write_text("1 2\n")
    assert weft("convert", "a.txt", "--memory", "8GB", "b.txt", "g.weft").status == 0
    assert load("g.weft").num_arcs == 2

"""weft info: the facts of a graph."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from weft.cli import info
from weft.graph import Graph, er, open_store, write_store

KARATE = {
    "name": "karate", "vertices": 34, "arcs": 156, "symmetric": True, "self_loops": 0, "weighted": False,
    "in_degree_mean": 156 / 34, "in_degree_max": 17, "without_in_arcs": 0, "index_type": "int32",
    "features": 34, "classes": 2, "multilabel": False, "train": 4, "val": 10, "test": 20,
    "original_ids": False,
}  # fmt: skip


def test_json_is_one_object_with_the_facts(weft):
    answer = weft("info", "karate", "--json")
    assert (answer.status, answer.err, answer.out.count("\n")) == (0, "", 1)
    assert json.loads(answer.out) == KARATE


def test_the_facts_in_words(weft):
    lines = dict(line.split(maxsplit=1) for line in weft("info", "karate").out.splitlines())
    assert lines.keys() == KARATE.keys()
    assert (lines["vertices"], lines["symmetric"], lines["weighted"]) == ("34", "yes", "no")
    assert lines["in_degree_mean"] == "4.59"


def test_an_edge_list_tells_its_direction_loops_and_own_ids(weft):
    Path("g.txt").write_text("10 20 0.5\n20 20 1\n10 70 2\n")
    facts = json.loads(weft("info", "g.txt", "--json").out)
    assert (facts["vertices"], facts["arcs"], facts["self_loops"]) == (3, 3, 1)
    assert (facts["symmetric"], facts["weighted"], facts["original_ids"]) == (False, True, True)
    assert (facts["without_in_arcs"], facts["in_degree_max"]) == (1, 2)
    assert (facts["features"], facts["classes"], facts["train"]) == (0, 0, None)


def test_an_empty_graph_has_facts_too(weft):
    write_store(Graph.from_arcs([], [], num_nodes=0), "none.weft")
    facts = json.loads(weft("info", "none.weft", "--json").out)
    assert (facts["vertices"], facts["arcs"], facts["in_degree_mean"]) == (0, 0, 0.0)


def test_a_data_set_is_found_in_the_folder_given(weft):
    Path("sets").mkdir()
    Path("sets/Roads.csv").write_text("0,1\n1,2\n")
    assert json.loads(weft("info", "roads", "--data", "sets", "--json").out)["arcs"] == 2


def test_what_arcs_and_vertices_carry_is_listed_with_type_and_shape(weft):
    Path("g.csv").write_text("0,1,0.5,3,x\n1,0,1,4,y\n")
    words = ("info", "g.csv", "--arc-columns", "time,kind,_")
    facts = json.loads(weft(*words, "--json").out)
    assert facts["arc_data"] == {
        "time": {"dtype": "float64", "shape": [2]}, "kind": {"dtype": "int64", "shape": [2]},
    }  # fmt: skip
    assert "vertex_data" not in facts
    assert weft(*words).out.splitlines()[-1].split(maxsplit=1) == ["arc_data", "time float64 2, kind int64 2"]
    graph = Graph.from_arcs([0], [1], arc_data={"x": [[1.0, 2.0]]}, vertex_data={"age": [3, 4]})
    write_store(graph, "g.weft")
    last = weft("info", "g.weft").out.splitlines()[-2:]
    assert [line.split(maxsplit=1)[1] for line in last] == ["x float32 1x2", "age int64 2"]


@pytest.mark.filterwarnings("always::weft.errors.Note")
def test_what_a_reader_notes_is_one_line_on_standard_error(weft):
    Path("g.csv").write_text("0,1,3\n0,1,4\n")
    answer = weft("info", "g.csv", "--arc-columns", "kind", "--json")
    assert (answer.status, json.loads(answer.out)["arcs"]) == (0, 1)
    assert answer.err == "weft: g.csv: 1 arc was given again and merged: of kind the first is kept.\n"


def test_a_store_is_described_piece_by_piece_as_a_graph_is(tmp_path):
    directed = er(nodes=90, degree=5, directed=True, features=3, classes=4)
    weights = torch.rand(directed.num_arcs)
    arcs = {"time": torch.rand(directed.num_arcs, 2)}
    both = directed.symmetrised()
    uneven = torch.rand(both.num_arcs)
    graphs = [
        directed, directed.replace(weights=weights, arc_data=arcs), both, both.replace(weights=uneven),
        directed.replace(weights=weights).symmetrised(), Graph.from_arcs([], [], num_nodes=0),
    ]  # fmt: skip
    for number, graph in enumerate(graphs):
        store = open_store(write_store(graph, tmp_path / f"{number}.weft"), verify=False)
        assert info.describe_store(store) == info.describe(graph)


def test_the_scores_of_a_run_have_the_places_that_weft_train_prints(weft):
    said = weft("train", "karate", "--epochs", "3", "--out", "run").out
    (trained,) = re.findall(r"^accuracy .* val (\d\.\d{4})", said, re.MULTILINE)
    assert re.search(rf"^val_accuracy\s+{trained}$", weft("info", "run").out, re.MULTILINE)

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.partition import measure

from .conftest import Weft

GRAPH = "sbm:nodes=300,classes=4,degree=6"


def test_json_has_the_figures_of_the_contract(weft: Weft):
    answer = weft("partition", GRAPH, "--parts", "4", "--method", "metis", "--json")
    assert answer.status == 0
    found = json.loads(answer.out)
    wanted = {"volume_total", "volume_max", "messages_total", "messages_max", "imbalance", "seconds"}
    assert wanted <= found.keys()
    assert found["volume_average"] == found["volume_total"] / 4


def test_the_file_holds_the_parts_that_the_figures_are_of(weft: Weft):
    from weft.graph import load

    said = json.loads(
        weft("partition", GRAPH, "--parts", "4", "--method", "hypergraph", "--out", "p.npy", "--json").out
    )
    parts = np.load("p.npy")
    assert parts.shape == (300,)
    assert measure(load(GRAPH), parts, 4).volume_total == said["volume_total"]
    again = weft("partition", GRAPH, "--parts", "4", "--out", "p.npy")
    assert (again.status, again.err) == (
        2,
        "weft: p.npy exists already. Choose another name, or remove it.\n",
    )


@pytest.mark.parametrize("graph", [GRAPH, "g.weft"])
@pytest.mark.parametrize("out", ["p.npy", "p.weft"])
def test_a_disk_without_room_is_said_before_anything_is_cut(weft: Weft, monkeypatch, graph, out):
    from weft.graph import load, write_store

    write_store(load(GRAPH), "g.weft")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_199})())
    monkeypatch.setattr("weft.partition.partition_for_grid", None)  # who cuts fails
    answer = weft("partition", graph, "--parts", "4", "--method", "stream", "--out", out)
    assert answer.status == 2
    assert "are needed in . for the " in answer.err
    assert answer.err.endswith("are free. Make room, or give another folder with --out.\n")
    assert not Path(out).exists()


def test_a_saved_assignment_trains(weft: Weft):
    weft("partition", GRAPH, "--parts", "3", "--method", "metis", "--out", "p.npy")
    answer = weft("verify", GRAPH, "--ranks", "3", "--engine", "threads", "--strategy", "halo",
                  "--partition", "p.npy", "--epochs", "2", "--dtype", "float64", "--json")  # fmt: skip
    assert json.loads(answer.out)["equal"] is True


def test_a_store_is_cut_and_written_row_by_row_and_never_loaded(weft: Weft, monkeypatch):
    """The figures are those of the parts in memory; a rank of the store that comes out reads one range."""
    from weft.graph import Store, load, open_store, write_store

    graph = load(GRAPH)
    write_store(graph, "g.weft")
    monkeypatch.setattr(Store, "graph", None)
    words = ("partition", "g.weft", "--parts", "3", "--method", "stream", "--buffer", "500",
             "--vertex-work", "0", "--json")  # fmt: skip
    said = json.loads(weft(*words, "--out", "p.npy").out)
    parts = np.load("p.npy")
    found = measure(graph, parts, 3)
    for key in ("volume_total", "messages_max", "imbalance", "edge_cut"):
        assert said[key] == found.as_dict()[key]
    assert said["imbalance"] <= 0.04
    weft(*words, "--out", "g.parts.weft")
    store = open_store("g.parts.weft", verify=False)
    assert store.parts == np.bincount(parts).tolist()
    assert store.num_arcs == graph.num_arcs


def test_what_the_stream_reads_is_refused_of_others(weft: Weft):
    answer = weft("partition", GRAPH, "--parts", "3", "--method", "metis", "--passes", "2")
    assert answer.status == 2
    assert "method metis does not read passes, stream does" in answer.err


def test_several_methods_make_a_table(weft: Weft):
    answer = weft("partition", GRAPH, "--parts", "4", "--method", "random,metis,hypergraph")
    lines = answer.out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["random", "metis", "hypergraph"]
    rows = json.loads(weft("partition", GRAPH, "--parts", "4", "--method", "random,hash", "--json").out)
    assert [row["method"] for row in rows["methods"]] == ["random", "hash"]


def test_of_a_store_a_grid_s_volumes_are_counted_row_by_row(weft: Weft, monkeypatch):
    from weft.graph import load, write_store

    write_store(load(GRAPH), "g.weft")
    words = ("--grid", "2x3x1", "--method", "hash", "--json")
    memory = json.loads(weft("partition", GRAPH, *words).out)
    monkeypatch.setattr("weft.parallel.assign.bare", None)
    monkeypatch.setattr("weft.partition.grids.rows_and_columns", None)
    rows = json.loads(weft("partition", "g.weft", *words).out)
    for key in ("volume_gather", "volume_reduce", "imbalance"):
        assert rows[key] == pytest.approx(memory[key]), key


def test_a_grid_has_its_two_volumes(weft: Weft):
    found = json.loads(weft("partition", GRAPH, "--grid", "2x2x2", "--method", "metis", "--json").out)
    assert found["parts"] == 8
    assert found["volume_gather"] + found["volume_reduce"] > 0


def test_the_heat_map_is_drawn(weft: Weft):
    assert weft("partition", GRAPH, "--parts", "4", "--method", "random,metis", "--plot", "v.png").status == 0
    assert Path("v.png").read_bytes().startswith(b"\x89PNG")


def test_progress_and_memory_are_told_on_standard_error_alone(weft: Weft):
    answer = weft("partition", GRAPH, "--parts", "4", "--method", "hypergraph", "--json")
    assert "pins, about" in answer.err
    json.loads(answer.out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts", "301"], "301 parts are more than the graph's 300 vertices. Use --parts 300 or fewer."),
        (["--parts", "0"], "--parts must be at least 1, not 0."),
        (["--parts", "4", "--method", "random,metsi"], "unknown partition method 'metsi'."),
        (["--parts", "4", "--epsilon", "-1"], "epsilon must be 0 or more, not -1."),
        (["--parts", "4", "--epsilon", "little"], "--epsilon must be a number, not 'little'."),
        (["--parts", "4", "--preset", "fast"], "unknown preset 'fast'."),
        (["--parts", "4", "--out", "parts"], "--out parts must end in .npy or .weft. Use parts.npy."),
        (
            ["--parts", "4", "--method", "hash,block", "--out", "p.npy"],
            "--out takes one method",
        ),
        (["--parts", "4", "--plot", "v.bmp"], "--plot v.bmp is no picture's name."),
        (["--parts", "4", "--grid", "2x2x1"], "give one of --parts and --grid"),
        (["--grid", "2x2"], "--grid 2x2 must be row x inner x feature."),
        ([], "give one of --parts and --grid"),
    ],
)
def test_mistakes_are_one_line(weft: Weft, words: list[str], message: str):
    answer = weft("partition", GRAPH, *words)
    assert answer.status == 2
    assert answer.err.startswith(f"weft: {message}")
    assert answer.err.count("\n") == 1


def test_an_assignment_of_the_wrong_length_or_range_is_refused_by_train(weft: Weft):
    np.save("short.npy", np.arange(299) % 3)
    np.save("wild.npy", np.arange(300) % 4)
    for name, message in (
        ("short.npy", "short.npy has 299 parts for 300 vertices."),
        ("wild.npy", "the partition has part 3, but 3 ranks have 0 to 2."),
    ):
        answer = weft("verify", GRAPH, "--ranks", "3", "--engine", "threads", "--partition", name)
        assert answer.status == 2
        assert message in answer.err

from __future__ import annotations

import csv
import json

import pytest

from weft.bench.attention import Task, bench_attention, median_interval
from weft.cli import main
from weft.graph import load

SMALL = ["-v", "60", "-e", "300", "--features", "5", "--hidden", "6", "--classes", "3", "--repeat", "3"]


def bench(capsys, *options: str) -> dict:
    assert main(["bench", "attention", *SMALL, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_model_trains_and_infers_and_rows_are_appended(tmp_path, capsys):
    table = tmp_path / "rows.csv"
    for extra in ([], ["--inference"]):
        picture = tmp_path / f"scaling{len(extra)}.png"
        rows = bench(
            capsys, "-m", "GAT,AGNN,VA", "-d", "uniform", "--csv", str(table), "--plot", str(picture), *extra
        )["rows"]
        assert [row["model"] for row in rows] == ["gat", "agnn", "va"]
        assert all(row["low"] <= row["median"] <= row["high"] for row in rows)
        assert picture.stat().st_size > 0
    with table.open() as file:
        written = list(csv.DictReader(file))
    assert [row["inference"] for row in written] == ["False"] * 3 + ["True"] * 3


def test_ranks_share_a_graph_and_the_graph_of_weak_scaling_grows():
    base = Task(vertices=64, edges=256, features=4, classes=2, hidden=4, repeat=1, warmup=0, scaling="weak")
    rows = bench_attention([base.on(1), base.on(4)], engine="threads")
    assert [row["vertices"] for row in rows] == [64, 128]
    grown = base.on(4)
    assert grown.edges / grown.vertices**2 == base.edges / base.vertices**2
    for row, task in zip(rows, (base, grown), strict=True):  # of the graph itself, too
        assert row["edges"] == pytest.approx(task.edges, rel=0.15)


def test_rows_tell_what_was_run_not_what_was_asked_for(capsys):
    rows = bench(capsys, "-m", "agnn,gat", "--heads", "3", "--hidden", "6", "-d", "file", "-f", "karate")[
        "rows"
    ]
    assert (rows[0]["vertices"], rows[0]["heads"]) == (34, 1)
    own = load("karate")
    assert own.num_features not in (0, 5)  # not what SMALL asks for
    assert (rows[0]["features"], rows[0]["classes"]) == (own.num_features, own.num_classes)


def test_a_table_that_cannot_be_written_is_found_before_anything_is_measured(tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    for path in (str(other), str(tmp_path / "no" / "x.csv")):
        assert main(["bench", "attention", *SMALL, "--csv", path]) == 2
        assert "--csv" in (err := capsys.readouterr().err) or "cannot write" in err


def test_the_interval_holds_the_median():
    median, low, high = median_interval([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (median, low, high) == (3.0, 1.0, 100.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-m", "gcn"], "gcn"),
        (["-d", "file"], "--file"),
        (["-f", "x.txt"], "--dataset"),
        (["-d", "nothing"], "nothing"),
        (["-t", "float16"], "float16"),
        (["--scaling", "up"], "up"),
        (["-e", "99999999"], "99999999"),
        (["-d", "file", "-f", "karate", "--scaling", "weak"], "one size"),
        (["--plot", "x.txt"], "x.txt"),
        (["--engine", "pigeons"], "pigeons"),
    ],
)
def test_a_mistake_is_one_line(options, told, capsys):
    assert main(["bench", "attention", *SMALL, *options]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1

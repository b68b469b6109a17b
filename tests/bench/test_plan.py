"""Plans held against measurements: points, resuming, and what is made of them; no time is looked at."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from weft.bench import plan as room
from weft.bench.plan import Point, choices, judged, measure, measured, points_of, prepare, quantile, quiet
from weft.bench.ranks import trainable
from weft.cli import main
from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import load, open_store, write_store
from weft.planner.default import default_profile
from weft.planner.profile import write_profile

GRAPH = "sbm:nodes=60,classes=3,features=5"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A setting of two virtual ranks with every candidate of one case."""
    monkeypatch.setattr(room, "_busy", lambda: 0.0)
    monkeypatch.setattr(room, "_pace", lambda: 1.0)
    monkeypatch.setattr(room, "_SECONDS", 0.0)
    prepare(tmp_path, [GRAPH])
    write_profile(replace(default_profile(), seconds=12.5), tmp_path / "profile.json")
    points = points_of([GRAPH], ["gcn"], 2, ["random"], 4)
    run_ranks(measure, 2, "threads", str(tmp_path), [asdict(p) for p in points], 600.0)
    return tmp_path


def test_every_candidate_is_a_point_and_one_rank_has_one():
    found = points_of(["g"], ["gcn", "gat"], 4, ["random", "metis"], 8)
    assert len(found) == len(set(found)) == 24
    assert {p.strategy for p in found} == {"1d", "halo", "1.5d", "2d", "feature", "grid"}
    assert [p.strategy for p in points_of(["g"], ["gcn"], 1, ["random", "metis"], 8)] == ["1d"]


def test_words_of_every_point_are_those_foretold(folder, capsys):
    assert main(["bench", "plan", "--report", str(folder), "--json", "--csv", str(folder / "p.csv")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judged"]["points"] == 4
    assert found["judged"]["words_differ"] == 0
    assert found["judged"]["cases"] == 1
    with (folder / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [row["strategy"] for row in lines] == ["1d", "halo", "feature", "grid"]
    assert {row["layers"] for row in lines} == {"2"}
    assert {row["calibrated"] for row in lines} == {"12.5"}
    assert all(float(row["planned"]) > 0 for row in lines)


def test_a_report_says_how_long_planning_and_calibrating_took(folder, capsys):
    assert main(["bench", "plan", "--report", str(folder)]) == 0
    heads, line = capsys.readouterr().out.splitlines()[:2]
    assert heads.endswith("planned in  calibrated in")
    assert line.endswith("12.5 s")


def test_layers_make_a_case_of_their_own():
    two, three = (points_of(["g"], ["gcn"], 2, ["random"], 8, layers=n)[0] for n in (2, 3))
    assert two.case != three.case
    assert three.config().model.layers == 3
    assert three.options()[4:6] == ["--layers", "3"]
    rows = [{**row("a", "1d", 1.0, 1.0), "layers": n, "planned": float(n)} for n in (2, 3) for _ in range(2)]
    assert len(choices(rows)) == 2
    assert judged(rows)["planned"] == 2.5


def test_points_that_were_all_disturbed_are_said_to_be(folder, capsys):
    path = folder / "points.jsonl"
    path.write_text(path.read_text().replace('"beside": 0.0', '"beside": 0.5'))
    assert main(["bench", "plan", "--report", str(folder)]) == 2
    assert f"all 4 points of {folder} were disturbed by others. Measure" in capsys.readouterr().err


def test_a_table_is_not_written_over_a_file_that_is_there(folder, capsys):
    kept = folder / "p.csv"
    kept.write_text("mine\n")
    assert main(["bench", "plan", "--report", str(folder), "--csv", str(kept)]) == 2
    assert capsys.readouterr().err == f"weft: {kept} exists already. Choose another --csv, or remove it.\n"
    assert kept.read_text() == "mine\n"


def test_what_was_measured_is_not_measured_again_unless_it_was_disturbed(folder):
    records = measured(folder)
    assert len(quiet(records)) == 4
    again = [*records, {**records[0], "beside": 0.5}]
    assert len(quiet(again)) == 4
    assert len(quiet([{**record, "beside": 0.5} for record in records])) == 0
    slow = {**records[0], "pace": 2 * max(record["pace"] for record in records)}
    assert quiet([*records[1:], slow]) == records[1:]


def test_a_graph_with_labels_and_no_split_is_split(tmp_path):
    made = load(GRAPH)
    assert trainable(made) is made
    write_store(made.replace(train_mask=None, val_mask=None, test_mask=None), tmp_path / "g.weft")
    prepare(tmp_path, [str(tmp_path / "g.weft")])
    (stored,) = (tmp_path / "graphs").iterdir()
    assert open_store(stored).has("train_mask")
    run_ranks(measure, 1, "threads", str(tmp_path), [
        asdict(p) for p in points_of([str(tmp_path / "g.weft")], ["gcn"], 1, ["random"], 4)
    ], 600.0)  # fmt: skip
    assert len(measured(tmp_path)) == 1


def test_points_by_host_are_foretold_as_they_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "_SECONDS", 0.0)
    prepare(tmp_path, [GRAPH])
    points = points_of([GRAPH], ["gcn"], 4, ["random"], 4, hosts=2)
    assert len(points) == 11
    assert {p.way[:3] for p in points if p.by_host} == {
        ("1d", "", "dense"), ("halo", "", "sparse"), ("grid", "1x4x1", "sparse"),
    }  # fmt: skip

    def work(comm):
        comm.hosts = [0, 0, 1, 1]
        return measure(comm, str(tmp_path), [asdict(p) for p in points], 600.0)

    assert run_ranks(work, 4, "threads") == [11] * 4
    rows = [
        room.row_of("x", *each) for each in room.foretold(tmp_path, default_profile(), measured(tmp_path))
    ]
    assert len(rows) == 11
    assert [row["words"] for row in rows] == [row["foretold_words"] for row in rows]


def test_enough_epochs_are_measured_that_a_tick_of_others_is_nothing():
    assert room._MOST * 0.005 >= 2 * room._SECONDS  # epochs of 5 ms fill the seconds


def test_no_time_is_no_points(folder):
    points = [asdict(p) for p in points_of([GRAPH], ["sage"], 2, ["random"], 4)]
    assert run_ranks(measure, 2, "threads", str(folder), points, -1.0) == [0, 0]
    assert len(measured(folder)) == 4


def test_a_line_that_was_cut_off_is_left_out_and_a_foreign_one_is_named(folder):
    path = folder / "points.jsonl"
    text = path.read_text()
    path.write_text(text + text[:40])
    assert len(measured(folder)) == 4
    path.write_text(text + '{"point": {"colour": 3}}\n')
    with pytest.raises(UserError, match="line 5, is no measured point"):
        measured(folder)


def row(setting: str, strategy: str, foretold: float, taken: float) -> dict[str, object]:
    return {
        **asdict(Point("g", "gcn", 2, strategy, "", "dense", "random")), "setting": setting,
        "foretold": foretold, "measured": taken, "ratio": foretold / taken, "words": 1, "foretold_words": 1,
        "peak_ratio": None, "planned": 0.5, "calibrated": 0.0,
    }  # fmt: skip


def test_the_choice_is_held_against_the_best_that_was_measured():
    rows = [row("a", "1d", 1.0, 3.0), row("a", "halo", 2.0, 2.0), row("b", "1d", 1.0, 1.0)]
    (found,) = choices(rows)
    assert (found["chosen"], found["best"], found["ratio"]) == ("1d dense random", "halo dense random", 1.5)
    figures = judged(rows)
    assert (figures["median_error"], figures["chosen_near"], figures["worst_choice"]) == (0.0, 0.0, 1.5)


def test_a_quantile_is_one_of_the_values():
    assert quantile([float(k) for k in range(1, 101)], 0.95) == 95
    assert quantile([7.0], 0.95) == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "needs a folder"), (["--report"], "needs the folders"),
     (["--report", "none"], "no measured points"), (["--out", "none", "--memory", "3"], "no measured points"),
     (["--out", "x", "--ranks", "0"], "--ranks 0"), (["--out", "x", "--csv", "p"], "--csv p is for --report"),
     (["--report", "x", "--csv", "no/p"], "no folder no to write p into")],
)  # fmt: skip
def test_mistakes_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "plan", *words]) == 2
    assert message in capsys.readouterr().err

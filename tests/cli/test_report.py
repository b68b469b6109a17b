"""weft report from the command line."""

from __future__ import annotations

from pathlib import Path

from ..report.folders import written
from .conftest import Weft


def test_a_report_is_one_file_and_its_name_is_told(weft: Weft):
    written(Path("runs/a"), 3)
    answer = weft("report", "runs/a")
    assert (answer.status, answer.out, answer.err) == (0, "report.html\n", "")
    assert Path("report.html").read_text().startswith("<!doctype html>")


def test_nothing_is_overwritten(weft: Weft):
    written(Path("a"), 3)
    Path("mine.html").write_text("precious")
    answer = weft("report", "a", "--out", "mine.html")
    assert (answer.status, Path("mine.html").read_text()) == (2, "precious")
    assert answer.err == "weft: mine.html exists already. Choose another --out, or remove it.\n"


def test_runs_may_stand_before_and_after_an_option(weft: Weft):
    for name in "ab":
        written(Path(name), 3)
    assert weft("report", "a", "--out", "x.html", "b").status == 0
    assert "2 runs" in Path("x.html").read_text()
    answer = weft("report", "a", "--owt", "x.html", "b")
    assert (answer.status, "Did you mean '--out'?" in answer.err) == (2, True)
    assert "arguments are required: RUN. See" in weft("report", "--out", "y.html").err


def test_that_a_folder_is_no_run_is_said_before_that_the_page_exists(weft: Weft):
    Path("report.html").write_text("precious")
    assert "no folder nothing." in weft("report", "nothing").err


def test_a_folder_that_is_no_run_is_one_line(weft: Weft):
    Path("empty").mkdir()
    written(Path("a"), 3)
    for folder, said in (("empty", "empty is not a run folder"), ("nowhere", "no folder nowhere")):
        answer = weft("report", "a", folder)
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert said in answer.err
        assert not Path("report.html").exists()


def test_a_place_that_cannot_be_written_is_one_line(weft: Weft):
    written(Path("a"), 3)
    answer = weft("report", "a", "--out", "no/such/r.html")
    assert answer.status == 2
    assert answer.err == "weft: no folder no/such to write r.html into. Make it first.\n"
    answer = weft("report", "a", "--out", "r" * 300)
    assert answer.status == 2
    assert answer.err.startswith("weft: cannot write rrr")


def test_runs_of_one_name_are_told_apart_by_their_paths(weft: Weft):
    written(Path("x/run"), 3)
    written(Path("y/run"), 3)
    assert weft("report", "x/run", "y/run", "--out", "r.html").status == 0
    text = Path("r.html").read_text()
    assert ">x/run<" in text
    assert ">y/run<" in text

"""`weft data`, and what a name that is not here says."""

from __future__ import annotations

import json

import pytest

from weft.graph import load
from weft.graph.known import KNOWN, LAYOUTS, UNREAD


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "snap").mkdir()
    (tmp_path / "snap" / "email-Enron.txt").write_text("0 1\n1 2\n")
    (tmp_path / "mine.txt").write_text("0 1\n")
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    return tmp_path


def test_all_are_listed_with_what_is_here_and_where_was_looked(weft, folder):
    answer = weft("data")
    assert (answer.status, answer.err) == (0, "")
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line}
    assert all(name in lines for name in KNOWN)
    assert lines["email-enron"].split()[1] == "here"
    assert lines["cora"].split()[1] == "-"
    assert f"looked for in {folder}" in answer.out
    assert "also there: mine" in answer.out
    assert load("email-enron").num_nodes == 3


def test_without_a_folder_it_says_so(weft, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    assert "looked for nowhere: WEFT_DATA is not set" in weft("data").out
    assert "export WEFT_DATA=DIR first" in weft("data", "cora").out


def test_one_tells_its_licence_its_files_and_where_they_go(weft, folder):
    out = weft("data", "Cora").out
    assert all(file.url in out for file in KNOWN["cora"].files)
    assert f"{folder}/planetoid/Cora/raw" in out
    assert "licence" in out
    assert "Train on it: weft train email-enron" in weft("data", "email-enron").out
    assert "not one of those that weft knows" in weft("data", "mine").out


def test_json_is_one_object(weft, folder):
    told = json.loads(weft("data", "--json").out)
    assert told["folder"] == str(folder)
    assert [row["name"] for row in told["known"]] == list(KNOWN)
    assert [row["name"] for row in told["others"]] == ["mine"]
    (row,) = json.loads(weft("data", "email-enron", "--json").out)["known"]
    assert row["path"] == str(folder / "snap" / "email-Enron.txt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "corra"), "weft: unknown data set 'corra'. Did you mean 'cora'?\n"),
        (
            ("data", "--data", "no/such"),
            "the data folder no/such does not exist. Correct WEFT_DATA or --data.\n",
        ),
        (("info", "citeseer"), "weft data citeseer tells how to get it.\n"),
        (("info", "citeser"), "unknown graph 'citeser'. Did you mean 'citeseer'?\n"),
        (("info", "snap"), "snap is a folder, and no graph of a kind that weft reads. Name a file in it.\n"),
        (("info", "q7"), "Known: bter, er, karate, kronecker, sbm, mine, email-enron.\n"),
    ],
)
def test_mistakes_are_one_line(weft, folder, words, message, monkeypatch):
    monkeypatch.chdir(folder)
    answer = weft(*words)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.endswith(message)
    assert answer.err.count("\n") == 1


def test_the_table_holds_together():
    for name, entry in KNOWN.items():
        assert name == entry.name == name.lower()
        assert entry.layout in LAYOUTS
        assert entry.size >= sum(file.size for file in entry.files)
        assert not entry.folder.startswith("/")
        assert ".." not in entry.folder
        for file in entry.files:
            assert len(file.sha256) in (0, 64)
            assert "/" not in file.path
    assert LAYOUTS.keys() >= UNREAD

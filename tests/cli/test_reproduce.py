"""weft reproduce: the list is whole, one cheap figure a paper is run, mistakes are one line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from weft.bench.reproduce import PAPERS

FIGURES = {"cagnet": 3, "demirci": 5, "besta": 8, "p3": 16, "mggcn": 13}
TABLES = {"cagnet": 3, "demirci": 4, "besta": 2, "p3": 5, "mggcn": 3}
"""How many the papers have."""


def numbers(paper: str, kind: str) -> set[int]:
    found = (re.fullmatch(rf"{kind}(\d+)[a-c]?", item.name) for item in PAPERS[paper].items)
    return {int(match[1]) for match in found if match}


@pytest.mark.parametrize("paper", FIGURES)
def test_every_figure_and_table_of_the_papers_is_listed(paper):
    assert numbers(paper, "fig") == set(range(1, FIGURES[paper] + 1))
    assert numbers(paper, "table") == set(range(1, TABLES[paper] + 1))


def test_each_item_can_be_run_or_says_why_not():
    for paper in PAPERS.values():
        assert len({item.name for item in paper.items}) == len(paper.items)
        for item in paper.items:
            assert bool(item.run) != bool(item.why), item.name
            assert bool(item.run) == (item.seconds > 0), item.name
            assert item.full.keys() <= item.scaled.keys(), item.name


def test_alone_it_lists_all_with_their_cost(weft):
    told = weft("reproduce")
    assert told.status == 0
    for paper in PAPERS.values():
        assert paper.title in told.out
        for item in paper.items:
            assert re.search(rf"^  {item.name}  .*{re.escape(item.title)}", told.out, re.M)
    listed = json.loads(weft("reproduce", "p3", "--json").out)["p3"]
    assert {item["name"] for item in listed if not item["runs"]} >= {"fig1", "table2"}


def test_an_unknown_paper_figure_or_parameter_is_one_line_with_the_list(weft):
    told = weft("reproduce", "cagnet", "fig9")
    assert told.status == 2
    assert told.err.count("\n") == 1
    assert "Known: table1, table2, table3, sec4, fig1, fig2, fig3." in told.err
    told = weft("reproduce", "p3", "fig99")
    assert all(item.name in told.err for item in PAPERS["p3"].items)
    assert "unknown paper 'cagnett'. Did you mean 'cagnet'?" in weft("reproduce", "cagnett").err
    told = weft("reproduce", "cagnet", "sec4", "--set", "widht=3")
    assert (told.status, "Did you mean 'width'?" in told.err) == (2, True)
    told = weft("reproduce", "p3", "fig10", "--set", "ranks=many")
    assert (told.status, "'many' is not a whole number" in told.err) == (2, True)


def test_what_cannot_be_run_says_why(weft):
    told = weft("reproduce", "mggcn", "table2")
    assert told.status == 2
    assert "not run: numbers of another paper" in told.err


def test_more_ranks_than_cores_are_refused_before_anything_is_made(weft):
    told = weft("reproduce", "cagnet", "fig1", "--set", "ranks=4096", "--set", "graphs=karate")
    assert told.status == 2
    assert "times 4096 ranks, this machine has" in told.err


def test_what_is_timed_by_default_takes_no_more_ranks_than_two_for_each_of_two_cores():
    for paper in PAPERS.values():
        for item in paper.items:
            ranks = item.scaled.get("ranks", [1])
            if item.run is not None and not item.virtual:
                assert max(ranks if isinstance(ranks, list) else [ranks]) <= 4, (paper.name, item.name)


CHEAP = {
    ("cagnet", "sec4"): ["graph=karate", "ranks=4", "width=4", "layers=2"],
    ("demirci", "fig4c"): ["graph=none", "instead=sbm:nodes=90,classes=3", "ranks=1,3", "epochs=4"],
    ("besta", "fig6"): ["vertices=64", "edges=300", "features=4", "layers=2", "models=gat", "repeat=1",
                        "ranks=1", "paper_ranks=4,16"],
    ("p3", "fig10"): ["graph=kronecker:scale=6,degree=6", "features=4,8", "hidden=2", "batch_size=16",
                      "batches=1", "rounds=1", "fanouts=3,2", "engine=threads"],
    ("mggcn", "fig5"): ["graphs=er:nodes=60,degree=5,features=8,classes=3", "hidden=4", "epochs=2"],
}  # fmt: skip


@pytest.mark.parametrize("paper", FIGURES)
def test_a_figure_of_each_paper_gives_rows_a_picture_and_the_papers_numbers(weft, paper):
    [(name, changes)] = [(name, sets) for (of, name), sets in CHEAP.items() if of == paper]
    sets = [word for change in changes for word in ("--set", change)]
    told = weft("reproduce", paper, name, "--out", "out", "--json", *sets)
    assert told.status == 0, told.err
    answer = json.loads(told.out)
    assert answer["rows"]
    assert {row["kind"] for row in answer["rows"]} <= {"measured", "foretold", "paper"}
    assert answer["compared"]
    base = Path("out") / f"{paper}-{name}"
    with open(f"{base}.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(answer["rows"])
    text = Path(f"{base}.txt").read_text()
    for line in answer["compared"]:
        assert f"{line['what']}: paper {line['paper']}, ours {line['ours']}" in text
    assert Path(f"{base}.png").read_bytes().startswith(b"\x89PNG")
    # Nothing is written over.
    told = weft("reproduce", paper, name, "--out", "out", *sets)
    assert (told.status, "exists already" in told.err) == (2, True)

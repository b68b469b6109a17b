from __future__ import annotations

import json

import pytest

from weft.cli import main


def test_rows_of_one_and_two_ranks(capsys):
    layouts = "1x1:1d,2x1:halo:metis"
    graph = "er:nodes=500,features=0"  # it gets random features and labels
    assert (
        main(["bench", "ranks", graph, "--layouts", layouts, "--rounds", "1", "--epochs", "2", "--json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["ranks"], r["strategy"], r["partition"]) for r in rows] == [
        (1, "1d", "random"),
        (2, "halo", "metis"),
    ]
    assert rows[0]["words"] == 0 < rows[1]["words"]
    assert rows[0]["speedup"] == rows[0]["memory_ratio"] == 1
    assert rows[1]["seconds"] > 0


@pytest.mark.parametrize("layouts", ["2:1d", "2x1", "2xa:1d", "2x1:1dd", "2x1:halo:metsi"])
def test_a_wrong_layout_is_one_line(layouts, capsys):
    assert main(["bench", "ranks", "--layouts", layouts]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

"""Which graph is measured where the paper's is not here."""

from __future__ import annotations

import pytest

from weft.bench.reproduce import PAPERS, p3
from weft.bench.reproduce.item import MEASURED, Outcome
from weft.bench.reproduce.measured import at_hand, only_here, standing
from weft.graph.loading import GENERATORS


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    for name in ("second.txt", "Third.txt"):
        (tmp_path / name).write_text("0 1\n")
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))


def test_the_first_graph_that_is_here_is_taken_and_named():
    assert at_hand("first", "second", "er:nodes=9") == "second"
    assert at_hand("third", "second", "er:nodes=9") == "third"
    assert at_hand("first", "fourth", "er:nodes=9") == "er:nodes=9"
    assert at_hand("first", "fourth", "") == ""
    assert standing("first", "second") == ["first is not under $WEFT_DATA: second stands for it"]


def test_of_several_graphs_those_that_are_here_are_taken_and_the_others_named():
    assert only_here(["first", "third", "er"]) == (["third", "er"], ["first: not under $WEFT_DATA, left out"])


def test_p3_is_told_which_graph_stands_for_its_own():
    def run(p):
        return Outcome([{"kind": MEASURED, "graph": p["graph"]}], [], lambda path: None, ["last"])

    outcome = p3._placed(run)({"graph": "first", "instead": ["second", "er"]})
    assert outcome.rows[0]["graph"] == "second"
    assert outcome.notes == [*standing("first", "second"), "last", p3._ONE]
    assert p3._placed(run)({"graph": "third", "instead": ["second"]}).notes == ["last", p3._ONE]


def test_without_data_sets_every_item_has_a_graph_that_can_be_made():
    """Of what is measured by default, the last stand-in is a generator's graph."""
    for paper in PAPERS.values():
        for item in paper.items:
            found = item.scaled
            for key in item.data:
                graphs = found[key] if isinstance(found[key], list) else [*found.get("instead", [found[key]])]
                made = [graph.partition(":")[0] in GENERATORS for graph in graphs]
                if (paper.name, item.name) not in {("demirci", "table2"), ("besta", "fig7a")}:
                    assert any(made), (paper.name, item.name)

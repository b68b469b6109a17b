from __future__ import annotations

import json

import pytest

from .conftest import Weft

GRAPH = "sbm:nodes=120,classes=4,degree=6"
COMMANDS = {
    "partition": [GRAPH, "--parts", "2,3"],
    "grids": [GRAPH, "--ranks", "4"],
    "order": [GRAPH, "--widths", "4", "--rounds", "1"],
    "stochastic": ["karate", "--parts", "2", "--batch-size", "9", "--fresh", "5", "--batches", "2",
                   "--fanouts", "3,all", "--steps", "2", "--engine", "threads"],
    "accelerate": [GRAPH, "--width", "4", "--rounds", "1", "--threads", "1", "--pyg"],
}  # fmt: skip


@pytest.mark.parametrize("bench", COMMANDS)
def test_a_table_and_its_json_have_the_same_rows(weft: Weft, bench: str):
    if bench == "accelerate":
        pytest.importorskip("torch_geometric")
    table = weft("bench", bench, *COMMANDS[bench])
    assert table.status == 0
    found = json.loads(weft("bench", bench, *COMMANDS[bench], "--json").out)
    assert len(found["rows"]) > 3
    assert len(table.out.splitlines()) >= len(found["rows"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["partition", "karate", "--parts", "35"], "35 parts are more than karate's 34 vertices."),
        (["partition", "karate", "--parts", "2,x"], "each of --parts 2,x must be a whole number"),
        (["partition", "karate", "--plot", "a.gif"], "--plot a.gif is no picture's name."),
        (["grids", "karate", "--ranks", "64"], "64 parts are more than the graph's 34 vertices."),
        (["order", "karate", "--method", "metsi"], "unknown partition method 'metsi'."),
        (
            ["accelerate", "karate", "--layers", "gnc"],
            "unknown layer for this benchmark 'gnc'. Did you mean 'gcn'?",
        ),
        (["stochastic", "karate"], "--batch-size 20000 is more than the graph's 34 vertices."),
        (["stochastic", "karate", "--engine", "thread"], "unknown engine 'thread'. Did you mean 'threads'?"),
        (["stochastic", "karate", "--fanouts", "0"], "fan-out '0' in '0' is not a number from 1"),
    ],
)
def test_mistakes_are_one_line(weft: Weft, words: list[str], message: str):
    answer = weft("bench", *words)
    assert answer.status == 2
    assert answer.err.splitlines()[-1].startswith(f"weft: {message}")


def test_partition_without_graphs_says_where_they_come_from(weft: Weft, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    assert "set WEFT_DATA" in weft("bench", "partition").err

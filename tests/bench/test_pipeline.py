"""The four ways to run batches, on virtual ranks: the same losses, and every row there."""

from __future__ import annotations

import json

from weft.cli import main


def test_a_row_for_each_way_and_losses_that_do_not_depend_on_who_draws(capsys):
    words = "--ranks 2 --engine threads --batch-size 40 --batches 2 --rounds 1 --hidden 4 --fanouts 3,2"
    graph = "sbm:nodes=200,classes=3,features=5"
    assert main(["bench", "pipeline", graph, *words.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["pipeline"], r["prefetch"]) for r in rows] == [(False, 0), (False, 2), (True, 0), (True, 2)]
    assert all(r["drawing"] > 0 and r["seconds"] > 0 for r in rows)
    assert rows[0]["waiting"] >= rows[0]["drawing"]  # who draws when the batch begins waits for all of it


def test_a_feed_that_is_not_known_is_one_line(capsys):
    assert main(["bench", "pipeline", "--feed", "pul"]) == 2
    assert "unknown feed 'pul'. Did you mean 'pull'?" in capsys.readouterr().err

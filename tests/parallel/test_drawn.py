"""Graphs made on ranks are the graphs of one process, whatever the number of ranks."""

from __future__ import annotations

import pytest
import torch

from weft.comm import Ledger, run_ranks
from weft.errors import UserError
from weft.graph import open_store
from weft.graph.generators.profile import profile_of
from weft.graph.stream import Drawn, convert_inputs, drawn, drawn_bter
from weft.parallel.drawn import draw_rows

KINDS = [
    ("er", {"nodes": 211, "degree": 7.0, "seed": 5, "directed": True}),
    ("er", {"nodes": 211, "degree": 7.0, "seed": 5}),
    ("kronecker", {"scale": 8, "degree": 6.0, "seed": 2}),
    ("bter", {"nodes": 300, "degree": 6.0, "seed": 3, "clustering": 0.4}),
]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(drawn, "PIECE", 100)
    monkeypatch.setattr(drawn_bter.BterDraws.__init__, "__defaults__", (100,))


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
def test_rows_of_one_two_three_and_five_ranks_are_those_of_the_stream(kind, arguments, small_pieces):
    some = Drawn(kind, arguments)
    assert len(some.sizes) > 3
    convert_inputs([some], "whole.weft")
    whole = open_store("whole.weft").graph()
    assert whole.num_arcs > 100
    for ranks in (1, 2, 3, 5):
        parts = run_ranks(draw_rows, ranks, "threads", Drawn(kind, arguments))
        degrees = torch.cat([indptr.diff() for indptr, _ in parts])
        assert degrees.tolist() == whole.indptr.diff().tolist()
        assert torch.cat([columns for _, columns in parts]).tolist() == whole.indices.tolist()


def test_rows_may_be_dealt_unevenly_and_what_travels_is_metered(small_pieces):
    some = Drawn("er", {"nodes": 30, "degree": 9.0})

    def work(comm):
        with Ledger(comm) as books:
            indptr, columns = draw_rows(comm, some, [0, 29, 1])
        return len(indptr) - 1, len(columns), books.words("draw")

    answers = run_ranks(work, 3, "threads")
    assert [rows for rows, _, _ in answers] == [0, 29, 1]
    assert answers[0][1] == 0
    assert answers[1][2] > answers[0][2] > 0
    with pytest.raises(UserError, match="are not those of 30 rows on 2 ranks"):
        run_ranks(draw_rows, 2, "threads", some, [30])


def test_a_streamed_bter_graph_has_the_degrees_and_triangles_that_were_asked_for():
    some = Drawn("bter", {"nodes": 3000, "degree": 8.0, "clustering": 0.5})
    convert_inputs([some], "b.weft")
    graph = open_store("b.weft").graph()
    assert graph.is_symmetric
    assert abs(graph.num_arcs / (3000 * 8) - 1) < 0.1
    found = profile_of(graph)
    assert 0.2 < found.clustering[4:11].mean() < 0.6


def test_a_bter_graph_like_another_is_drawn_too_and_mistakes_are_told():
    some = Drawn("bter", {"like": "karate", "times": 2})
    assert some.num_nodes == 34
    with pytest.raises(UserError, match="Name it: like=GRAPH"):
        Drawn("bter", {"times": 3})
    with pytest.raises(UserError, match=r"clustering=2.0 is not a fraction"):
        Drawn("bter", {"clustering": 2.0})

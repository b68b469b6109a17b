"""Batches by expectation: close to what ranks then receive, and right where chance plays no part."""

from __future__ import annotations

import pytest

from weft.comm import Ledger, run_ranks
from weft.errors import UserError
from weft.graph import load, split
from weft.planner.batches import BlockSize, block_sizes, foretell_feed
from weft.planner.cost import Machine
from weft.planner.cuts import Shape
from weft.planner.default import default_profile
from weft.planner.plan import make_work, plan
from weft.train import RunConfig, Trainer


def settings(model: str = "sage", feed: str = "auto") -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden = model, 16
    config.batch.batch_size, config.batch.fanouts, config.batch.feed = 100, "10,5", feed
    return config


def graph():
    return split(load("er:nodes=1500,degree=9,features=40,classes=8,directed=true"), 0.6, 0.2, 0)


def test_every_neighbour_of_every_vertex_is_the_graph_itself():
    given = graph()
    near, far = reversed(block_sizes(Shape.of(given), [-1, -1], given.num_nodes, loops=False))
    whole = BlockSize(given.num_nodes, given.num_nodes, given.num_arcs)
    assert (near, far) == (whole, whole)
    assert block_sizes(Shape.of(given), [-1], given.num_nodes, loops=True)[0].arcs == given.num_arcs + 1500


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_words_of_an_epoch_are_close(model, feed):
    given, config = graph(), settings(model, feed)
    shape = Shape.of(given)
    foretold = foretell_feed(
        make_work(config, shape), shape, feed, Machine(default_profile(), 3)
    ).volume.words

    def work(comm):
        trainer = Trainer(given, config, comm)
        with Ledger(comm) as books:
            trainer.step(1)
        return {phase: books.words(phase) for phase in books.phases}

    measured = run_ranks(work, 3, "threads")
    for phase in ("ask", "pull") if feed == "pull" else ("push", "pull", "errors"):
        mean = sum(each[phase] for each in measured) / 3
        assert foretold[phase] == pytest.approx(mean, rel=0.25), phase
    for each in measured:
        assert abs(foretold["grad"] - each["grad"]) <= 2 * 10  # of rows that do not divide, a step


def test_a_plan_of_batches_compares_the_feeds_and_leaves_out_what_cannot_be():
    shape, machine = Shape.of(graph()), Machine(default_profile(), 4)
    found = plan(shape, settings(), machine, ["random"])
    assert {row.candidate.exchange for row in found.rows} == {"pull", "push-pull"}
    assert found.best.words == min(row.words for row in found.rows)
    only = plan(shape, settings(feed="pull"), machine, ["random"])
    assert [row.candidate.exchange for row in only.rows] == ["pull"]
    deep = settings()
    deep.model.layers = 3
    with pytest.raises(UserError, match="--fanouts 10,5 gives 2 of the 3 hops"):
        plan(shape, deep, machine, ["random"])


def test_one_rank_moves_nothing_and_numbers_are_enough():
    found = plan(Shape(10**8, 10**9, 64, 10), settings(), Machine(default_profile(), 1), ["random"])
    assert {row.words for row in found.rows} == {0}
    many = plan(Shape(10**8, 10**9, 64, 10), settings(), Machine(default_profile(), 8), ["random"])
    assert all(row.words > 0 and row.how == "from numbers" for row in many.rows)

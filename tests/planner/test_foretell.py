"""What a plan says of words is what ranks then receive; what it says of memory grows as it must."""

from __future__ import annotations

import pytest
import torch

from weft.comm import Ledger, run_ranks
from weft.graph import Graph
from weft.parallel import Grid, Operator
from weft.parallel.blocks import Blocks
from weft.planner.cost import Machine
from weft.planner.cuts import HostLines, Shape, cut
from weft.planner.default import default_profile
from weft.planner.foretell import foretell_rank
from weft.planner.plan import Candidate, candidates, make_work
from weft.train import RunConfig, Trainer


def directed(n: int = 53, arcs: int = 211, seed: int = 3) -> Graph:
    drawn = torch.Generator().manual_seed(seed)
    source, target = torch.randint(n, (2, arcs), generator=drawn)
    graph = Graph.from_arcs(source, target, num_nodes=n)
    return graph.replace(
        features=torch.rand(n, 7, generator=drawn), labels=torch.arange(n) % 3, num_classes=3,
        train_mask=torch.ones(n, dtype=torch.bool),
    )  # fmt: skip


def settings(model: str = "gcn", **parallel: object) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.epochs = model, 5, 3
    for name, value in parallel.items():
        setattr(config.parallel, name, value)
    return config


def received(graph: Graph, config: RunConfig, ranks: int, hosts: int = 1) -> list[dict[str, int]]:
    def work(comm):
        comm.hosts = [rank // (ranks // hosts) for rank in range(ranks)]
        trainer = Trainer(graph, config, comm)
        trainer.step(1)
        with Ledger(comm) as books:
            trainer.step(2)
        return {phase: books.words(phase) for phase in books.phases if books.words(phase)}

    return run_ranks(work, ranks, "threads")


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gatv2"])
@pytest.mark.parametrize("place", range(6))
def test_words_of_every_candidate_are_those_of_the_run(model, place):
    graph, ranks = directed(), 4
    chosen: Candidate = list(candidates(ranks, ["random"]))[place]
    config = settings(model)
    chosen.apply(config)
    shape = Shape.of(graph)
    work = make_work(config, shape)
    found = cut(shape, chosen.grid, "random", work.model.adjacency, config.train.seed)
    machine = Machine(default_profile(), ranks)
    measured = received(graph, config, ranks)
    for rank in range(ranks):
        foretold = foretell_rank(work, found, chosen.exchange, rank, machine).volume.words
        assert foretold == measured[rank], (chosen, rank)


@pytest.mark.parametrize("model", ["gcn", "gat", "gatv2", "gin"])
@pytest.mark.parametrize(("ranks", "hosts"), [(4, 2), (6, 3), (6, 2)])
def test_words_by_host_are_those_of_the_run(model, ranks, hosts):
    graph, shared = directed(), 0
    machine = Machine(default_profile(), ranks, hosts)
    shape = Shape.of(graph)
    for chosen in candidates(ranks, ["random"], hosts=hosts):
        if not chosen.by_host:
            continue
        config = settings(model)
        chosen.apply(config)
        work = make_work(config, shape)
        lines = HostLines.on(chosen.grid, machine.crowd)
        found = cut(shape, chosen.grid, "random", work.model.adjacency, config.train.seed, lines)
        measured = received(graph, config, ranks, hosts)
        for rank in range(ranks):
            foretold = foretell_rank(work, found, chosen.exchange, rank, machine, True, lines).volume.words
            assert foretold == measured[rank], (chosen, rank)
        shared += any("host" in words for words in measured)
    assert shared >= 2


def test_a_run_without_held_input_moves_more_and_is_foretold_too():
    graph, config = directed(), settings("gcn", strategy="halo", partition="block")
    config.model.input_dropout = 0.5
    shape = Shape.of(graph)
    work = make_work(config, shape)
    assert not work.holds
    found = cut(shape, Grid(3), "block", work.model.adjacency)
    words = [
        foretell_rank(work, found, "sparse", r, Machine(default_profile(), 3)).volume.words for r in range(3)
    ]
    assert words == received(graph, config, 3)


@pytest.mark.parametrize("how", ["gcn", "none"])
@pytest.mark.parametrize("grid", [Grid(3), Grid(2, 2), Grid(2, 1, 2)])
def test_arcs_are_counted_with_the_loops_that_normalisation_adds(grid, how):
    graph = directed()
    assert bool((graph.rows == graph.indices).any())  # which get none

    def arcs(comm):
        blocks = Blocks.even(graph.num_nodes, grid, 0)
        return Operator.build(graph, comm, grid, how, blocks=blocks).plan.arcs

    found = cut(Shape.of(graph), grid, "random", how)
    assert [found.arcs_of(rank) for rank in range(grid.size)] == run_ranks(arcs, grid.size, "threads")


def test_memory_grows_with_the_features_of_a_rank_and_shrinks_with_ranks():
    config = settings()
    profile = default_profile()

    def held(features: int, ranks: int) -> int:
        shape = Shape(1_000_000, 10_000_000, features, 10)
        work = make_work(config, shape)
        found = cut(shape, Grid(ranks), "random", work.model.adjacency)
        return foretell_rank(work, found, "dense", 0, Machine(profile, ranks)).bytes - profile.idle_bytes

    # X and A·X, which is kept, are both as wide as the input.
    assert held(200, 4) - held(100, 4) == pytest.approx(2 * 4 * 100 * 250_000, rel=0.02)
    assert held(100, 8) < 0.8 * held(100, 4)


@pytest.mark.parametrize("hidden", [8, 24])
def test_an_evaluation_comes_on_top_of_a_step(monkeypatch, hidden):
    """Rows of the hidden layer beside those of the last, at least; at most each of them twice."""
    config = settings()
    config.model.hidden = hidden
    shape = Shape(600, 9_000, 5, 11)
    work, machine = make_work(config, shape), Machine(default_profile(), 1)
    found = cut(shape, Grid(1), "random", work.model.adjacency)
    both = foretell_rank(work, found, "dense", 0, machine)
    monkeypatch.setattr("weft.planner.foretell.evaluation_bytes", lambda *given: 0)
    step = foretell_rank(work, found, "dense", 0, machine)
    assert 600 * (hidden + 11) * 4 <= both.bytes - step.bytes <= 600 * 2 * (hidden + 11) * 4
    assert (both.volume, both.operations, both.seconds) == (step.volume, step.operations, step.seconds)

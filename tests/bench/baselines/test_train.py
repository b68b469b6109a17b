"""The papers' own algorithms give what one process gives: losses, every gradient, the last layer's rows."""

from __future__ import annotations

import pytest
import torch

from weft.bench.baselines import BASELINES, serial, train
from weft.bench.baselines.baseline import Problem, descend
from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import Graph, er, split, write_store
from weft.partition import partition_graph

N, FEATURES, HIDDEN, CLASSES, LAYERS, EPOCHS = 61, 7, 11, 5, 3, 2  # nothing divides into nothing


def directed() -> Graph:
    made = torch.Generator().manual_seed(1)
    x = torch.rand(N, FEATURES, generator=made, dtype=torch.float64)
    y = torch.randint(CLASSES, (N,), generator=made)
    graph = er(nodes=N, degree=4, directed=True)
    return split(graph.replace(features=x, labels=y, num_classes=CLASSES), 0.6, 0.2, 0)


@pytest.fixture(scope="module")
def truth():
    graph = directed()
    return graph, serial(Problem.of(graph, HIDDEN, LAYERS, 0, torch.float64), EPOCHS)


def apart(answers, truth):
    """The largest difference of anything from one process, relative to its tensor's largest."""
    pairs = [(a["loss"], truth["loss"]) for a in answers]
    pairs += [(y, t) for a in answers for y, t in zip(a["gradients"], truth["gradients"], strict=True)]
    pairs += [(a["rows"], truth["rows"][a["vertices"]]) for a in answers if a["vertices"].numel()]
    tensors = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in pairs]
    return max(float((x - y).abs().max() / y.abs().max()) for x, y in tensors)


@pytest.mark.parametrize("ranks", [1, 3, 4, 8, 12])
@pytest.mark.parametrize("name", BASELINES)
def test_every_algorithm_trains_as_one_process_does(name, ranks, truth):
    graph, alone = truth
    answers = run_ranks(
        train, ranks, "threads", graph, None, name, HIDDEN, LAYERS, EPOCHS, 0, 0, "float64", True
    )
    assert apart(answers, alone) < 1e-12


@pytest.mark.parametrize("name", ["cagnet-2d", "cagnet-3d"])
def test_a_blocking_factor_changes_stages_and_not_results(name, truth):
    graph, alone = truth
    whole, cut = (
        run_ranks(train, 8, "threads", graph, None, name, HIDDEN, LAYERS, EPOCHS, b, 0, "float64", True)
        for b in (0, 3)
    )
    assert apart(cut, alone) < 1e-12
    for phase in ("broadcast H", "broadcast A", "broadcast T"):
        assert [a["words"].get(phase, 0) for a in cut] == [a["words"].get(phase, 0) for a in whole]
        assert cut[0]["messages"][phase] > whole[0]["messages"][phase]


def test_pgcn_takes_any_parts(truth):
    graph, alone = truth
    parts = partition_graph(graph, 3, "metis")
    answers = run_ranks(
        train, 3, "threads", graph, parts, "pgcn", HIDDEN, LAYERS, EPOCHS, 0, 0, "float64", True
    )
    assert [a["vertices"].numel() for a in answers] == torch.bincount(parts).tolist()
    assert apart(answers, alone) < 1e-12


def test_a_gradient_that_is_off_is_seen(truth):
    graph, alone = truth
    answers = run_ranks(
        train, 2, "threads", graph, None, "cagnet-1d", HIDDEN, LAYERS, EPOCHS, 0, 0, "float64", True
    )
    answers[1]["gradients"][0][0, 0] += 1e-6
    assert apart(answers, alone) > 1e-9


def test_a_store_is_read_by_its_path(tmp_path, truth):
    graph, _ = truth
    path = write_store(graph, tmp_path / "g.weft")
    by_path, by_graph = (
        run_ranks(train, 2, "threads", g, None, "pgcn", 4, 2, 1)[0]["loss"] for g in (str(path), graph)
    )
    assert by_path == by_graph


def test_weights_move_against_their_gradient():
    (moved,) = descend([torch.ones(1, 1)], [torch.full((1, 1), 2.0)], 0.25)
    assert moved.item() == 0.5


def test_copies_that_do_not_fit_are_refused():
    from weft.bench.baselines.rows import BlockRows

    def work(comm):
        problem = Problem.of(directed(), 3, 2)
        with pytest.raises(UserError, match="must divide"):
            BlockRows(comm, problem.a, torch.arange(N), 2)

    run_ranks(work, 3, "threads")

"""Training on a grid is training in one process: losses, gradients, accuracy; and the words foretold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, Store, load, open_store, write_store
from weft.parallel import STRATEGIES
from weft.parallel.assign import check_assignment
from weft.train import RunConfig, Trainer
from weft.train.gradients import Gradients, Told

from .graphs import config, multilabel, small
from .real_ranks import train_in_turn

# Every model with all that stands between its layers; widths 8-8-8-4, so that residuals apply.
EXTRAS = {"model_dropout": 0.4, "model_layer_norm": True, "model_residual": True, "model_input_dropout": 0.2}
MODELS: dict[str, dict[str, object]] = {
    "gcn": {"model_name": "gcn", "model_layers": 3} | EXTRAS,
    "gcn, A·X kept": {"model_name": "gcn", "model_layers": 3, "model_layer_norm": True},
    "gcn, narrow": {"model_name": "gcn", "model_layers": 3, "model_hidden": 3},
    "sage mean": {"model_name": "sage", "model_layers": 3} | EXTRAS,
    "sage max": {"model_name": "sage", "model_layers": 3, "model_aggregate": "max"} | EXTRAS,
    "gin": {"model_name": "gin", "model_layers": 3} | EXTRAS,
    "sgc": {"model_name": "sgc", "model_layers": 3, "model_input_dropout": 0.2},
    "sgc, A·X kept": {"model_name": "sgc", "model_layers": 2},
}
GRIDS: dict[str, tuple[int, dict[str, object]]] = {
    "1d on 5": (5, {"strategy": "1d"}),
    "halo on 3": (3, {"strategy": "halo"}),
    "2d on 6": (6, {"strategy": "2d", "overlap": False}),
    "1x2x3": (6, {"strategy": "grid", "grid": "1x2x3"}),
    "2x2x2 sparse": (8, {"strategy": "grid", "grid": "2x2x2", "exchange": "sparse"}),
    "2x1x2, A moves": (4, {"strategy": "2d", "grid": "2x2", "move_adjacency": True}),
}


def settings(model: str, **parallel: object) -> RunConfig:
    made = config(dtype="float64", epochs=5, keep_weights="last", **MODELS[model])
    for name, value in parallel.items():
        assert hasattr(made.parallel, name), name
        setattr(made.parallel, name, value)
    return made


def observe(comm: Communicator | None, graph: Graph | Store, made: RunConfig) -> dict[str, Any]:
    """Five epochs step by step: what a rank sees of them."""
    trainer = Trainer(graph, made, comm)
    foretold = trainer.predict()  # before anything ran
    books: list[tuple[dict[str, int], dict[str, int]]] = []
    losses, gradient = [], {}
    for epoch in range(1, 6):
        with Ledger(comm) as ledger:
            losses.append(trainer.step(epoch))
        lines = {phase: line for phase, line in ledger.as_dict().items() if line["words"]}
        books.append(
            (
                {phase: int(line["words"]) for phase, line in lines.items()},
                {phase: int(line["messages"]) for phase, line in lines.items()},
            )
        )
        if epoch == 1:
            gradient = {name: p.grad.clone() for name, p in trainer.model.named_parameters()}
    return {
        "losses": losses,
        "gradient": gradient,
        "metrics": trainer.evaluate(),
        "books": books,
        "foretold": (foretold.words, foretold.messages),
        "weights": {name: p.detach().clone() for name, p in trainer.model.named_parameters()},
    }


def check_equal(ours: dict[str, Any], serial: dict[str, Any]) -> None:
    assert ours["losses"] == pytest.approx(serial["losses"], rel=1e-9)
    for name, want in serial["gradient"].items():
        scale = float(want.abs().max()) or 1.0
        assert float((ours["gradient"][name] - want).abs().max()) <= 1e-9 * scale, name
    for key, value in serial["metrics"].items():
        assert ours["metrics"][key] == pytest.approx(value, rel=1e-9), key


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_grid_trains_as_one_process_does(model, grid):
    ranks, parallel = GRIDS[grid]
    serial = observe(None, small(), settings(model))
    seen = run_ranks(observe, ranks, "threads", small(), settings(model, **parallel))
    for ours in seen:
        check_equal(ours, serial)
        # Everybody's weights are the same to the bit: nothing ever has to be told again.
        assert all(torch.equal(w, seen[0]["weights"][name]) for name, w in ours["weights"].items())
        # Every epoch but the first, in which A·X may be made, moves what was foretold.
        assert ours["books"][1:] == [ours["foretold"]] * 4
    assert serial["foretold"] == ({}, {})


def test_a_kept_aggregation_costs_words_in_the_first_epoch_alone():
    seen = run_ranks(observe, 4, "threads", small(), settings("gcn, A·X kept", strategy="1d"))
    for ours in seen:
        first, second = (books[0]["gather"] for books in ours["books"][:2])
        assert first == second + (160 - 40) * 8  # the other ranks' rows of X, once


def test_a_sum_that_misses_a_rank_is_caught(monkeypatch):
    """Gradients that are not summed are wrong on every grid, and the comparison says so."""
    serial = observe(None, small(), settings("gcn"))
    monkeypatch.setattr(Gradients, "take", lambda self, passed, wish=0: Told(wish, True))
    seen = run_ranks(observe, 2, "threads", small(), settings("gcn"))
    with pytest.raises(AssertionError):
        check_equal(seen[0], serial)


def test_many_labels_train_on_a_grid_too():
    serial = observe(None, multilabel(), settings("gcn"))
    for ours in run_ranks(observe, 4, "threads", multilabel(), settings("gcn", strategy="2d")):
        check_equal(ours, serial)


def test_ranks_without_training_vertices_take_part():
    graph = small()
    few = torch.zeros(160, dtype=torch.bool)
    few[[3, 4, 5]] = True
    graph = graph.replace(train_mask=few, val_mask=None, test_mask=None)
    serial = observe(None, graph, settings("sage max"))
    for ours in run_ranks(observe, 4, "threads", graph, settings("sage max", partition="block")):
        assert ours["losses"] == pytest.approx(serial["losses"], rel=1e-9)


def test_ranks_without_vertices_take_part(tmp_path):
    np.save(tmp_path / "parts.npy", np.arange(160) % 2 * 3)  # ranks 1 and 2 own nothing
    made = settings("gin", strategy="3d", grid="2x2x1", partition=str(tmp_path / "parts.npy"))
    serial = observe(None, small(), settings("gin"))
    for ours in run_ranks(observe, 4, "threads", small(), made):
        check_equal(ours, serial)


def test_a_run_from_a_store_on_a_grid_is_the_run_from_memory(tmp_path):
    store = open_store(write_store(small(), tmp_path / "g.weft"), verify=False)
    made = settings("gcn", strategy="halo")
    for ours, theirs in zip(
        run_ranks(observe, 3, "threads", store, made),
        run_ranks(observe, 3, "threads", small(), made),
        strict=True,
    ):
        assert ours["losses"] == theirs["losses"]
        assert ours["metrics"] == theirs["metrics"]


def check_real_ranks(mpi_ranks: Any, folder: Path, ranks: int, ways: list[dict[str, Any]]) -> None:
    path = str(write_store(small(), folder / "g.weft"))
    for serial, *losses in mpi_ranks(train_in_turn, ranks, path, ways):
        assert len(losses) == len(ways)
        for loss in losses:
            assert loss == pytest.approx(serial, rel=1e-9)


def test_three_real_ranks_train_as_one_process_does(mpi_ranks, tmp_path):
    sparse = {"strategy": "grid", "grid": "1x3x1", "exchange": "sparse", "overlap": False}
    check_real_ranks(mpi_ranks, tmp_path, 3, [{"strategy": "halo"}, {"strategy": "feature"}, sparse])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_real_ranks_train_as_one_process_does_on_every_strategy(mpi_ranks, tmp_path, ranks):
    check_real_ranks(
        mpi_ranks, tmp_path, ranks, [{"strategy": name} for name in STRATEGIES if name != "grid"]
    )


# Cora, seed by seed


def trained(comm: Communicator | None, graph: Graph, made: RunConfig) -> tuple[list[float], dict[str, float]]:
    result = Trainer(graph, made, comm).fit()
    return result.loss, result.accuracy


@pytest.mark.parametrize("seed", [0, 1])
def test_cora_gives_serial_accuracy_on_every_strategy(data: Path, seed: int):
    graph = load("cora", data)
    made = RunConfig()
    made.model.hidden, made.train.dtype, made.train.seed = 16, "float64", seed
    made.train.epochs, made.train.evaluate_every = 6, 3
    loss, accuracy = trained(None, graph, made)
    assert accuracy["test"] > 0.5  # it has learned something to compare
    for strategy in STRATEGIES:
        made.parallel.strategy, made.parallel.grid = strategy, "2x1x2" if strategy == "grid" else ""
        for ours, theirs in run_ranks(trained, 4, "threads", graph, made):
            assert ours == pytest.approx(loss, rel=1e-9), strategy
            assert theirs == accuracy, strategy


# Mistakes


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (
            {"strategy": "2d", "grid": "2x2"},
            "2d needs a grid of row x feature; 3 ranks were given as 2x2. Use --grid 3x1, or --ranks 4.",
        ),
        (
            {"strategy": "1.5d", "replication": 2},
            "replication 2 does not divide 3 ranks. Use one of 1, 3.",
        ),
        (
            {"strategy": "1d", "move_adjacency": True},
            "--move-adjacency cuts A along the feature axis, grid 3x1x1 has none.",
        ),
        (
            {"partition": "blocks"},
            "unknown partition 'blocks'. Did you mean 'block'?",
        ),
        (
            {"partition": "nowhere.npy"},
            "no file nowhere.npy. Make one: weft partition GRAPH --parts P --out nowhere.npy.",
        ),
        (
            {"partition": "short.npy"},
            "short.npy has 159 parts for 160 vertices. Make it for this graph.",
        ),
        (
            {"partition": "wild.npy"},
            "the partition has part 3, but 3 ranks have 0 to 2. Make it with --parts 3.",
        ),
        (
            {"partition": "negative.npy"},
            "the partition has part -1, but 3 ranks have 0 to 2. Make it with --parts 3.",
        ),
        (
            {"partition": "shares.npy"},
            "shares.npy does not hold one whole number a vertex. Make it with weft partition.",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path, parallel, message):
    np.save(tmp_path / "short.npy", np.arange(159) % 3)
    np.save(tmp_path / "wild.npy", np.arange(160) % 4)
    np.save(tmp_path / "negative.npy", np.arange(160) % 4 - 1)
    np.save(tmp_path / "shares.npy", np.linspace(0, 1, 160))
    with pytest.raises(UserError) as caught:
        run_ranks(observe, 3, "threads", small(), settings("gcn", **parallel))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_more_ranks_than_vertices_are_refused():
    from weft.graph import karate
    from weft.parallel import Grid

    with pytest.raises(UserError) as caught:
        check_assignment(karate().num_nodes, Grid(5, 7), RunConfig().parallel)
    assert str(caught.value) == "35 ranks are more than the graph's 34 vertices. Use --ranks 34 or fewer."


def reported(comm: Communicator, strategy: str, epochs: int) -> tuple[dict[str, int], dict[str, int]]:
    """Words received and foretold of the epoch that a run of so many epochs reports."""
    made = config(epochs=epochs)
    made.parallel.strategy = strategy
    result = Trainer(small(), made, comm).fit()
    assert result.moved is not None
    assert result.foretold is not None
    return result.moved.words, result.foretold.words


@pytest.mark.parametrize("strategy", ["1d", "halo", "2d", "feature"])
def test_the_words_of_a_first_epoch_that_is_the_last_are_foretold_with_those_that_make_ax(strategy):
    for (moved, foretold), (_, steady) in zip(
        run_ranks(reported, 4, "threads", strategy, 1),
        run_ranks(reported, 4, "threads", strategy, 2),
        strict=True,
    ):
        assert moved == foretold
        assert sum(moved.values()) > sum(steady.values())

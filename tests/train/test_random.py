"""Configurations drawn at random, against one process: models, options, grids, partitions, feeds."""

from __future__ import annotations

import random

import pytest

from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.graph import Graph, hold_out
from weft.nn import MODELS
from weft.train import RunConfig
from weft.train.numbers import BadNumbers
from weft.train.verify import TOLERANCE, compare, serial, trace

from .graphs import small

GRIDS = {
    1: [("1d", "")],
    2: [("1d", ""), ("halo", ""), ("feature", ""), ("grid", "1x2x1")],
    3: [("1d", ""), ("halo", ""), ("feature", ""), ("grid", "1x3x1")],
    4: [("2d", "2x2"), ("a-stationary", "2x2"), ("1.5d", ""), ("grid", "2x1x2"), ("halo", "")],
    6: [("a-stationary", "2x3"), ("grid", "1x2x3"), ("grid", "3x2x1"), ("2d", "3x2")],
}

DRAWN = [name for name in MODELS if name in ("gcn", "sage", "gin", "sgc", "gat", "agnn", "va")]
"""Models of a graph without arc data, under every feed."""


def drawn(seed: int) -> tuple[RunConfig, int]:
    """A config, and on how many ranks; both follow from the seed."""
    draw = random.Random(seed)
    made = RunConfig()
    model, train, parallel, batch = made.model, made.train, made.parallel, made.batch
    model.name, model.hidden, model.layers = (
        draw.choice(DRAWN),
        draw.choice((3, 5)),
        draw.choice((1, 2, 3)),
    )
    model.dropout, model.input_dropout = draw.choice((0.0, 0.4)), draw.choice((0.0, 0.3))
    model.bias, model.residual = draw.random() < 0.6, draw.random() < 0.3
    model.layer_norm = draw.random() < 0.3
    train.dtype, train.epochs, train.lr, train.seed = "float64", 3, 0.02, seed
    train.clip_norm = draw.choice((0.0, 0.0, 0.3))
    train.optimizer = draw.choice(("adam", "sgd", "rmsprop", "adamw"))
    if model.name == "va" and not train.clip_norm:
        # Its layers are products of three: a step too long, and losses grow to 1e204 within two epochs,
        # where the last digits of a sum come up in the ninth of the next loss.
        train.clip_norm = 0.3
    ranks = draw.choice(list(GRIDS))
    parallel.strategy, parallel.grid = draw.choice(GRIDS[ranks])
    if parallel.strategy == "1.5d":
        parallel.replication = 2
    parallel.partition = draw.choice(("random", "block", "hash"))
    parallel.exchange = draw.choice(("", "dense", "sparse"))
    parallel.order = draw.choice(("none", "none", "degree"))
    if draw.random() < 0.3:
        train.task, made.link.pair_batch, made.link.hits = "link", 70, 5
        made.link.embedding_width = draw.choice((0, 3))
        made.link.decoder = draw.choice(("dot", "mlp"))
    if draw.random() < 0.4:
        batch.batch_size, batch.feed = draw.choice((11, 40)), draw.choice(("pull", "push-pull"))
        batch.fanouts, batch.pipeline = ",".join(["3"] * model.layers), draw.random() < 0.3
        if train.task == "link":
            made.link.pair_batch = 65536  # batches have their own size
        parallel.strategy, parallel.grid, parallel.exchange, parallel.replication = "1d", "", "", 0
    return made, ranks


def differences(comm: Communicator, graph: Graph, made: RunConfig) -> dict[str, float]:
    found = trace(graph, made, comm)
    return compare(found, serial(graph, made)) if comm.rank == 0 else {}


def try_one(seed: int) -> bool:
    """Whether the config can be run; where it can, it must give the serial numbers."""
    made, ranks = drawn(seed)
    graph = small(nodes=61)
    graph = hold_out(graph, 0.1, 0.1, 0) if made.train.task == "link" else graph
    try:
        rows = run_ranks(differences, ranks, "threads", graph, made)[0]
    except UserError:
        return False
    wrong = {name: value for name, value in rows.items() if not value <= TOLERANCE["float64"]}
    assert not wrong, (seed, made, ranks, wrong)
    return True


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_random_configuration_gives_the_serial_numbers(first):
    ran = sum(try_one(seed) for seed in range(first, first + 10))
    assert ran >= 5  # few draws are refused: what is tested is not refusals


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1400, 40))
def test_many_random_configurations_do(first):
    assert sum(try_one(seed) for seed in range(first, first + 20)) >= 8


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_sgc_without_bias_is_fed_by_columns(layers):
    """All its weights are cut: nothing is left for the flat sum but two words."""
    made = RunConfig()
    made.model.name, made.model.bias, made.model.layers, made.train.dtype = "sgc", False, layers, "float64"
    made.train.epochs, made.batch.batch_size, made.batch.feed = 2, 13, "push-pull"
    made.batch.fanouts = ",".join(["3"] * layers)
    rows = run_ranks(differences, 2, "threads", small(nodes=61), made)[0]
    assert max(rows.values()) < 1e-9


def test_a_run_that_overflows_is_not_compared_but_named():
    """Draw 1044 without its clip: one process, too, has losses of 1e3 and 1e204, then NaN gradients."""
    made, ranks = drawn(1044)
    assert (made.model.name, made.train.optimizer, made.train.task) == ("va", "sgd", "link")
    made.train.clip_norm = 0.0
    graph = hold_out(small(nodes=61), 0.1, 0.1, 0)
    for run in (lambda: serial(graph, made), lambda: run_ranks(differences, ranks, "threads", graph, made)):
        with pytest.raises(BadNumbers, match="the loss or a gradient is not finite in epoch 2, ") as caught:
            run()
        assert "Lower --lr, now 0.02, or use --clip-norm 1." in str(caught.value)
    made.train.on_nan = "skip"  # as asked: left out, on all ranks alike
    assert len(serial(graph, made).losses) == 3


def test_a_scalar_gradient_that_is_nothing_but_rounding_is_no_difference():
    made = RunConfig()
    made.train.dtype, made.train.epochs, made.model.hidden = "float64", 1, 3
    a, b = serial(small(nodes=61), made), serial(small(nodes=61), made)
    a.gradients[1]["nothing"], b.gradients[1]["nothing"] = (x.new_tensor([v]) for x, v in (
        (a.embedding, 3e-17), (a.embedding, -2e-17)))  # fmt: skip
    assert max(compare(a, b).values()) < TOLERANCE["float64"]
    b.gradients[1]["nothing"] += 1e-8
    assert max(compare(a, b).values()) > TOLERANCE["float64"]

from __future__ import annotations

import pytest
import torch

from weft.comm import run_ranks
from weft.comm.threads import single
from weft.graph import Graph, karate, write_store
from weft.train import RunConfig
from weft.train.verify import TOLERANCE, compare, serial, trace

from .graphs import small
from .real_ranks import OVER_ARCS, attention, batches_over_arcs, verify_attention


def config() -> RunConfig:
    out = RunConfig()
    out.train.epochs, out.train.dtype, out.model.hidden = 4, "float64", 5
    return out


def test_a_distributed_run_is_the_serial_one_in_every_compared_thing():
    alone = serial(karate(), config())
    for distributed in run_ranks(lambda comm: trace(karate(), config(), comm), 3, "threads"):
        rows = compare(distributed, alone)
        assert {"loss", "embedding", "gradient of layers.0.weight, epoch 1"} <= rows.keys()
        assert "gradient of layers.1.bias, epoch 4" in rows
        assert max(rows.values()) < TOLERANCE["float64"]


@pytest.mark.parametrize("spoil", ["losses", "gradients", "embedding"])
def test_a_difference_is_seen(spoil):
    a, b = serial(karate(), config()), serial(karate(), config())
    assert max(compare(a, b).values()) == 0
    if spoil == "losses":
        b.losses[2] *= 1 + 1e-6
    elif spoil == "gradients":
        b.gradients[4]["layers.0.weight"] = b.gradients[4]["layers.0.weight"] + 1e-6
    else:
        b.embedding = torch.where(b.embedding == b.embedding.max(), 0.0, b.embedding)
    assert max(compare(a, b).values()) > 1e-7


# Attention: a directed graph, a prime number of vertices, dropout of inputs, activations and arcs.

PRIME = 53
WAYS = {
    "a-stationary 2x2": (4, {"strategy": "a-stationary", "grid": "2x2"}),
    "a-stationary 2x3": (6, {"strategy": "a-stationary", "grid": "2x3"}),
    "a-stationary 3x3": (9, {"strategy": "a-stationary", "grid": "3x3"}),
    "1d": (3, {"strategy": "1d"}),
    "halo": (4, {"strategy": "halo"}),
    "2d": (4, {"strategy": "2d"}),
    "2d, A moves": (4, {"strategy": "2d", "move_adjacency": True}),
    "3d": (8, {"strategy": "3d", "grid": "2x2x2"}),
    "feature": (3, {"strategy": "feature"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_attention_on_a_grid_is_the_serial_run(way):
    graph = small(nodes=PRIME)
    assert graph.num_nodes == PRIME
    ranks, parallel = WAYS[way]
    ways = [(model, parallel) for model in ("gat", "agnn", "va")]
    differences = run_ranks(verify_attention, ranks, "threads", graph, ways)[0]
    assert len(differences) == 3
    assert max(differences) < TOLERANCE["float64"], differences


def test_another_mask_of_arcs_would_be_seen():
    """The comparison does compare what dropout of arcs does."""
    made = attention("gat")
    alone = trace(small(nodes=PRIME), made, single())
    made.model.attention_dropout = 0.41
    assert max(compare(trace(small(nodes=PRIME), made, single()), alone).values()) > 1e-4


def carrying() -> Graph:
    graph, g = small(nodes=PRIME), torch.Generator().manual_seed(4)
    arcs = graph.num_arcs
    kinds, features = torch.randint(3, (arcs,), generator=g), torch.randn(arcs, 3, generator=g)
    return graph.replace(arc_data={"features": features, "type": kinds})


STRATEGIES = ("1d", "halo", "1.5d", "a-stationary", "2d", "3d", "feature")
RANKS = (2, 3, 4, 8)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("model", OVER_ARCS)
def test_models_over_arcs_on_every_strategy_are_the_serial_run(model, ranks):
    """Blocks of all three axes, axes cut unevenly; dropout of everything; words as foretold."""
    ways = [(model, {"strategy": name}) for name in STRATEGIES]
    differences = run_ranks(verify_attention, ranks, "threads", carrying(), ways)[0]
    assert len(differences) == len(ways)
    assert max(differences) < TOLERANCE["float64"], dict(zip(STRATEGIES, differences, strict=True))


def in_rotation(models: tuple[str, ...], ranks: int) -> list[tuple[str, dict[str, str]]]:
    """Each strategy with two models, each number of ranks with the next two.

    So each of seven models is with each strategy on one number of real ranks at least. Virtual ranks try all
    models over arcs with all strategies on each of these numbers.
    """
    first = 2 * RANKS.index(ranks)
    return [
        (models[(i + first + k) % len(models)], {"strategy": name})
        for i, name in enumerate(STRATEGIES)
        for k in (0, 1)
    ]


def test_the_rotation_has_every_model_with_every_strategy():
    pairs = {(model, way["strategy"]) for ranks in RANKS for model, way in in_rotation(OVER_ARCS, ranks)}
    assert len(pairs) == len(OVER_ARCS) * len(STRATEGIES)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RANKS)
def test_attention_and_models_over_arcs_on_real_ranks_are_the_serial_run(mpi_ranks, tmp_path, ranks):
    path = str(write_store(carrying(), tmp_path / "g.weft"))
    ways = [*in_rotation(OVER_ARCS, ranks), *in_rotation(("gat", "agnn", "va"), ranks)[::2]]
    differences = mpi_ranks(verify_attention, ranks, path, ways)[0]
    assert len(differences) == len(ways)
    assert max(differences) < TOLERANCE["float64"], dict(zip(map(str, ways), differences, strict=True))
    models = OVER_ARCS if ranks < 8 else ("transformer", "rgcn")  # empty batches
    batches = mpi_ranks(batches_over_arcs, ranks, path, models)[0]
    assert len(batches) == len(models)
    assert max(batches) < TOLERANCE["float64"], batches

from __future__ import annotations

import pytest
import torch

from weft.comm import run_ranks
from weft.graph import karate
from weft.train import RunConfig
from weft.train.verify import TOLERANCE, compare, serial, trace


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

"""Batch norms in a model of ranks: said aloud, once."""

from __future__ import annotations

import warnings

import pytest
from torch import nn

from weft.comm import run_ranks
from weft.errors import Note
from weft.nn import build
from weft.train import Trainer

from .graphs import config, small


def with_batch_norm():
    graph, settings = small(), config()
    model = build(settings.model, graph.num_features, graph.num_classes, seed=0)
    model.add_module("norm", nn.BatchNorm1d(3))
    return graph, settings, model


def test_on_two_ranks_rank_0_says_what_depends_on_them():
    def work(comm):
        graph, settings, model = with_batch_norm()
        return Trainer(graph, settings, comm, model=model) is not None

    with pytest.warns(Note) as said:
        run_ranks(work, 2, "threads")
    lines = [str(one.message) for one in said if issubclass(one.category, Note)]
    assert len(lines) == 1
    assert lines[0].startswith("norm (BatchNorm1d) takes the mean of each rank's own rows: losses depend on")


def test_alone_and_without_batch_norms_nothing_is_said():
    graph, settings, model = with_batch_norm()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(graph, settings, model=model)
        run_ranks(lambda comm: Trainer(small(), config(), comm) is not None, 2, "threads")

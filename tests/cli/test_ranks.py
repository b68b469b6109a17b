"""Where ranks come from: a store that is ready is read by them alone."""

from __future__ import annotations

import pytest
import torch

from weft.cli.ranks import check_layout, ready_store
from weft.comm.threads import run_threads
from weft.errors import UserError
from weft.graph import Store, karate, open_store, write_store
from weft.train import RunConfig, Trainer
from weft.train.tasks import check_task


def config(graph="g.weft", **train) -> RunConfig:
    found = RunConfig()
    found.data.graph, found.train.epochs = str(graph), 1
    for name, value in train.items():
        setattr(found.train, name, value)
    return found


def test_of_a_store_that_brings_its_split_the_header_alone_is_read(tmp_path, monkeypatch):
    path = write_store(karate(), tmp_path / "g.weft")
    monkeypatch.setattr(Store, "_map", None)  # who reads a section fails
    monkeypatch.setattr(Store, "verify", None)
    store = ready_store(config(path))
    assert store is not None
    assert store.path == path
    check_task(store, config(path))
    bare = karate().replace(train_mask=None, val_mask=None, test_mask=None)
    assert ready_store(config(write_store(bare, tmp_path / "bare.weft"))) is None
    assert ready_store(config("karate")) is None
    unlabelled = bare.replace(labels=None, train_mask=torch.ones(34, dtype=torch.bool))
    store = ready_store(config(write_store(unlabelled, tmp_path / "u.weft")))
    assert store is not None
    with pytest.raises(UserError, match="no labels to train on"):
        check_task(store, config(path))


@pytest.mark.parametrize(
    ("changes", "train", "message"),
    [
        (
            {"labels": torch.full((34,), -1), "num_classes": 2},
            {},
            "4 vertices of karate are in train_mask but",
        ),
        ({"train_mask": torch.zeros(34, dtype=torch.bool)}, {}, "no training vertices"),
        ({"val_mask": None}, {"patience": 3}, "patience=3 needs validation vertices"),
    ],
)
def test_values_that_cannot_be_learned_from_are_refused_by_the_ranks_that_read_them(
    tmp_path, changes, train, message
):
    graph = karate().replace(**changes)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    settings = config(**train)
    settings.parallel.ranks = 2

    def work(comm, source):
        with pytest.raises(UserError, match=message):
            Trainer(source, settings, comm)
        return True

    assert all(run_threads(work, 2, store))


def test_a_strategy_that_nobody_knows_is_told_beside_auto():
    wrong = config("karate")
    wrong.parallel.strategy = "4d"
    with pytest.raises(UserError, match=r"unknown strategy '4d'\..* feature, grid, auto\."):
        check_layout(wrong, 2)

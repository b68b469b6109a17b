"""Where ranks come from: a store that is ready is read by them alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from weft.cli import ranks
from weft.cli.ranks import check_layout, load_graph, on_ranks, ready_store
from weft.comm.threads import run_threads
from weft.errors import UserError
from weft.graph import Store, karate, open_store, split, write_store
from weft.graph.store import checksum
from weft.train import RunConfig, Trainer
from weft.train.tasks import check_task


def config(graph="g.weft", **train) -> RunConfig:
    found = RunConfig()
    found.data.graph, found.train.epochs = str(graph), 1
    for name, value in train.items():
        setattr(found.train, name, value)
    return found


def bare(**changes):
    """Karate's club without a split, and with a vertex that has no label."""
    labels = karate().labels.clone()
    labels[5] = -1
    masks = dict.fromkeys(("train_mask", "val_mask", "test_mask"))
    return karate().replace(**{"labels": labels, "num_classes": 2, **masks, **changes})


def test_of_a_store_that_brings_its_split_the_header_alone_is_read(tmp_path, monkeypatch):
    path = write_store(karate(), tmp_path / "g.weft")
    monkeypatch.setattr(Store, "_map", None)  # who reads a section fails
    monkeypatch.setattr(Store, "verify", None)
    store = ready_store(config(path))
    assert store is not None
    assert store.path == path
    check_task(store, config(path))
    assert ready_store(config("karate")) is None
    unlabelled = bare().replace(labels=None, train_mask=torch.ones(34, dtype=torch.bool))
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


# A store without a split


@pytest.fixture
def read(monkeypatch):
    """The sections that this process reads; who loads a graph, or compares a whole file, fails."""
    seen = set()
    look = Store._map

    def spy(self, key, first=0, last=None):
        seen.add(key)
        return look(self, key, first, last)

    monkeypatch.setattr(Store, "_map", spy)
    for name in ("weft.graph.load", "weft.graph.Store.graph", "weft.graph.Store.verify"):
        monkeypatch.setattr(name, None)
    return seen


def losses(comm, source, settings):
    found = Trainer(source, settings, comm).fit().loss
    if comm.rank == 0:
        losses.found = found
    return 0


SEVERAL = {"labels": torch.arange(102).view(34, 3) % 5 < 2, "num_classes": 3}


@pytest.mark.parametrize(
    ("labels", "shares"),
    [({}, (0.5, 0.2)), ({}, (3.0, 4.0)), (SEVERAL, (0.5, 4.0))],
    ids=["shares", "counts", "several"],
)
def test_a_split_is_drawn_of_the_labels_alone_and_is_that_of_the_graph_in_memory(
    tmp_path, read, labels, shares
):
    # A mask of its own, but none to train on: all are drawn, as in memory.
    own = bare(val_mask=torch.ones(34, dtype=torch.bool), **labels)
    settings = config(write_store(own, tmp_path / "g.weft"), seed=4)
    settings.data.train_share, settings.data.val_share = shares
    assert ready_store(settings).beside is None  # a plan draws nothing
    store = ready_store(settings, lambda: tmp_path)
    assert read == {"labels"}
    found, again = store.rows(0, 34), ranks._open_shared(store.beside)
    memory = split(own, *ranks._shares(settings), seed=4)
    some = torch.tensor([33, 2, 7])
    for key in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(found, key), getattr(memory, key))
        assert torch.equal(getattr(again.rows(some), key), getattr(memory, key)[some])
    assert checksum(again) == checksum(memory)


@pytest.mark.parametrize("brings", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_losses_are_those_of_the_graph_in_memory(tmp_path, monkeypatch, count, brings):
    graph = split(bare(), seed=2) if brings else bare()
    settings = config(write_store(graph, tmp_path / "g.weft"), epochs=3, seed=2)
    settings.parallel.ranks, settings.parallel.engine = count, "threads"
    assert on_ranks([], settings, lambda comm, source: losses(comm, source, settings)) == 0
    memory = losses.found
    monkeypatch.setattr(ranks, "_LARGE", 0)
    monkeypatch.setattr("weft.graph.load", None)
    monkeypatch.setattr(Store, "verify", None)
    seen = []

    def work(comm, source):
        seen.append(source.beside)
        return losses(comm, source, settings)

    assert on_ranks([], settings, work) == 0
    assert losses.found == memory
    assert len(seen) == count
    assert (seen[0] is None) == brings
    assert brings or not seen[0].parent.exists()  # it went with the command


def test_started_ranks_are_told_of_the_split_beside_the_store(tmp_path, monkeypatch, read):
    path = write_store(bare(), tmp_path / "g.weft")
    settings, told = config(path, seed=2), []
    settings.parallel.ranks, settings.parallel.engine = 2, "mpi"

    def launch(argv, *_):
        file = Path(argv[argv.index("--store") + 1])
        told.append((file, {p.name for p in file.parent.iterdir()}, ranks._open_shared(file).rows(0, 34)))
        return 0

    monkeypatch.setattr("weft.comm.launch.launch", launch)
    assert on_ranks(["train"], settings, None) == 0
    _, beside, rows = told[0]
    assert beside == {"graph.split", "run.toml"}
    assert torch.equal(rows.train_mask, split(bare(), seed=2).train_mask)


@pytest.mark.parametrize("hosts", [1, 2])
def test_under_mpirun_the_first_rank_draws_and_all_read(tmp_path, monkeypatch, read, hosts):
    (tmp_path / "shared").mkdir()
    path = write_store(bare(), tmp_path / "shared" / "g.weft")
    here, seen = threading.local(), []
    monkeypatch.setattr("weft.comm.in_job", lambda: True)
    monkeypatch.setattr("weft.comm.connect", lambda *_: here.comm)
    whole = split(bare(), seed=2)

    def job(comm):
        here.comm = comm
        comm.hosts = [rank % hosts for rank in range(comm.size)]
        settings = config(path, seed=2)

        def work(comm, source):
            seen.append(source.beside.parent.parent == path.parent)
            assert torch.equal(source.rows(0, 34).val_mask, whole.val_mask)
            return 0

        return on_ranks(["train"], settings, work)

    assert run_threads(job, 3) == [0, 0, 0]
    assert seen == [hosts == 2] * 3  # what several hosts see is the folder of the store
    assert [p.name for p in path.parent.iterdir()] == ["g.weft"]


def test_what_cannot_be_split_is_said_before_ranks_are_started(tmp_path):
    settings = config(write_store(bare(), tmp_path / "g.weft"))
    settings.data.train_share = settings.data.val_share = 0.9
    with pytest.raises(UserError, match=r"train=0.9 and val=0.9 ask for 60 of 33 labelled vertices"):
        ready_store(settings, lambda: tmp_path)


def test_a_store_of_old_is_compared_once_and_not_copied(tmp_path, monkeypatch):
    path = write_store(bare(), tmp_path / "g.weft")
    monkeypatch.setattr(Store, "checks_itself", False)
    times = []
    monkeypatch.setattr(Store, "verify", lambda self: times.append(1))
    assert ready_store(config(path), lambda: tmp_path).beside == tmp_path / "graph.split"
    assert times == [1]


def test_links_are_held_out_of_a_store_only_where_memory_has_room_for_its_arcs(tmp_path, monkeypatch):
    settings = config(write_store(bare(), tmp_path / "g.weft"), task="link")
    assert ready_store(settings, lambda: tmp_path) is None  # all its arcs are looked at
    monkeypatch.setattr("weft.graph.guard.free_bytes", lambda: 100 * 156 - 1)
    with pytest.raises(UserError, match=r"g\.weft brings no pairs.*Bring them: weft\.hold_out"):
        ready_store(settings, lambda: tmp_path)
    settings.link.hold_val = settings.link.hold_test = 0.0
    assert ready_store(settings, lambda: tmp_path, trains=False) is not None  # none are wanted


def test_a_damaged_split_is_one_line(tmp_path):
    store = ready_store(config(write_store(bare(), tmp_path / "g.weft")), lambda: tmp_path)
    raw = store.beside.read_bytes()
    for bad in (b"", raw[:-1], b"{}" + raw[2:], raw.replace(b'"vertices": 34', b'"vertices": 33')):
        store.beside.write_bytes(bad)
        with pytest.raises(UserError, match=r"graph\.split: .* Start again"):
            ranks._open_shared(store.beside)
    store.beside.write_bytes(raw[:-1] + b"\x07")
    with pytest.raises(UserError, match="test_mask hold a byte that is neither 0 nor 1"):
        ranks._open_shared(store.beside).rows(0, 34)


def test_a_task_that_wants_the_graph_in_memory_copies_no_store_either(tmp_path, monkeypatch):
    settings = config(write_store(bare(), tmp_path / "g.weft"), seed=3)
    graph = load_graph(settings)
    monkeypatch.setattr("weft.graph.write_store", None)
    path = ranks._stored(graph, settings, lambda: tmp_path)
    assert path.suffix == ".split"
    assert checksum(ranks._open_shared(path)) == checksum(graph)

"""Labels and splits of the converter: those of a graph in memory, bit for bit, in few bytes a vertex."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, open_store, split
from weft.graph.store import checksum
from weft.graph.stream import Options, convert
from weft.graph.stream.labels import Labels
from weft.graph.writer import Writer

N = 333


@pytest.fixture
def few(monkeypatch):
    for name in ("weft.graph.split", "weft.graph.stream.labels"):
        monkeypatch.setattr(sys.modules[name], "SOME", 50)


@pytest.fixture
def ring(tmp_path):
    (tmp_path / "g.txt").write_text("".join(f"{v} {(v + 1) % N}\n" for v in range(N)))
    return tmp_path / "g.txt"


def graph(labels=None, shares=None, seed=0):
    v = np.arange(N)
    plain = Graph.from_arcs(v, (v + 1) % N, labels=labels)
    return plain if shares is None else split(plain, *shares, seed)


CLASSES = np.random.default_rng(0).integers(-1, 5, N)
FLAGS = np.random.default_rng(1).random((N, 7)) < 0.3


@pytest.mark.parametrize("shares", [None, (0.5, 0.25), (4, 30)])
@pytest.mark.parametrize("kind", ["i1", "<i8", ">i4", "f-order"])
def test_classes_and_their_split_are_those_of_a_graph(ring, tmp_path, few, shares, kind):
    y = CLASSES.astype("i8" if kind == "f-order" else kind)
    np.save(tmp_path / "y.npy", np.asfortranarray(y) if kind == "f-order" else y)
    options = Options(labels=str(tmp_path / "y.npy"), split=shares, seed=6)
    done = convert([ring], tmp_path / "g.weft", options)
    wanted = graph(torch.from_numpy(CLASSES), shares, 6)
    assert checksum(open_store(tmp_path / "g.weft")) == checksum(wanted)
    assert done.num_classes == wanted.num_classes == 5


@pytest.mark.parametrize("kind", ["?", "u1", "f4", "f-order"])
def test_many_labels_are_those_of_a_graph(ring, tmp_path, few, kind):
    y = FLAGS.astype("i8" if kind == "f-order" else kind)
    np.save(tmp_path / "y.npy", np.asfortranarray(y) if kind == "f-order" else y)
    options = Options(labels=str(tmp_path / "y.npy"), split=(0.5, 20), seed=1)
    assert convert([ring], tmp_path / "g.weft", options).num_classes == 7
    wanted = graph(torch.from_numpy(FLAGS), (0.5, 20), 1)
    assert checksum(open_store(tmp_path / "g.weft")) == checksum(wanted)


@pytest.mark.parametrize(
    "labels",
    [
        np.where(np.arange(N) % 100 == 99, -2, CLASSES), CLASSES.astype("f8"), FLAGS[:, 0], FLAGS * 2,
        FLAGS + 0.5,
    ],
    ids=["class -2", "fractions", "flags", "twos", "halves"],
)  # fmt: skip
def test_what_a_graph_refuses_is_refused_in_its_words(ring, tmp_path, few, labels):
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(UserError) as plain:
        graph(torch.from_numpy(labels))
    with pytest.raises(UserError) as found:
        convert([ring], tmp_path / "g.weft", Options(labels=str(tmp_path / "y.npy")))
    assert str(found.value) == f"{tmp_path / 'y.npy'}: {plain.value}"
    assert not (tmp_path / "g.weft").exists()


def test_a_count_per_class_is_for_one_label_a_vertex(ring, tmp_path):
    np.save(tmp_path / "y.npy", FLAGS)
    with pytest.raises(UserError, match=r"train=3 per class does not suit many labels a vertex"):
        convert([ring], tmp_path / "g.weft", Options(labels=str(tmp_path / "y.npy"), split=(3, 0.1)))


@pytest.mark.parametrize(("shares", "each"), [(None, 1), ((0.6, 0.2), 6), ((20, 0.2), 7)])
def test_what_is_held_is_a_few_bytes_a_vertex(tmp_path, monkeypatch, shares, each):
    n = 500_000
    for name in ("weft.graph.split", "weft.graph.stream.labels"):
        monkeypatch.setattr(sys.modules[name], "SOME", 1 << 12)
    np.save(tmp_path / "y.npy", np.arange(n) % 40)
    labels = Labels(str(tmp_path / "y.npy"), n, shares, 0, each * n if shares is None else 7 * n)
    with open(tmp_path / "out", "wb") as file:
        writer = Writer(file)
        tracemalloc.start()
        try:
            labels.write(writer)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < each * n
    if shares is not None:
        with pytest.raises(UserError, match=r"a split of 500000 vertices takes .* Give more --memory"):
            Labels(str(tmp_path / "y.npy"), n, shares, 0, 7 * n - 1)

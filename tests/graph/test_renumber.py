"""Vertices in another order, and stores that lie part by part."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import weft.graph.renumber as module
from weft.cli import main
from weft.comm.threads import single
from weft.errors import UserError
from weft.graph import er, hold_out, load, open_store, write_store
from weft.graph.renumber import renumber_store, renumbered
from weft.graph.store import checksum
from weft.parallel import Grid
from weft.parallel.assign import assign
from weft.train.config import ParallelConfig


def arcs(graph, names):
    weights = [1.0] * graph.num_arcs if graph.weights is None else graph.weights.tolist()
    ends = zip(names[graph.indices.long()].tolist(), names[graph.rows].tolist(), weights, strict=True)
    return sorted(ends)


def test_all_that_vertices_and_arcs_carry_goes_along():
    graph = er(nodes=53, degree=4, directed=True, features=3, classes=4)
    graph = graph.replace(
        weights=torch.rand(graph.num_arcs), vertex_data={"age": torch.arange(53)}, ids=torch.arange(53) * 7
    )
    graph = graph.replace(arc_data={"name": graph.indices.long() * 53 + graph.rows})
    order = torch.randperm(53, generator=torch.Generator().manual_seed(3))
    found = renumbered(graph, order)
    assert arcs(found, found.ids) == arcs(graph, graph.ids)
    assert torch.equal(found.features, graph.features[order])
    assert torch.equal(found.labels, graph.labels[order])
    assert torch.equal(found.train_mask, graph.train_mask[order])
    assert torch.equal(found.vertex_data["age"], order)
    assert torch.equal(found.arc_data["name"], order[found.indices.long()] * 53 + order[found.rows])
    held = hold_out(er(nodes=53, degree=6), 0.1, 0.1, 0)
    moved = renumbered(held, order)
    assert torch.equal(order[moved.val_pairs], held.val_pairs)
    with pytest.raises(UserError, match="names each of them once"):
        renumbered(graph, torch.zeros(53, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["vertices", "pairs"])
def test_a_store_written_anew_row_by_row_is_that_of_the_renumbered_graph(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(module, "_SOME_ROWS", 11)
    monkeypatch.setattr(module, "_SOME_ARCS", 9)
    if kind == "pairs":
        graph = hold_out(er(nodes=53, degree=6), 0.1, 0.1, 0)
    else:
        graph = er(nodes=53, degree=4, directed=True, features=3, classes=4)
        graph = graph.replace(
            weights=torch.rand(graph.num_arcs), vertex_data={"age": torch.rand(53, 2)},
            ids=torch.arange(53) * 7,
            arc_data={"time": torch.rand(graph.num_arcs, 2), "type": torch.arange(graph.num_arcs)},
        )  # fmt: skip
    order = torch.randperm(53, generator=torch.Generator().manual_seed(3))
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    made = open_store(renumber_store(store, order, tmp_path / "new.weft", [50, 3]))
    assert checksum(made) == checksum(renumbered(graph, order))
    assert made.parts == [50, 3]
    with pytest.raises(UserError, match="names each of them once"):
        renumber_store(store, torch.zeros(53, dtype=torch.int64), tmp_path / "no.weft")
    with pytest.raises(UserError, match="exists already"):
        renumber_store(store, order, tmp_path / "new.weft")


def test_a_rank_of_a_partitioned_store_owns_one_range(weft_partition, tmp_path):
    store = open_store(tmp_path / "g.parts.weft", verify=False)
    assert store.parts is not None
    assert (len(store.parts), sum(store.parts)) == (3, 34)
    blocks = assign(store, Grid(3), ParallelConfig(partition="block"), 0, single())
    assert blocks.sizes == store.parts
    assert torch.equal(blocks.order, torch.arange(34))
    other = assign(store, Grid(2), ParallelConfig(partition="block"), 0, single())
    assert other.sizes == [17, 17]  # another number of ranks: even blocks
    graph, club = store.graph(), load("karate")
    parts = torch.from_numpy(np.load(tmp_path / "parts.npy"))
    assert torch.equal(parts[graph.ids], parts.sort().values)
    assert arcs(graph, graph.ids) == arcs(club, torch.arange(34))
    assert json.loads(weft_partition)["parts"] == 3


@pytest.fixture
def weft_partition(tmp_path, capsys):
    for out in ("parts.npy", "g.parts.weft"):
        words = ["partition", "karate", "--parts", "3", "--method", "metis", "--json"]
        capsys.readouterr()
        assert main([*words, "--out", str(tmp_path / out)]) == 0
    return capsys.readouterr().out


def test_parts_that_do_not_add_up_are_refused(tmp_path):
    path = write_store(load("karate"), tmp_path / "g.weft", parts=[30, 5])
    with pytest.raises(UserError, match="the header makes no sense"):
        open_store(path)

"""A block of a store: the entries of some rows and some columns, and what is read for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import weft.graph.rows as rows_of
import weft.graph.store as module
from weft.errors import UserError
from weft.graph import Graph, Store, load, open_store, write_store

N = 64


def made() -> Graph:
    """Directed, with a hub, and data at the arcs."""
    graph = load(f"er:nodes={N},degree=5,directed=true,seed=3")
    rows = torch.cat([graph.rows, torch.full((N,), 7)])
    columns = torch.cat([graph.indices.long(), torch.arange(N)])
    plain = Graph.from_arcs(columns, rows, N)
    g = torch.Generator().manual_seed(0)
    return plain.replace(
        weights=torch.rand(plain.num_arcs, generator=g),
        arc_data={"time": torch.rand(plain.num_arcs, 2, generator=g)},
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Store]:
    graph = made()
    return graph, open_store(write_store(graph, tmp_path_factory.mktemp("b") / "g.weft"), verify=False)


def dense(graph: Graph) -> Tensor:
    out = torch.zeros(N, N, 3)
    out[graph.rows, graph.indices.long(), 0] = graph.weights.float()
    out[graph.rows, graph.indices.long(), 1:] = graph.arc_data["time"]
    return out


ends = st.tuples(st.integers(0, N), st.integers(0, N)).map(lambda p: (min(p), max(p)))
listed = st.lists(st.integers(0, N - 1), max_size=9, unique=True)


@given(st.one_of(ends, listed), st.one_of(ends, listed, st.just("thirds")), st.sampled_from([1, 3, 99]))
def test_a_block_is_the_part_of_the_dense_matrix(opened, rows, columns, long):
    graph, store = opened
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LONG", long)
        patch.setattr(rows_of, "_SOME_ARCS", 13)
        if columns == "thirds":
            found = store.block(rows if isinstance(rows, tuple) else torch.tensor(rows), lambda v: v % 3 == 1)
            mask = torch.arange(N) % 3 == 1
        else:
            wanted = columns if isinstance(columns, tuple) else torch.tensor(columns, dtype=torch.int64)
            found = store.block(rows if isinstance(rows, tuple) else torch.tensor(rows), wanted)
            mask = torch.zeros(N, dtype=torch.bool)
            mask[torch.arange(*columns) if isinstance(columns, tuple) else torch.tensor(columns).long()] = (
                True
            )
    which = torch.arange(*rows) if isinstance(rows, tuple) else torch.tensor(rows).long()
    assert torch.equal(found.rows, which)
    row = torch.repeat_interleave(torch.arange(len(which)), found.indptr.diff())
    ours = torch.zeros(len(which), N, 3)
    ours[row, found.indices.long(), 0] = found.weights.float()
    ours[row, found.indices.long(), 1:] = found.arc_data["time"]
    assert torch.equal(ours, dense(graph)[which] * mask[:, None])
    assert found.features is None


def test_only_what_is_asked_for_is_read(opened):
    _, store = opened
    found = store.block((0, N), (3, 9), only=("indices",))
    assert found.weights is None
    assert not found.arc_data
    counted = store.block((0, N), (3, 9), only=())
    assert torch.equal(counted.indptr, found.indptr)
    assert not counted.indices.numel()


def test_of_a_long_row_little_outside_the_block_is_read(tmp_path: Path, monkeypatch):
    """Row 0 reads everybody: of 20,000 arcs a block of ten takes ten, and the steps of the search."""
    n = 20_000
    graph = Graph.from_arcs(torch.arange(n), torch.zeros(n, dtype=torch.int64), n)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    taken: list[int] = []
    honest = Store._take

    def spy(self: Store, key: str, places: np.ndarray) -> np.ndarray:
        if key == "indices":
            taken.append(len(places))
        return honest(self, key, places)

    monkeypatch.setattr(Store, "_take", spy)
    assert store.block((0, 1), (5000, 5010)).indices.tolist() == list(range(5000, 5010))
    assert sum(taken) < 60


@pytest.mark.parametrize(("rows", "columns"), [((0, N + 1), (0, 3)), ((0, 3), (2, N + 1)), ((3, 2), (0, 3))])
def test_ranges_outside_the_graph_are_refused(opened, rows, columns):
    with pytest.raises(UserError, match=r"g\.weft: rows .* are out of range for 64 vertices"):
        opened[1].block(rows, columns)


def test_a_damaged_chunk_is_found_by_who_reads_of_it(tmp_path: Path):
    store = open_store(write_store(made(), tmp_path / "g.weft"), verify=False)
    section = store._sections["weights"]
    raw = bytearray(store.path.read_bytes())
    raw[section.offset] ^= 1
    store.path.write_bytes(raw)
    store = open_store(store.path, verify=False)
    assert store.block((0, 3), (0, N), only=("indices",)).indices.numel()
    with pytest.raises(UserError, match="wrong checksum in section 'weights'"):
        store.block((0, 3), (0, N))

"""Graphs drawn piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph import load, open_store, read_edge_list
from weft.graph.store import checksum
from weft.graph.stream import Drawn, convert_inputs, drawn, write_arcs


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("kronecker", {"scale": 9, "degree": 8, "seed": 3}),
        ("er", {"nodes": 700, "degree": 6, "directed": True}),
    ],
)
def test_a_store_is_that_of_the_edge_list(tmp_path, monkeypatch, kind, arguments):
    monkeypatch.setattr(drawn, "PIECE", 500)
    some = Drawn(kind, arguments)
    lines = write_arcs(some, tmp_path / f"{kind}.txt", threads=2)
    done = convert_inputs([some], tmp_path / "g.weft")
    assert 0 < done.num_arcs <= (2 if some.undirected else 1) * lines
    graph = read_edge_list(tmp_path / f"{kind}.txt")
    assert checksum(open_store(tmp_path / "g.weft")) == checksum(graph)
    assert graph.is_symmetric == some.undirected
    assert not graph.has_self_loops
    assert abs(lines / some.expected() - 1) < 0.05
    other = Drawn(kind, arguments | {"seed": 4})
    assert write_arcs(other, tmp_path / "other.txt", threads=1)
    assert (tmp_path / "other.txt").read_bytes() != (tmp_path / f"{kind}.txt").read_bytes()


def test_a_disk_without_room_for_the_lines_is_said_before_any_is_drawn(tmp_path, monkeypatch):
    some = Drawn("er", {"nodes": 700, "degree": 6, "directed": True})
    room = type("Usage", (), {"free": 700 * 6 * 8 - 1})()  # "123 456\n" at most
    monkeypatch.setattr("shutil.disk_usage", lambda _: room)
    with pytest.raises(UserError, match=r"about 33.6 kB are needed in .* for the edge list; 33.6 kB are"):
        write_arcs(some, tmp_path / "g.txt", threads=1)
    assert not list(tmp_path.iterdir())
    room.free += 1
    assert write_arcs(some, tmp_path / "g.txt", threads=1)
    assert (tmp_path / "g.txt").stat().st_size < room.free + 50  # and two lines of what it is


@pytest.mark.parametrize("scale", [0, 1, 2, 7, 12])
def test_renaming_is_a_permutation(scale):
    some = Drawn("kronecker", {"scale": scale, "seed": 5})
    ids = np.arange(1 << scale, dtype=np.uint32)
    assert sorted(some._renamed(ids).tolist()) == ids.tolist()


def test_degrees_are_heavy_tailed():
    some = Drawn("kronecker", {"scale": 10, "degree": 16.0})
    [arcs] = [arcs for segment in some.segments(1, set()) for arcs in segment.arcs()]
    ends = np.stack([np.append(arcs.source, arcs.target), np.append(arcs.target, arcs.source)])
    degrees = np.bincount(np.unique(ends, axis=1)[0], minlength=1 << 10)  # an arc drawn twice is one
    wanted = load("kronecker:scale=10,degree=16").indptr.diff().numpy()
    assert 0.7 < degrees.max() / wanted.max() < 1.4
    assert 0.9 < degrees.sum() / wanted.sum() < 1.1
    assert degrees.max() > 10 * degrees.mean()

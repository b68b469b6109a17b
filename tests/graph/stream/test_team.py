"""Conversion on ranks: the store of one process, byte for byte; mistakes of one rank are said by all."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.graph.stream.test_convert import TINY, arcs, lines

from weft.comm import run_ranks
from weft.errors import Note, UserError
from weft.graph.stream import Drawn, Options, convert, convert_inputs
from weft.graph.stream import convert as module
from weft.graph.writer import CHUNK, Checks, Part


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Pieces so small that a file of 100 kB has dozens of each kind; chunks that ranks share."""
    monkeypatch.setattr(sys.modules["weft.graph.stream.convert"], "plan", lambda *_: TINY)
    monkeypatch.setattr("weft.graph.stream.runs.FENCE", 64)
    monkeypatch.setattr("weft.graph.stream.text.Text.block", 1_000)
    monkeypatch.setattr("weft.graph.stream.named_text.NamedText.block", 1_000)


def same(paths: list[Path], ranks: int, **options) -> None:
    folder = paths[0].parent / "out"
    folder.mkdir()
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", Note)
        alone = convert(paths, folder / "one.weft", Options(name="g", **options))
        found = run_ranks(
            lambda comm: convert(paths, folder / "all.weft", Options(name="g", **options), team=comm), ranks
        )
    assert all(vars(one) == vars(alone) for one in found[:1])
    assert {one.given for one in found} == {alone.given}
    assert (folder / "all.weft").read_bytes() == (folder / "one.weft").read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == ["all.weft", "one.weft"]
    assert len({str(note.message) for note in notes}) == len(notes) / 2  # rank 0 alone says it
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.mark.parametrize(("ids", "ranks"), [(300, 5), (10_000, 2), (10**15, 3)])
def test_the_store_is_that_of_one_process(tmp_path, ids, ranks):
    a, b, w, rng = arcs(ids)
    same([lines(tmp_path / "plain.txt", a, b)], ranks)
    weighted = [lines(tmp_path / f"{k}.txt", a[k::3], b[k::3], w[k::3]) for k in range(2)]
    weighted.append(lines(tmp_path / "2.txt.gz", a[2::3], b[2::3], w[2::3]))
    same(weighted, ranks)
    same(weighted, ranks, undirected=True)
    kinds = rng.integers(-1, 50, size=len(a))
    rich = lines(tmp_path / "d.tsv", a, b, w, kinds, mark="\t")
    same([rich], ranks, arc_columns=["weight", "kind"])
    same([rich], ranks, arc_columns=["f", "f"])


def test_names_features_labels_and_matrices_too(tmp_path):
    a, b, w, rng = arcs(50, 600)
    names = np.array([f"v{v * 37 % 50:x}{'é' * (v % 3)}" for v in range(50)])
    same([lines(tmp_path / "n.tsv", names[a], names[b], w, mark="\t")], 3, text_ids=True)
    np.save(tmp_path / "x.npy", rng.random((50, 7), dtype=np.float32))
    np.save(tmp_path / "y.npy", rng.integers(3, size=50))
    plain = lines(tmp_path / "p.txt", np.append(a, 49), np.append(b, 0), head="# Nodes: 50\n")
    x, y = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    same([plain], 3, features=x, labels=y, split=(0.5, 0.2))
    head = "%%MatrixMarket matrix coordinate real skew-symmetric\n51 51 600\n"
    same([lines(tmp_path / "m.mtx", a + 1, b + 1, w, head=head)], 3)
    none = tmp_path / "none.txt"
    none.write_text("")
    same([none], 2)


def test_ranks_draw_the_same_graph(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.graph.stream.drawn.PIECE", 500)
    drawn = Drawn("kronecker", {"scale": 9, "degree": 8})
    convert_inputs([drawn], tmp_path / "one.weft")
    run_ranks(lambda comm: convert_inputs([drawn], tmp_path / "all.weft", team=comm), 3)
    assert (tmp_path / "all.weft").read_bytes() == (tmp_path / "one.weft").read_bytes()


@pytest.mark.parametrize(
    ("text", "wrong"), [("3 x", "line 1001: id 'x' is not a whole number"), ("1 2 3", "line 1001: 3 columns")]
)
def test_a_mistake_of_one_rank_is_said_by_all_and_leaves_nothing(tmp_path, text, wrong):
    a, b, _, _ = arcs(300)
    good = [f"{x} {y}" for x, y in zip(a, b, strict=True)]
    path = tmp_path / "b.txt"
    path.write_text("\n".join([*good[:1_000], text, *good[1_000:]]) + "\n")

    def work(comm):
        with pytest.raises(UserError, match=wrong):
            convert([path], tmp_path / "b.weft", team=comm)
        return True

    assert all(run_ranks(work, 3))
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


def test_other_ranks_go_on_where_one_was_lost(tmp_path, monkeypatch):
    a, b, w, _ = arcs(300)
    path, out = lines(tmp_path / "g.txt", a, b, w), tmp_path / "g.weft"
    convert([path], tmp_path / "one.weft", Options(name="g"))
    heap, read, lost = module.__globals__["Heap"], [], True
    close = heap.close

    def closed(self):
        if lost and self.order[1] == 7:
            raise MemoryError("of rank 1")
        read.append(self.order)
        return close(self)

    monkeypatch.setattr(heap, "close", closed)
    with pytest.raises(MemoryError):
        run_ranks(lambda comm: convert([path], out, Options(name="g"), team=comm), 3)
    assert not out.exists()
    journals = sorted(p.name for p in (tmp_path / ".g.weft.convert").glob("journal*"))
    assert journals == ["journal", "journal.1", "journal.2"]
    told = [(tmp_path / ".g.weft.convert" / name).read_text() for name in journals]
    noted = sum(text.count('"stage": "read"') for text in told)
    assert 0 < noted < len(range(0, path.stat().st_size, TINY.segment))  # some, not all
    lost, before = False, len(read)
    run_ranks(lambda comm: convert([path], out, Options(name="g"), team=comm), 2)
    assert len(set(read)) == len(range(0, path.stat().st_size, TINY.segment))
    assert len(read) - before == len(set(read)) - noted  # what was done was not done again
    assert out.read_bytes() == (tmp_path / "one.weft").read_bytes()
    assert not (tmp_path / ".g.weft.convert").exists()


def test_a_folder_that_some_rank_does_not_see_is_named(tmp_path, monkeypatch):
    path = lines(tmp_path / "g.txt", [0], [1])
    journal = sys.modules["weft.graph.stream.journal"].Journal
    hear = journal._hear

    def blind(self):
        if self._team.rank == 1:
            self.folder = tmp_path / "elsewhere"
        hear(self)

    monkeypatch.setattr(journal, "_hear", blind)

    def work(comm):
        with pytest.raises(UserError, match=r"rank 1 cannot see .* that all ranks share"):
            convert([path], tmp_path / "g.weft", team=comm)

    run_ranks(work, 2)


def test_checksums_of_parts_are_those_of_the_whole(tmp_path):
    data = np.random.default_rng(0).integers(256, size=3 * CHUNK + 77, dtype=np.uint8)
    whole, joined = Checks(), Checks()
    whole.add(data.data)
    with open(tmp_path / "f", "wb") as file:
        for first, last in ((0, 5), (5, CHUNK), (CHUNK, 2 * CHUNK + 9), (2 * CHUNK + 9, len(data))):
            part = Part(file, 64, "|u1", (), first)
            for at in range(first, last, 700_001):
                part.append(data[at : min(last, at + 700_001)])
            for crc, length in part.pieces:
                joined.join(crc, length)
    assert joined.each() == whole.each()
    assert joined.whole() == whole.whole()
    assert (tmp_path / "f").read_bytes()[64:] == data.tobytes()

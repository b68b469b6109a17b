"""CSR archives of scipy as inputs of the converter: the store of the reader in memory, piece by piece."""

from __future__ import annotations

import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sparse

from weft.errors import UserError
from weft.graph import open_store, read_npz
from weft.graph.store import checksum
from weft.graph.stream import Options, compressed, convert, streams
from weft.graph.stream.compressed import Compressed


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    monkeypatch.setattr(compressed, "ROWS", 32)


def matrix(n=90, arcs=700, dtype=np.float64):
    rng = np.random.default_rng(4)
    ends = rng.integers(n, size=(2, arcs)) // 2 * 2  # odd rows are empty
    values = (rng.random(arcs) * 9).astype(dtype)
    values[values == 0] = 1
    return sparse.coo_array((values, ends), (n, n)).tocsr()


def same(path, **options):
    out = path.with_suffix(".weft")
    out.unlink(missing_ok=True)
    convert([path], out, Options(**options))
    plain = read_npz(path)
    assert checksum(open_store(out)) == checksum(plain.symmetrised() if options else plain)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.bool_])
def test_a_saved_matrix_becomes_the_same_store(tmp_path, packed, dtype):
    sparse.save_npz(tmp_path / "g.npz", matrix(dtype=dtype), compressed=packed)
    assert streams(tmp_path / "g.npz")
    same(tmp_path / "g.npz")
    same(tmp_path / "g.npz", undirected=True)


@pytest.mark.parametrize("kind", ["i4", "u8", ">i8"])
def test_without_values_and_with_entries_in_any_order_given_twice(tmp_path, kind):
    rng = np.random.default_rng(1)
    indptr = np.concatenate([np.zeros(70, int), np.sort(rng.integers(500, size=99)), [500]])
    indices = rng.integers(len(indptr) - 1, size=500).astype(kind)
    for more in ({}, {"data": rng.random(500)}):
        np.savez(tmp_path / "g.npz", indices=indices, indptr=indptr.astype(kind), **more)
        same(tmp_path / "g.npz")
        same(tmp_path / "g.npz", undirected=True)


def test_matrices_of_no_rows_and_of_no_entries(tmp_path):
    for number, indptr in enumerate(([0], [0, 0, 0])):
        path = tmp_path / f"{number}.npz"
        np.savez(path, indptr=np.array(indptr), indices=np.zeros(0, np.int64))
        same(path)


def test_what_brings_more_than_a_matrix_is_read_whole(tmp_path):
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 1], indices=[1], labels=[0, 1])
    assert not streams(tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indptr": [0, 3, 2, 3, 3]}, r"indptr falls from 3 to 2 at row 1\. It must"),
        ({"indptr": [1, 2, 3, 3, 3]}, r"indptr runs from 1 to 3 for 3 indices\. It must run from 0 to 3"),
        ({"indptr": [0, 1, 2, 2, 2]}, r"indptr runs from 0 to 2 for 3 indices"),
        ({"indptr": [0, 1, 2, 3, 9]}, r"indptr runs from 0 to 9 for 3 indices"),
        ({"indptr": np.zeros(0, int)}, r"indptr is empty"),
        ({"indptr": [0.0, 1, 2, 3, 3]}, r"indptr is 1-dimensional float64\. Give a list of whole"),
        ({"indices": [0, 4, 1]}, r"vertex id 4 is out of range for 4 vertices \(0 to 3\)"),
        ({"indices": [0, -1, 1]}, r"vertex id -1 is out of range"),
        ({"data": [1.0, np.nan, 1.0]}, r"a weight is nan\. Replace it by a finite number"),
        ({"data": [1.0, 1.0]}, r"2 weights for 3 arcs\. Give one weight an arc"),
        ({"data": [1j, 1, 1]}, r"weights are complex128\. Give real numbers"),
        ({"shape": [4, 5]}, r"is 4x5, not square"),
        ({"shape": [5, 5]}, r"shape says 5 vertices, indptr 4"),
        ({"shape": [4]}, r"shape is \[4\]\. Give two sizes"),
        ({"shape": np.arange(99)}, r"shape is too long"),
        ({"format": np.bytes_(b"csc")}, r"in another form than csr"),
        ({"data": np.array([{}, 1, 2], dtype=object)}, r"holds Python objects"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, change, words):
    np.savez(tmp_path / "g.npz", **({"indptr": [0, 1, 2, 3, 3], "indices": [0, 3, 1]} | change))
    with pytest.raises(UserError, match=words) as found:
        convert([tmp_path / "g.npz"], tmp_path / "g.weft")
    assert str(found.value).startswith(str(tmp_path / "g.npz"))
    assert "\n" not in str(found.value)
    assert not list(tmp_path.glob("*.weft*"))


def test_what_is_about_lines_and_columns_is_refused(tmp_path):
    sparse.save_npz(tmp_path / "g.npz", matrix())
    with pytest.raises(UserError, match=r"--arc-columns names the columns of an edge list, g\.npz is none"):
        convert([tmp_path / "g.npz"], tmp_path / "g.weft", Options(arc_columns=["weight"]))


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_stream_is_one_line(tmp_path, packed):
    path = tmp_path / "g.npz"
    sparse.save_npz(path, matrix(900, 40_000), compressed=packed)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("data.npy").header_offset
    raw = bytearray(path.read_bytes())
    raw[at + 5_000 : at + 5_040] = b"\x5a" * 40
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"is not a sound npz file|a weight is|Save it again"):
        convert([path], tmp_path / "g.weft")


@pytest.mark.parametrize("packed", [False, True])
def test_a_piece_of_each_member_is_held(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(compressed, "ROWS", 1 << 12)
    whole = matrix(1_000, 300_000)
    sparse.save_npz(tmp_path / "g.npz", whole, compressed=packed)
    bytes_of = whole.indices.nbytes + whole.data.nbytes
    tracemalloc.start()
    try:
        source = Compressed(tmp_path / "g.npz")
        given = sum(len(arcs.source) for part in source.segments(1 << 16, set()) for arcs in part.arcs())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert given == whole.nnz
    assert peak < bytes_of // 4
    # Those that are done are passed over, and the others keep their numbers.
    every = [part.number for part in source.segments(1 << 16, set())]
    assert every == list(range(len(every)))
    assert [part.number for part in source.segments(1 << 16, {0, 3})] == [k for k in every if k not in (0, 3)]

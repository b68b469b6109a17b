"""A small file cannot ask for gigabytes: what may be allocated follows from what a file holds."""

from __future__ import annotations

import gzip
import resource
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph import load


@pytest.fixture(autouse=True)
def _two_gigabytes() -> Iterator[None]:
    """What goes beyond is a MemoryError here, and fails the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refused(path: str) -> str:
    with pytest.raises(UserError) as caught:
        load(path)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_comment_cannot_ask_for_a_thousand_million_vertices():
    Path("a.txt").write_text("# Nodes: 999999999\n0 1\n")
    assert "a.txt: 999999999 vertices: 8.0 GB needed for 23 bytes of file." in refused("a.txt")


def test_a_size_line_cannot_either():
    Path("a.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n900000000 900000000 1\n1 2\n")
    assert "900000000 vertices: 7.2 GB needed for" in refused("a.mtx")


def test_nor_can_one_id_of_a_pair():
    Path("links").mkdir()
    Path("links/train_edges.csv.gz").write_bytes(gzip.compress(b"0,1\n1,2\n"))
    pairs = {name: np.array([[0, 1]]) for name in ("valid_edge", "valid_edge_neg", "test_edge")}
    np.savez("links/valid_test.npz", **pairs, test_edge_neg=np.array([[0, 10**9]]))
    assert "1000000001 vertices: 8.0 GB needed for 72 bytes of file." in refused("links")


def test_a_packed_archive_cannot_unpack_without_end():
    # 4 GB of zeros pack into 4 MB.
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        np.savez("small.npz", indptr=np.array([0, 1]), indices=np.array([0]))
        with zipfile.ZipFile("small.npz") as small:
            for name in small.namelist():
                archive.writestr(name, small.read(name))
        with archive.open("features.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_2_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (1, 1 << 28)}
            )
            for _ in range(1 << 6):
                file.write(bytes(1 << 24))
    assert "GB needed for" in refused("a.npz")


def test_sparse_features_cannot_be_wider_than_their_entries_warrant():
    np.savez(
        "a.npz", indptr=np.array([0, 1, 1]), indices=np.array([0]), attr_indptr=np.array([0, 1, 1]),
        attr_indices=np.array([0]), attr_data=np.ones(1), attr_shape=np.array([2, 10**9]),
    )  # fmt: skip
    assert "features 2x1000000000: 8.0 GB needed for 40 bytes of file." in refused("a.npz")


def test_gzip_is_stopped_long_before_it_is_unpacked():
    with gzip.open("a.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(24):
            file.write(b"0 1\n" * (1 << 22))
    assert "unpacks to more than" in refused("a.txt.gz")


def test_an_honest_file_with_vertices_that_have_no_arcs_is_read():
    Path("a.txt").write_text("# Nodes: 1000000\n0 1\n")
    assert load("a.txt").num_nodes == 1000000


@pytest.mark.parametrize("command", ["train", "info", "generate"])
def test_a_real_shortage_is_one_line(command, capsys, monkeypatch):
    from weft.cli import main

    def short(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("weft.graph.load", short)
    monkeypatch.setattr("weft.graph.generate", short)
    words = ["er", "--out", "g.weft"] if command == "generate" else ["karate"]
    assert main([command, *words, *(["--ranks", "1"] if command == "train" else [])]) == 2
    assert capsys.readouterr().err.startswith("weft: there is not enough memory for this. ")

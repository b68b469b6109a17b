"""Planetoid: the rules of test.index on a small forged data set, and pickles that want too much."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from weft.errors import UserError
from weft.graph import read_planetoid
from weft.graph.readers import planetoid


def parts() -> dict[str, Any]:
    """3 labelled vertices (1 to train), test vertices 5 and 3; vertex 4 is named nowhere, as in CiteSeer."""
    onehot = np.eye(2, dtype=np.int32)
    graph = defaultdict(list, {0: [1, 1, 0], 1: [2], 3: [5], 4: []})
    return {
        "x": sp.csr_matrix(np.array([[1, 0]], dtype=np.float32)), "y": onehot[[0]],
        "allx": sp.csr_matrix(np.array([[1, 0], [0, 2], [3, 3]], dtype=np.float32)),
        "ally": onehot[[0, 1, 1]],
        "tx": sp.csr_matrix(np.array([[0, 5], [4, 0]], dtype=np.float32)), "ty": onehot[[1, 0]],
        "graph": graph,
    }  # fmt: skip


def write(folder: Path, values: dict[str, Any], index: str = "5\n3\n") -> Path:
    folder.mkdir(exist_ok=True)
    for part, value in values.items():
        data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=3)
        (folder / f"ind.toy.{part}").write_bytes(data)
    (folder / "ind.toy.test.index").write_text(index)
    return folder


def test_test_rows_go_where_the_index_says_and_gaps_are_unlabelled_zeros(tmp_path: Path) -> None:
    g = read_planetoid(write(tmp_path / "raw", parts()))
    assert g.features.tolist() == [[1, 0], [0, 2], [3, 3], [4, 0], [0, 0], [0, 5]]
    assert g.labels.tolist() == [0, 1, 1, 0, -1, 1]
    assert g.train_mask.tolist() == [True] + [False] * 5
    assert g.val_mask.nonzero().flatten().tolist() == [1, 2]
    assert g.test_mask.nonzero().flatten().tolist() == [3, 5]
    assert g.num_classes == 2


def test_bytes_that_python_2_wrote_as_text_are_read_in_either_order(tmp_path: Path) -> None:
    """`y` by hand, as protocol 2 of Python 2 has it, in Fortran order and big-endian."""
    raw = np.array([[1, 0]], dtype=">i4").tobytes(order="F")
    y = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01K\x02\x86"
        b"cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x88U" + bytes([len(raw)]) + raw + b"tb."
    )
    path = write(tmp_path, {"y": y}) / "ind.toy.y"
    assert planetoid._matrix(planetoid._unpickle(path), path).tolist() == [[1, 0]]


def test_arcs_are_undirected_once_and_without_loops(tmp_path: Path) -> None:
    write(tmp_path / "raw", parts())
    g = read_planetoid(tmp_path)  # the folder above raw serves too
    arcs = sorted(zip(g.indices.tolist(), g.rows.tolist(), strict=True))
    assert arcs == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 5), (5, 3)]
    assert g.name == "toy"


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, ("1 + 1",)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Evil(), "__builtin__.eval"),
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"cnumpy\nload\n.", "numpy.load"),
        (b"cscipy.sparse.csr\ncsr_matrix.__init__\n.", "scipy.sparse.csr.csr_matrix.__init__"),
        (b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.", "builtins.getattr"),
    ],
)
@pytest.mark.parametrize("part", ["x", "graph"])
def test_a_forbidden_class_is_named_and_never_made(tmp_path: Path, value: Any, name: str, part: str) -> None:
    data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
    with pytest.raises(UserError) as caught:
        read_planetoid(write(tmp_path / "raw", parts() | {part: data}))
    assert f"forbidden class {name}" in str(caught.value)
    assert f"ind.toy.{part}" in str(caught.value)


def spoiled_csr(**changes: np.ndarray) -> sp.csr_matrix:
    matrix = parts()["allx"]
    for key, value in changes.items():
        matrix.__dict__[key] = value
    return matrix


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": b"not a pickle"}, "damaged pickle"),
        ({"x": b""}, "damaged pickle"),
        ({"x": b"\x80\x02P123\n."}, "outside object"),
        ({"x": b"\x80\x02Nr\xff\xff\xff\xff."}, "no sound matrix"),  # a memo of 2³² places: not made
        ({"x": b"\x80\x05\x96\x00\x00\x00\x00\x10\x00\x00\x00."}, "damaged pickle"),  # a bytearray of 64 GB
        ({"y": b"]."}, "no sound matrix"),
        ({"y": b"cnumpy\nndarray\n."}, "no sound matrix"),
        ({"y": np.array([["a"]], dtype=object)}, "no sound matrix"),
        ({"y": np.ones(3)}, "1-dimensional array where a matrix is due"),
        ({"allx": spoiled_csr(indices=np.array([0, 1, 0, 99], dtype=np.int32))}, "no sound matrix"),
        ({"allx": spoiled_csr(indices=np.array([0, 1, 0, -1], dtype=np.int32))}, "no sound matrix"),
        ({"allx": spoiled_csr(indptr=np.array([0, 9, 2, 4], dtype=np.int32))}, "no sound matrix"),
        ({"allx": spoiled_csr(_shape=(3, 10**15))}, "GB needed"),
        ({"tx": sp.csr_matrix(np.ones((5, 2), dtype=np.float32))}, "do not fit together"),
        ({"tx": sp.csr_matrix(np.ones((2, 3), dtype=np.float32))}, "do not fit together"),
        ({"graph": {0: [77]}}, "vertex id 77 is out of range for 6 vertices"),
        ({"graph": {-2: [1]}}, "vertex id -2 is out of range"),
        ({"graph": {0: ["a"]}}, "not whole numbers"),
        ({"graph": {0: 3}}, "not whole numbers"),
        ({"graph": [1, 2]}, "no dict of neighbour lists"),
    ],
)
def test_damaged_parts_are_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_planetoid(write(tmp_path / "raw", parts() | change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("5\nx\n", "one vertex id a line"),
        ("5\n5\n", "names a vertex twice"),
        ("5\n0\n", "do not fit together"),
        ("5\n99999999\n", "do not fit together"),
    ],
)
def test_a_bad_test_index_is_named(tmp_path: Path, index: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_planetoid(write(tmp_path / "raw", parts(), index))


def test_a_missing_part_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no Planetoid files"):
        read_planetoid(tmp_path)
    folder = write(tmp_path / "raw", parts())
    (folder / "ind.toy.tx").unlink()
    with pytest.raises(UserError, match=r"no file .*ind\.toy\.tx"):
        read_planetoid(folder)
    (folder / "ind.other.graph").write_bytes(b"")
    with pytest.raises(UserError, match="holds other and toy"):
        read_planetoid(folder)

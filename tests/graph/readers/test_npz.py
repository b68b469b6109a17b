"""npz: both layouts, and archives that are damaged or lie."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from weft.errors import Note, UserError
from weft.graph import read_npz

PLAIN: dict[str, Any] = {"indptr": np.array([0, 2, 2, 3]), "indices": np.array([2, 1, 0], dtype=np.int32)}


@pytest.fixture
def put(tmp_path: Path):
    def write(**arrays: Any) -> Path:
        path = tmp_path / "g.npz"
        np.savez(path, **arrays)
        return path

    return write


def test_the_plain_layout_with_everything(put) -> None:
    labels, mask = np.array([1, 0, 1], dtype=np.uint16), np.array([1, 0, 0], dtype=np.uint8)
    g = read_npz(put(**PLAIN, features=np.eye(3), labels=labels, train_mask=mask, data=[1.0, 2.0, 3.0]))
    assert list(zip(g.indices.tolist(), g.rows.tolist(), strict=True)) == [(2, 0), (0, 1), (0, 2)]
    assert g.weights.tolist() == [3.0, 2.0, 1.0]
    assert (g.num_features, g.num_classes, g.train_mask.tolist()) == (3, 2, [True, False, False])


def test_the_layout_with_sparse_features(put) -> None:
    g = read_npz(put(adj_indptr=PLAIN["indptr"], adj_indices=PLAIN["indices"], shape=[3, 3], labels=[0, 1, 2],
                     attr_indptr=[0, 1, 1, 3], attr_indices=[1, 0, 1], attr_data=[5.0, 6.0, 7.0],
                     attr_shape=[3, 2]))  # fmt: skip
    assert g.features.tolist() == [[0, 5], [0, 0], [6, 7]]
    assert g.features.dtype == torch.float32
    assert g.num_classes == 3


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_what_scipy_saves_is_read_where_it_is_csr(tmp_path: Path, form: str) -> None:
    path = tmp_path / "s.npz"
    scipy.sparse.save_npz(path, scipy.sparse.random(6, 6, 0.3, format=form, rng=np.random.default_rng(0)))
    if form == "csr":
        assert read_npz(path).weights is not None
    else:
        with pytest.raises(UserError, match="another form than csr"):
            read_npz(path)


SPARSE = {"attr_indptr": [0, 1, 1, 2], "attr_indices": [0, 1], "attr_data": [1.0, 1.0], "attr_shape": [3, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([2, 1, 7])}, "vertex id 7 is out of range for 3 vertices"),
        ({"indices": np.array([2, -1, 0])}, "target id -1 is negative"),
        ({"indices": np.array([0.5, 1, 2])}, "indices is 1-dimensional float64"),
        ({"indptr": np.array([0, 3, 2, 3])}, "indptr falls from 3 to 2"),
        ({"indptr": np.array([0, 2, 2, 9])}, "indptr runs from 0 to 9 for 3 indices"),
        ({"indptr": np.array([], dtype=np.int64)}, "indptr and indices must be lists"),
        ({"shape": [3, 4]}, "is 3x4, not square"),
        ({"shape": [5, 5]}, "shape says 5 vertices, indptr 3"),
        ({"shape": [3]}, "shape is [3]"),
        ({"features": np.full((3, 2), np.nan)}, "feature 0 of vertex 0 is nan"),
        ({"features": np.ones((2, 2))}, "features have shape 2x2; 3 vertices"),
        ({"features": np.array(["a", "b", "c"])}, "features is <U1"),
        ({"labels": np.array([0, -7, 1])}, "label -7 of vertex 1"),
        (
            {"train_mask": np.ones(3, bool), "val_mask": np.ones(3, bool)},
            "vertex 0 is in train_mask and in val_mask",
        ),
        (SPARSE | {"attr_shape": [4, 2]}, "features have 4 rows for 3 vertices"),
        (SPARSE | {"attr_indices": [0, 5]}, "feature column 5 is out of range for width 2"),
        (SPARSE | {"attr_indices": [0, -5]}, "feature column -5 is out of range"),
        ({"arc_time": [1.0]}, "arc data 'time' are 1 for 3 arcs"),
        ({"arc_time": [1.0, np.inf, 0.0]}, "arc data 'time' hold inf"),
        ({"arc_kind": [1, -1, 0]}, "arc data 'kind' hold -1"),
        ({"arc_kind": ["a", "b", "c"]}, "arc_kind is <U1. Give plain numbers"),
        ({"arc_weights": [1, 1, 0]}, "arc data cannot be named 'weights'"),
        ({"arc_": [1, 1, 0]}, "arc data cannot be named ''"),
        ({"vertex_age": [1, 1]}, "vertex data 'age' are 2 for 3 vertices"),
        (SPARSE | {"attr_data": [1.0]}, "1 feature values for 2 feature columns"),
        (SPARSE | {"attr_shape": [3, 10**15]}, "GB needed"),
    ],
)
def test_a_bad_array_is_named(put, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_npz(put(**(PLAIN | change)))
    assert message in str(caught.value)
    assert "g.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_arrays_and_pickles_are_refused(put) -> None:
    with pytest.raises(UserError, match="has no array 'indptr', only valid_edge"):
        read_npz(put(valid_edge=np.ones((3, 2))))
    with pytest.raises(UserError, match=r"labels\.npy holds Python objects"):
        read_npz(put(**PLAIN, labels=np.array([{}, {}, {}], dtype=object)))


def test_a_damaged_archive_is_one_line(put, tmp_path: Path) -> None:
    raw = put(**PLAIN).read_bytes()
    flags = raw.index(b"PK\x01\x02") + 8  # of the first entry in the archive's directory
    locked = raw[:flags] + b"\x01" + raw[flags + 1 :]  # "encrypted"
    assert locked != raw
    for spoiled in (locked, raw[: len(raw) // 2], b"0 1\n", b"", raw.replace(b"NUMPY", b"DUMMY")):
        (tmp_path / "bad.npz").write_bytes(spoiled)
        with pytest.raises(UserError, match="not a sound npz file"):
            read_npz(tmp_path / "bad.npz")


def test_an_array_that_announces_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"shape": (1 << 50,), "fortran_order": False, "descr": "<i8"})
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        archive.writestr("indptr.npy", head.getvalue())
    with pytest.raises(UserError, match="announces more than it holds"):
        read_npz(tmp_path / "liar.npz")


def test_named_arrays_become_arc_and_vertex_data(put) -> None:
    """Rows of the file are out-neighbours: arcs 0→2, 0→1, 2→0; the graph's order is by target."""
    g = read_npz(
        put(
            **PLAIN, arc_kind=np.array([7, 8, 9], dtype=np.uint16), arc_x=[[1.0, 2], [3, 4], [5, 6]],
            vertex_age=np.array([30, 40, 50], dtype=np.int8), vertex_p=np.ones((3, 2), dtype=">f4"),
        )
    )  # fmt: skip
    assert (g.rows.tolist(), g.indices.tolist()) == ([0, 1, 2], [2, 0, 0])
    assert (g.arc_data["kind"].tolist(), g.arc_data["kind"].dtype) == ([9, 8, 7], torch.int64)
    assert g.arc_data["x"].tolist() == [[5, 6], [3, 4], [1, 2]]
    assert (g.vertex_data["age"].tolist(), g.vertex_data["p"].shape) == ([30, 40, 50], (3, 2))


def test_an_entry_given_twice_keeps_its_first_data_and_says_so(put) -> None:
    with pytest.warns(Note, match="1 arc was given again .* of kind the first is kept"):
        g = read_npz(put(indptr=[0, 2, 2], indices=[1, 1], arc_kind=[4, 5]))
    assert g.arc_data["kind"].tolist() == [4]

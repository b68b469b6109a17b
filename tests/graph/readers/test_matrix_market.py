"""Matrix Market: kinds of entries, symmetry, and files that lie."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from weft.errors import UserError
from weft.graph import read_matrix_market

HEAD = "%%MatrixMarket matrix coordinate"


@pytest.fixture
def put(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "m.mtx"
        path.write_text(text)
        return path

    return write


def test_entry_i_j_is_the_arc_from_i_to_j(put) -> None:
    g = read_matrix_market(put(f"{HEAD} pattern general\n% c\n3 3 2\n1 2\n3 1\n"))
    assert list(zip(g.indices.tolist(), g.rows.tolist(), strict=True)) == [(2, 0), (0, 1)]
    assert g.weights is None


@pytest.mark.parametrize("field", ["real", "integer"])
def test_values_become_weights(put, field: str) -> None:
    g = read_matrix_market(put(f"{HEAD} {field} general\n2 2 2\n1 2 5\n2 2 -3\n"))
    assert g.weights.tolist() == [5.0, -3.0]


def test_symmetric_stores_both_triangles_and_the_diagonal_once(put) -> None:
    g = read_matrix_market(put(f"{HEAD} pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n"))
    assert g.num_arcs == 5
    assert g.is_symmetric


def test_skew_symmetric_mirrors_with_the_other_sign(put) -> None:
    g = read_matrix_market(put(f"{HEAD} real skew-symmetric\n2 2 1\n2 1 3\n"))
    assert (g.rows.tolist(), g.weights.tolist()) == ([0, 1], [3.0, -3.0])


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_what_scipy_writes_is_read_back(tmp_path: Path, symmetry: str) -> None:
    matrix = scipy.sparse.random(40, 40, 0.1, format="coo", rng=np.random.default_rng(0))
    matrix = (matrix + matrix.T).tocoo() if symmetry == "symmetric" else matrix
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix, symmetry=symmetry)
    g = read_matrix_market(tmp_path / "m.mtx")
    dense = np.zeros((40, 40))
    dense[g.indices.numpy(), g.rows.numpy()] = g.weights.numpy()
    np.testing.assert_allclose(dense, matrix.toarray(), rtol=1e-6)


def test_a_matrix_without_entries_is_a_graph_without_arcs(put) -> None:
    g = read_matrix_market(put(f"{HEAD} real general\n3 3 0\n"))
    assert (g.num_nodes, g.num_arcs) == (3, 0)


def test_gzip_works_as_well(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx.gz"
    path.write_bytes(gzip.compress(f"{HEAD} pattern general\n2 2 1\n1 2\n".encode()))
    assert repr(read_matrix_market(path)) == "Graph(m: 2 vertices, 1 arcs)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD} pattern general\n2 3 1\n1 2\n", "is 2x3, not square"),
        (f"{HEAD} pattern general\n2 2 3\n1 2\n", "announces 3 entries but has 1"),
        (f"{HEAD} pattern general\n2 2 1\n1 9\n", "index 9 is out of range for 2x2"),
        (f"{HEAD} pattern general\n2 2 1\n0 1\n", "index 0 is out of range for 2x2"),
        (f"{HEAD} pattern general\n% c\n2 2 2\n1 2\n1 -1\n", "line 5: id '-1' is negative"),
        (f"{HEAD} real general\n2 2 1\n1 2 x\n", "line 3: weight 'x' is not a number"),
        (f"{HEAD} real general\n2 2 1\n1 2 nan\n", "weight 0 is nan"),
        (f"{HEAD} real general\n2 2 1\n1 2\n", "has no values beside its entries"),
        (f"{HEAD} pattern general\n2 2 1\n1 2 5\n", "has values beside its entries"),
        (f"{HEAD} complex general\n2 2 1\n1 2 1 1\n", "unknown kind of entries 'complex'"),
        (f"{HEAD} real hermitian\n2 2 1\n1 2 1\n", "unknown symmetry 'hermitian'"),
        (f"{HEAD} pattern general\n2 2\n", "size line '2 2'"),
        (f"{HEAD} pattern general\n", "size line ''"),
        (f"{HEAD} pattern general\n-2 -2 1\n", "-2 rows"),
        (f"{HEAD} pattern general\n5 5 900000000000\n1 2\n", "announces 900000000000 entries"),
        (f"{HEAD} pattern general\n900000000000000 900000000000000 1\n1 2\n", "GB needed"),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", "dense matrix"),
        ("0 1\n1 2\n", "does not begin with"),
        ("", "does not begin with"),
    ],
)
def test_a_bad_file_is_one_line(put, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_matrix_market(put(text))
    assert message in str(caught.value)
    assert "m.mtx" in str(caught.value)
    assert "\n" not in str(caught.value)

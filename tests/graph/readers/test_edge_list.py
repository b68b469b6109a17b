"""Edge lists: separators, comments, ids, weights, and each way to get a line wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.errors import Note, UserError
from weft.graph import Graph, read_edge_list


@pytest.fixture
def put(tmp_path: Path):
    def write(text: str, name: str = "g.txt") -> Path:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def arcs(g: Graph) -> list[tuple[int, int]]:
    """(source, target) in the file's own ids."""
    ids = torch.arange(g.num_nodes) if g.ids is None else g.ids
    return sorted(zip(ids[g.indices.long()].tolist(), ids[g.rows].tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "0\t1\n0\t2\n2\t1\n",
        "0 1\n0 2\n2 1",
        "0,1\n0,2\n2,1\n",
        "0, 1\n0, 2\n2, 1\n",
        "source,target\n0,1\n0,2\n2,1\n",
        "# a\n% b\n0 1\r\n0 2\r\n2 1\r\n",
        "0 1\n# between\n0 2\n  % indented\n2 1\n# last",
        "  0   1\n0 \t2  \n\n2 1 \n   \n",
        "0\t1\n0 2\n2\t\t1\n",
        "\ufeff0 1\n0 2\n2 1\n0 2\n",
        "FromNodeId\tToNodeId\n0\t1\n0\t2\n2\t1\n",
        "\n\n0 1\n0 2\n2 1\n",
    ],
)
@pytest.mark.parametrize("name", ["g.txt", "g.csv.gz"])
def test_every_way_to_write_three_arcs_gives_the_same_graph(put, text: str, name: str) -> None:
    g = read_edge_list(put(text, name))
    assert arcs(g) == [(0, 1), (0, 2), (2, 1)]
    assert g.ids is None
    assert g.name == "g"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 30)), min_size=1, max_size=40),
    st.sampled_from(["\t", " ", ","]),
    st.booleans(),
)
def test_ids_are_compacted_in_order_and_kept(
    put, pairs: list[tuple[int, int]], sep: str, small: bool
) -> None:
    pairs = [(s % 50 if small else s, t) for s, t in pairs]
    g = read_edge_list(put("".join(f"{s}{sep}{t}\n" for s, t in pairs)))
    assert arcs(g) == sorted(set(pairs))
    names = sorted({v for pair in pairs for v in pair})
    assert g.num_nodes == len(names)
    assert g.ids is None if names == list(range(len(names))) else g.ids.tolist() == names


def test_a_third_column_is_the_weight_and_duplicates_add_up(put) -> None:
    g = read_edge_list(put("0 1 0.5\n0 1 2\n1 0 1e-1\n"))
    assert g.weights.tolist() == pytest.approx([0.1, 2.5])
    assert g.weights.dtype == torch.float32


def test_undirected_follows_the_comment_unless_told(put) -> None:
    path = put("# Undirected graph: dblp\n0 1\n1 2\n")
    assert read_edge_list(path).num_arcs == 4
    assert read_edge_list(path, undirected=False).num_arcs == 2
    path = put("# Directed graph: not the undirected graph\n0 1\n1 2\n")
    assert read_edge_list(path).num_arcs == 2
    assert read_edge_list(path, undirected=True).num_arcs == 4


def test_a_stated_number_of_vertices_keeps_ids_and_lonely_vertices(put) -> None:
    assert read_edge_list(put("# Nodes: 9 Edges: 1\n1 3\n")).num_nodes == 9
    assert read_edge_list(put("1 3\n"), num_nodes=5).num_nodes == 5
    g = read_edge_list(put("# Nodes: 2 Edges: 1\n1 3\n"))  # com-dblp: fewer vertices than the largest id
    assert (g.num_nodes, g.ids.tolist()) == (2, [1, 3])
    with pytest.raises(UserError, match="vertex id 3 is out of range for 3 vertices"):
        read_edge_list(put("1 3\n"), num_nodes=3)
    with pytest.raises(UserError, match="GB needed"):
        read_edge_list(put("# Nodes: 999999999999999 Edges: 1\n1 3\n"))


def test_a_file_of_comments_is_a_graph_without_vertices(put) -> None:
    assert read_edge_list(put("# nothing\n")).num_nodes == 0
    assert read_edge_list(put("")).num_nodes == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n0 x7\n", "line 2: id 'x7' is not a whole number"),
        ("# c\n0 1\n# d\n\n1.5 2\n", "line 5: id '1.5' is not a whole number"),
        ("0 1\n2 -4\n", "line 2: id '-4' is negative"),
        ("# c\n-1\t2\n", "line 2: id '-1' is negative"),
        ("0 1\n0\n", "line 2: 1 columns in '0'"),
        ("0 1\n0 1 2\n", "line 2: 3 columns in '0 1 2'. Give 2, as above"),
        ("0 1 2 3\n", "line 1: 4 columns"),
        ("5\n", "line 1: 1 columns"),
        ("0 1 1.0\n1 2 much\n", "line 2: weight 'much' is not a number"),
        ("0,1\n,3\n", "line 2: id '' is not a whole number"),
        ("0 1\n0 99999999999999999999\n", "line 2: id '99999999999999999999' does not fit"),
        ("a,b\nc,d\n", "line 2: id 'c' is not a whole number"),
        ("0 1 nan\n", "weight 0 is nan"),
        ("0 1 1e99\n", "weight 0 is inf"),
        ("0 1\n3 \x00\n", "not a text file"),
        ("0 1\n2,3\n", "not an edge list"),
    ],
)
def test_a_bad_line_is_named(put, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_edge_list(put(text))
    assert message in str(caught.value)
    assert "g.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_gzip_is_one_line(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"{i} {i + 1}\n" for i in range(1000)).encode())
    path = tmp_path / "g.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated gzip"):
        read_edge_list(path)
    path.write_bytes(whole[:-8] + b"\0" * 8)
    with pytest.raises(UserError, match="damaged gzip"):
        read_edge_list(path)
    path.write_bytes(whole[:20] + b"\xff" * 50 + whole[70:])
    with pytest.raises(UserError, match="damaged gzip"):
        read_edge_list(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        read_edge_list(tmp_path / "none.txt")
    with pytest.raises(UserError, match="is a folder"):
        read_edge_list(tmp_path)


# Named columns


@pytest.mark.parametrize("sep", [" ", ",", "\t"])
@pytest.mark.parametrize("head", ["", "# a comment\n", "from,to,weight,when,what,kind\n"])
def test_named_columns_are_weights_and_arc_data_in_the_order_of_the_arcs(put, sep: str, head: str) -> None:
    rows = ["4 1 0.5 7.25 x 3", "1 4 2 8 y 0", "4 9 1 9 z 2"]
    text = head + "".join(row.replace(" ", sep) + "\n" for row in rows)
    g = read_edge_list(put(text), arc_columns=["weight", "time", "_", "kind"])
    assert (g.ids.tolist(), arcs(g)) == ([1, 4, 9], [(1, 4), (4, 1), (4, 9)])
    assert g.weights.tolist() == [0.5, 2.0, 1.0]  # by target, then by source
    assert {name: x.tolist() for name, x in g.arc_data.items()} == {
        "time": [7.25, 8.0, 9.0], "kind": [3, 0, 2],
    }  # fmt: skip
    assert [x.dtype for x in g.arc_data.values()] == [torch.float64, torch.int64]


def test_a_column_is_whole_if_all_of_it_is_and_none_below_zero(put) -> None:
    text = "".join(f"{k} {k + 1} {k} {-k} {2**60 + k}\n" for k in range(50)) + "50 51 0.5 3 5\n"
    g = read_edge_list(put(text), arc_columns=["late", "signed", "large"])
    assert [x.dtype for x in g.arc_data.values()] == [torch.float64, torch.float64, torch.int64]
    assert g.arc_data["signed"].tolist() == [-float(k) for k in range(50)] + [3.0]
    assert g.arc_data["large"].tolist() == [2**60 + k for k in range(50)] + [5]


def test_columns_of_one_name_are_one_array_in_their_order(put) -> None:
    names = ["weight", "features", "_", "features", "type", "features"]
    g = read_edge_list(put("1 0 0.5 1 x 2.5 7 -3\n0 1 2 4 y 5 8 6\n"), arc_columns=names)
    assert {name: x.tolist() for name, x in g.arc_data.items()} == {
        "features": [[1.0, 2.5, -3.0], [4.0, 5.0, 6.0]], "type": [7, 8],
    }  # fmt: skip
    assert [x.dtype for x in g.arc_data.values()] == [torch.float64, torch.int64]
    whole = read_edge_list(put("0 1 4 5\n"), arc_columns=["kind", "kind"]).arc_data["kind"]
    assert (whole.tolist(), whole.dtype) == ([[4, 5]], torch.int64)
    empty = read_edge_list(put("# nothing\n"), arc_columns=["f", "f"])
    assert list(empty.arc_data["f"].shape) == [0, 2]


def test_of_an_arc_given_twice_the_first_line_counts_and_a_warning_says_so(put) -> None:
    path = put("0 1 1 10\n1 0 1 20\n0 1 2 30\n0 1 4 40\n")
    with pytest.warns(Note, match=r"g\.txt: 2 arcs were given again .* of time the first is kept\.$"):
        g = read_edge_list(path, arc_columns=["weight", "time"])
    assert (g.weights.tolist(), g.arc_data["time"].tolist()) == ([1.0, 7.0], [20, 10])
    read_edge_list(path, arc_columns=["weight", "_"])  # nothing is lost: weights add up


def test_an_undirected_list_gives_an_arcs_data_to_its_mirror(put) -> None:
    g = read_edge_list(put("# Undirected graph\n0 1 5\n2 1 6\n"), arc_columns=["kind"])
    pairs = zip(g.indices.tolist(), g.rows.tolist(), strict=True)
    found = dict(zip(pairs, g.arc_data["kind"].tolist(), strict=True))
    assert found == {(0, 1): 5, (1, 0): 5, (1, 2): 6, (2, 1): 6}


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("0 1 2\n", ["time", "kind"], "line 1: 3 columns in '0 1 2'. Give 4: source, target, time, kind."),
        ("0 1 2\n0 1\n", ["time"], "line 2: 2 columns in '0 1'. Give 3: source, target, time."),
        ("0 1 2\n0 2 x\n", ["time"], "line 2: time 'x' is not a number"),
        ("0 1 2\n0 2 x\n", ["weight"], "line 2: weight 'x' is not a number"),
        ("0 1 2\n0 -2 3\n", ["time"], "line 2: id '-2' is negative"),
        ("0 1 nan\n", ["time"], "arc data 'time' hold nan at arc 0"),
        ("0 1 -1\n", ["type"], "arc data 'type' hold -1 at arc 0. Whole numbers are types, from 0 on"),
        (
            "0 1 2 3\n",
            None,
            "4 columns in '0 1 2 3'. Give source, target and perhaps a weight, or name the others",
        ),
    ],
)
def test_a_line_that_lacks_a_named_column_is_named(put, text, names, message) -> None:
    with pytest.raises(UserError) as caught:
        read_edge_list(put(text), arc_columns=names)
    assert message in str(caught.value)
    assert "g.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["my time"], "arc data cannot be named 'my time'"),
        (["weights"], "a graph has such a field"),
        (["weight", "weight"], "'weight' is named twice: an arc has one weight. Use another name, or _ to"),
        (["source"], "stands before the named ones"),
        ([""], "cannot be named ''"),
    ],
)
def test_names_of_columns_are_checked(put, names, message) -> None:
    with pytest.raises(UserError, match=message):
        read_edge_list(put("0 1 2 3\n"), arc_columns=names)

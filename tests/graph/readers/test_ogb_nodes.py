"""OGB's node sets in the form of their archives, small ones that the test writes."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph import load
from weft.graph.loading import data_sets


def table(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(gzip.compress(text.encode()))


def arxiv(base: str = "ogbn-arxiv") -> None:
    table(f"{base}/raw/edge.csv.gz", "0,1\n2,1\n3,0\n1,4\n")
    table(f"{base}/raw/num-node-list.csv.gz", "5\n")
    table(f"{base}/raw/num-edge-list.csv.gz", "4\n")
    table(f"{base}/raw/node-feat.csv.gz", "0.5,-1\n1,2\n3,4\n5,6\n7,8.25\n")
    table(f"{base}/raw/node-label.csv.gz", "0\n2\n1\n0\n2\n")
    table(f"{base}/raw/node_year.csv.gz", "2001\n2002\n2003\n2004\n2005\n")
    for name, ids in (("train", "0\n3\n"), ("valid", "1\n"), ("test", "2\n4\n")):
        table(f"{base}/split/time/{name}.csv.gz", ids)


def test_an_archive_of_tables_gives_arcs_features_labels_years_and_the_split():
    arxiv()
    graph = load("ogbn-arxiv")
    assert (graph.num_nodes, graph.num_arcs, graph.name) == (5, 4, "ogbn-arxiv")
    assert sorted(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True)) == [
        (0, 1),
        (1, 4),
        (2, 1),
        (3, 0),
    ]
    assert graph.features.tolist()[4] == [7.0, 8.25]
    assert graph.labels.tolist() == [0, 2, 1, 0, 2]
    assert graph.vertex_data["year"].tolist() == [2001, 2002, 2003, 2004, 2005]
    masks = [m.nonzero().ravel().tolist() for m in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == [[0, 3], [1], [2, 4]]


def test_it_is_found_by_name_and_its_tables_are_no_sets_of_their_own(monkeypatch):
    arxiv("data/ogbn_arxiv")
    assert list(data_sets("data")) == ["ogbn-arxiv"]
    monkeypatch.setenv("WEFT_DATA", "data")
    assert load("ogbn-arxiv").num_arcs == 4


def test_products_edges_count_in_both_directions_and_arc_features_go_with_them():
    arxiv("ogbn-products")
    table("ogbn-products/raw/edge-feat.csv.gz", "1,10\n2,20\n3,30\n4,40\n")
    graph = load("ogbn-products")
    assert graph.num_arcs == 8
    assert graph.is_symmetric
    at = {
        (int(c), int(r)): f.tolist()
        for c, r, f in zip(graph.indices, graph.rows, graph.arc_data["features"], strict=True)
    }
    assert at[2, 1] == at[1, 2] == [2.0, 20.0]


def test_columns_of_zeros_and_ones_are_many_labels_as_proteins_has_them():
    arxiv("ogbn-proteins")
    Path("ogbn-proteins/raw/node-feat.csv.gz").unlink()
    table("ogbn-proteins/raw/node-label.csv.gz", "0,1,1\n1,0,0\n0,0,0\n1,1,1\n0,1,0\n")
    table("ogbn-proteins/raw/node_species.csv.gz", "7\n7\n9\n9\n9\n")
    graph = load("ogbn-proteins")
    assert graph.labels.tolist()[0] == [False, True, True]
    assert graph.vertex_data["species"].tolist() == [7, 7, 9, 9, 9]
    assert graph.features is None


def papers() -> None:
    arxiv("papers")
    for path in Path("papers/raw").iterdir():
        path.unlink()
    year = np.full((5, 1), 1999)
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.savez("papers/raw/data.npz", edge_index=np.array([[0, 2, 3], [1, 1, 0]]), num_nodes_list=np.array([5]),
             node_feat=features, node_year=year)  # fmt: skip
    classes = np.array([[0], [np.nan], [3], [np.nan], [1]], dtype=np.float32)
    np.savez("papers/raw/node-label.npz", node_label=classes)


def test_the_binary_form_of_papers100m_is_read_and_vertices_without_a_class_have_none():
    papers()
    graph = load("papers")
    assert (graph.num_nodes, graph.num_arcs) == (5, 3)
    assert graph.labels.tolist() == [0, -1, 3, -1, 1]
    assert graph.features.tolist()[1] == [2.0, 3.0]
    assert graph.vertex_data["year"].tolist() == [1999] * 5


def mag() -> None:
    table("mag/raw/num-node-dict.csv.gz", "author,paper\n2,3\n")
    table("mag/raw/triplet-type-list.csv.gz", "author,writes,paper\npaper,cites,paper\n")
    table("mag/raw/relations/author___writes___paper/edge.csv.gz", "0,2\n1,0\n")
    table("mag/raw/relations/paper___cites___paper/edge.csv.gz", "2,1\n")
    table("mag/raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n5,6\n")
    table("mag/raw/node-label/paper/node-label.csv.gz", "4\n0\n1\n")
    for name, ids in (("train", "0\n"), ("valid", "1\n"), ("test", "2\n")):
        table(f"mag/split/time/paper/{name}.csv.gz", ids)


def test_the_types_of_mag_stand_one_after_the_other_with_their_relations():
    mag()
    graph = load("mag")
    assert graph.vertex_data["type"].tolist() == [0, 0, 1, 1, 1]
    arcs = {
        (int(c), int(r)): int(t)
        for c, r, t in zip(graph.indices, graph.rows, graph.arc_data["type"], strict=True)
    }
    assert arcs == {(0, 4): 0, (1, 2): 0, (4, 3): 1}
    assert graph.labels.tolist() == [-1, -1, 4, 0, 1]
    assert graph.features.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4], [5, 6]]
    assert graph.train_mask.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("raw/edge.csv.gz", "0,1\n2,x\n3,0\n1,4\n", "edge.csv.gz: line 2 is b'2,x', not 2 whole numbers"),
        ("raw/edge.csv.gz", "0,1\n2,1\n3,0\n", "edge.csv.gz: 3 lines, num-edge-list.csv.gz says 4"),
        ("raw/edge.csv.gz", "0,1\n2,1\n3,0\n1,9\n", "edge.csv.gz: "),
        ("raw/num-node-list.csv.gz", "5\n5\n", "num-node-list.csv.gz holds 2 numbers, not one size"),
        ("raw/num-node-list.csv.gz", "99999999999\n", "vertices: "),
        ("raw/node-feat.csv.gz", "1,2\n3,4\n", "node-feat.csv.gz: 2 lines for 5 vertices"),
        (
            "raw/node-feat.csv.gz",
            "1,2\n3\n5,6\n7,8\n9,1\n",
            "node-feat.csv.gz: line 2 is b'3', not 2 numbers",
        ),
        ("raw/node-label.csv.gz", "0.5\n2\n1\n0\n2\n", "node-label.csv.gz: a label is no class"),
        ("split/time/test.csv.gz", "2\n17\n", "test.csv.gz: vertex 17 is out of range for 5 vertices"),
    ],
)
def test_a_damaged_table_is_one_line_with_the_file_and_the_place(path, text, told):
    arxiv()
    table(f"ogbn-arxiv/{path}", text)
    with pytest.raises(UserError) as error:
        load("ogbn-arxiv")
    assert told in str(error.value)
    assert "ogbn-arxiv" in str(error.value)


def test_a_truncated_table_and_a_relation_out_of_range_name_their_files():
    arxiv()
    whole = Path("ogbn-arxiv/raw/edge.csv.gz").read_bytes()
    Path("ogbn-arxiv/raw/edge.csv.gz").write_bytes(whole[:-9])
    with pytest.raises(UserError, match=r"edge\.csv\.gz is a truncated gzip file"):
        load("ogbn-arxiv")
    mag()
    table("mag/raw/relations/paper___cites___paper/edge.csv.gz", "2,3\n")
    with pytest.raises(UserError, match=r"cites___paper/edge\.csv\.gz: paper 3 is out of range for 3"):
        load("mag")
    papers()
    np.savez("papers/raw/data.npz", edge_index=np.array([0, 1]))
    with pytest.raises(UserError, match=r"data\.npz: edge_index is not \[2, m\]"):
        load("papers")

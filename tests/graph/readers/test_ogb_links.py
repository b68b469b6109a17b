from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import load, open_store, write_store
from weft.graph.readers.ogb_links import read_ogb_links

PAIRS = {
    "valid_edge": [[0, 3]], "valid_edge_neg": [[1, 4], [0, 4]],
    "test_edge": [[2, 3]], "test_edge_neg": [[2, 5]],
}  # fmt: skip


def write(folder: Path, **pairs: object) -> Path:
    folder.mkdir()
    with gzip.open(folder / "train_edges.csv.gz", "wt") as file:
        file.write("0,1\n1,2\n3,4\n")
    np.savez(folder / "valid_test.npz", **{k: np.asarray(v) for k, v in (PAIRS | pairs).items()})
    return folder


def test_a_folder_of_links_is_a_graph_with_pairs(tmp_path):
    graph = read_ogb_links(write(tmp_path / "toy"))
    assert (graph.name, graph.num_nodes, graph.num_arcs) == ("toy", 6, 6)  # vertex 5 is in a pair alone
    assert graph.is_symmetric
    assert graph.val_negatives.tolist() == [[1, 4], [0, 4]]
    assert load("TOY", tmp_path).test_pairs.tolist() == [[2, 3]]
    assert load(str(tmp_path / "toy")).num_arcs == 6


def test_pairs_survive_the_store(tmp_path):
    graph = read_ogb_links(write(tmp_path / "toy"))
    store = open_store(write_store(graph, tmp_path / "toy.weft"))
    again = store.graph()
    for key in ("val_pairs", "val_negatives", "test_pairs", "test_negatives"):
        assert getattr(again, key).tolist() == getattr(graph, key).tolist()
    assert store.num_pairs("val_negatives") == 2
    assert store.pairs("val_negatives", 1, 2).tolist() == [[0, 4]]
    assert store.rows(0, 3).indices.tolist() == [1, 0, 2, 1]  # rows are read as before


def test_links_without_pairs_are_a_plain_graph(tmp_path):
    folder = write(tmp_path / "toy")
    (folder / "valid_test.npz").unlink()
    assert read_ogb_links(folder).val_pairs is None


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"test_edge": [[0, 1, 2]]}, "valid_test.npz: test_edge is not a list of pairs [m, 2]"),
        ({"test_edge": [[0.5, 1.0]]}, "valid_test.npz: test_edge is not a list of pairs [m, 2]"),
        ({"test_edge": [[-1, 2]]}, "valid_test.npz: test_pairs: vertex id -1 is out of range"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, pairs, message):
    with pytest.raises(UserError) as caught:
        read_ogb_links(write(tmp_path / "toy", **pairs))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_with_pairs_out_of_range_is_refused(tmp_path):
    graph = read_ogb_links(write(tmp_path / "toy"))
    with pytest.raises(UserError, match="val_pairs: vertex id 6 is out of range"):
        graph.replace(val_pairs=[[0, 6]])


def test_ogbl_ddi_has_its_known_counts(data):
    graph = load("ogbl-ddi", data)
    assert (graph.num_nodes, graph.num_arcs) == (4267, 2 * 1_067_911)
    keys = ("val_pairs", "val_negatives", "test_pairs", "test_negatives")
    assert [len(getattr(graph, k)) for k in keys] == [133_489, 101_882, 133_489, 95_599]


def released(folder: Path, features: str) -> Path:
    """An archive as ogbl-collab's and -ppa's: vertices have numbers."""
    for part in ("raw", "split/time"):
        (folder / part).mkdir(parents=True)
    tables = {"edge": "0,1\n1,2\n2,3\n", "num-node-list": "5\n", "node-feat": features}
    for name, text in tables.items():
        (folder / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    pairs = {"edge": np.array([[0, 3]]), "edge_neg": np.array([[1, 3]])}
    for name in ("valid", "test"):
        torch.save(pairs, folder / "split" / "time" / f"{name}.pt", _use_new_zipfile_serialization=False)
    return folder


def test_vertices_of_an_archive_bring_their_numbers(tmp_path):
    graph = load(str(released(tmp_path / "ogbl_collab", "0.5,-1\n1,2\n3,4\n5,6\n7,8.25\n")))
    assert graph.features.tolist() == [[0.5, -1], [1, 2], [3, 4], [5, 6], [7, 8.25]]
    assert (graph.num_nodes, graph.num_arcs) == (5, 6)
    assert graph.val_negatives.tolist() == [[1, 3]]


def test_numbers_of_too_few_vertices_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"node-feat\.csv\.gz: 2 lines for 5 vertices\. Fetch it again\."):
        load(str(released(tmp_path / "ogbl_collab", "0.5\n1\n")))

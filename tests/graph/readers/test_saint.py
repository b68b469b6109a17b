"""GraphSAINT's layout, Reddit as DGL gives it, and COO matrices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph import load
from weft.graph.loading import data_sets

ARCS = [(0, 1), (1, 0), (2, 1), (3, 0)]


def flickr(many: bool = False) -> None:
    Path("flickr").mkdir(exist_ok=True)
    np.savez("flickr/adj_full.npz", indptr=np.array([0, 1, 2, 3, 4]), indices=np.array([1, 0, 1, 0]),
             data=np.ones(4), shape=np.array([4, 4]), format=np.array(b"csr"))  # fmt: skip
    np.save("flickr/feats.npy", np.arange(8.0).reshape(4, 2))
    classes = {str(v): [v % 2, 1, 0] if many else v for v in range(4)}
    Path("flickr/class_map.json").write_text(json.dumps(classes))
    Path("flickr/role.json").write_text('{"tr": [0, 1], "va": [2], "te": [3]}')


def arcs(graph) -> list[tuple[int, int]]:
    return sorted(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True))


def test_graphsaints_folder_gives_the_graph_without_weights_of_ones():
    flickr()
    graph = load("flickr")
    assert arcs(graph) == ARCS
    assert graph.weights is None
    assert graph.features.tolist()[3] == [6, 7]
    assert graph.labels.tolist() == [0, 1, 2, 3]
    assert (graph.train_mask.tolist(), graph.test_mask.tolist()) == (
        [True, True, False, False],
        [False] * 3 + [True],
    )


def test_lists_of_zeros_and_ones_are_many_labels():
    flickr(many=True)
    assert load("flickr").labels.tolist()[1] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("role.json", '{"tr": [0, 9], "va": [], "te": []}', "role.json: tr names vertex 9, of 4"),
        ("role.json", '{"tr": [0', "role.json is not sound JSON"),
        ("role.json", '{"tr": "0"}', "role.json: tr is no list of vertices"),
        ("class_map.json", '{"0": 1, "x": 2}', "class_map.json: 'x' is no vertex below 4"),
        (
            "class_map.json",
            '{"0": [1, 0], "1": [1]}',
            "class_map.json: the label of vertex 1 is not 2 zeros and ones",
        ),
        ("class_map.json", '{"0": -3}', "class_map.json: the label of vertex 0 is not a class"),
        ("class_map.json", "[1]", "class_map.json is no table of names"),
        ("feats.npy", "nonsense", "feats.npy is not a .npy array"),
    ],
)
def test_damage_is_one_line_with_the_file(name, text, told):
    flickr()
    Path(f"flickr/{name}").write_text(text)
    with pytest.raises(UserError) as error:
        load("flickr")
    assert told in str(error.value)


def reddit() -> None:
    Path("reddit").mkdir(exist_ok=True)
    source, target = zip(*ARCS, strict=True)
    np.savez("reddit/reddit_graph.npz", row=np.array(source), col=np.array(target), data=np.ones(4),
             shape=np.array([4, 4]), format=np.array(b"coo"))  # fmt: skip
    np.savez("reddit/reddit_data.npz", feature=np.ones((4, 3)), label=np.array([0, 1, 2, 0]),
             node_types=np.array([1, 1, 2, 3]))  # fmt: skip


def test_reddit_as_dgl_gives_it():
    reddit()
    assert list(data_sets(".")) == ["reddit"]
    graph = load("reddit")
    assert arcs(graph) == ARCS
    assert (graph.num_features, graph.num_classes) == (3, 3)
    assert (graph.val_mask.tolist(), graph.test_mask.tolist()) == (
        [False, False, True, False],
        [False] * 3 + [True],
    )
    np.savez("reddit/reddit_data.npz", feature=np.ones((4, 3)), label=np.array([0, 1, 2]))
    with pytest.raises(UserError, match=r"reddit_data\.npz: label is \[3\] int64 for 4 vertices"):
        load("reddit")


def test_a_coo_matrix_keeps_weights_that_are_not_ones_and_is_refused_where_lengths_differ():
    np.savez(
        "a.npz", row=np.array([0, 2]), col=np.array([1, 1]), data=np.array([0.5, 2.0]), shape=np.array([4, 4])
    )
    graph = load("a.npz")
    assert (graph.num_nodes, arcs(graph), graph.weights.tolist()) == (4, [(0, 1), (2, 1)], [0.5, 2.0])
    np.savez("b.npz", row=np.array([0, 2]), col=np.array([1]))
    with pytest.raises(UserError, match="2 rows for 1 columns"):
        load("b.npz")
    np.savez("c.npz", row=np.array([0]), col=np.array([7]), shape=np.array([4, 4]))
    with pytest.raises(UserError, match=r"c\.npz: "):
        load("c.npz")
    np.savez("d.npz", row=np.array([0]), col=np.array([1 << 40]))
    with pytest.raises(UserError, match=r"GB needed for"):
        load("d.npz")

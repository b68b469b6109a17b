"""From what a user types to a graph; and the facts of the shared data sets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, data_sets, from_pyg, karate, load, read, sbm, split, to_pyg, write_store

DATA = os.environ.get("WEFT_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="WEFT_DATA is not set: no real graphs to read")


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("WEFT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_spec_is_its_generator_with_those_arguments() -> None:
    g = load("sbm:nodes=200,classes=4,noise=0.5")
    assert torch.equal(g.features, sbm(nodes=200, classes=4, noise=0.5).features)
    assert load("Karate").num_nodes == 34
    assert not load("er:nodes=50,degree=5,directed=true").is_symmetric
    assert load("kronecker: scale=5 , degree=4").num_nodes == 32
    assert load("bter:nodes=300,degree=5,clustering=0.2").num_nodes == 300
    assert load("karate:").num_nodes == 34


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sbm:node=5", "unknown argument of sbm 'node'. Did you mean 'nodes'?"),
        ("sbmm:nodes=5", "unknown generator 'sbmm'. Did you mean 'sbm'?"),
        ("karat", "unknown graph 'karat'. Did you mean 'karate'?"),
        ("sbm:nodes=x", "'x' is not a whole number"),
        ("sbm:nodes=1.5", "'1.5' is not a whole number"),
        ("sbm:noise=loud", "'loud' is not a number"),
        ("er:directed=perhaps", "'perhaps' is neither true nor false"),
        ("sbm:nodes", "sbm:nodes lacks a value"),
        ("sbm:nodes=5,nodes=6", "nodes is given twice"),
        ("karate:nodes=5", "karate takes no arguments but arc_features and arc_types"),
        ("karate:arc_features=-1", "arc_features=-1 is no such size"),
        ("karate:arc_types=-1", "arc_types=-1 is no such size"),
        ("karate:arc_types=9999999999", "arc_types=9999999999 is above"),
        ("karate:arc_features=999999999999", "GB needed"),
        ("er:arc_feature=3", "unknown argument of er 'arc_feature'. Did you mean 'arc_features'?"),
        ("bter:degrees=3", "unknown argument of bter 'degrees'"),
        ("kronecker:nodes=1000", "Use nodes=512 or nodes=1024"),
        ("none.weft", "no file none.weft"),
        ("none.txt.gz", "no file none.txt.gz"),
        ("some/where", "no file some/where"),
        ("cora", "set WEFT_DATA or pass --data"),
    ],
)
def test_a_bad_spec_is_one_line_with_a_remedy(no_data: Path, spec: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_are_read_by_their_ending(no_data: Path) -> None:
    Path("g.txt").write_text("0 1\n")
    Path("g.csv").write_text("0,1\n")
    Path("G.MTX").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    np.savez("g.npz", indptr=[0, 1, 1], indices=[1])
    write_store(Graph.from_arcs([0], [1]), "g.weft")
    for name in ("g.txt", "g.csv", "G.MTX", "g.npz", "g.weft"):
        assert (load(name).indices.tolist(), load(name).rows.tolist()) == ([0], [1])
    Path("g.doc").write_text("0 1\n")
    with pytest.raises(UserError, match=r"unknown graph format 'g\.doc'"):
        load("g.doc")


def test_data_sets_are_found_by_name_whatever_the_capitals(no_data: Path) -> None:
    (no_data / "mine" / "deep").mkdir(parents=True)
    write_store(karate(), no_data / "mine" / "deep" / "Club.weft")
    (no_data / "Roads.ungraph.txt").write_text("0 1\n")
    assert set(data_sets(no_data)) == {"club", "roads"}
    assert load("CLUB", no_data).num_nodes == 34
    assert load("roads", str(no_data)).name == "roads"
    with pytest.raises(UserError, match="Did you mean 'roads'"):
        load("raods", no_data)
    with pytest.raises(UserError, match=r"data folder .* does not exist"):
        load("roads", no_data / "gone")


def test_the_environment_names_the_folder_unless_told(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_data / "a.txt").write_text("0 1\n")
    monkeypatch.setenv("WEFT_DATA", str(no_data))
    assert load("a").num_arcs == 1


# The facts of the README beside the data


@needs_data
@pytest.mark.parametrize(
    ("name", "nodes", "arcs", "features", "classes", "sizes"),
    [
        ("cora", 2708, 10556, 1433, 7, [140, 500, 1000]),
        ("PubMed", 19717, 88648, 500, 3, [60, 500, 1000]),
        ("amazon_photo", 7650, 143663, 745, 8, []),
        ("coauthor_cs", 18333, 163788, 6805, 15, []),
        ("soc-slashdot0902", 82168, 948464, 0, 0, []),
        ("com-dblp", 317080, 2 * 1049866, 0, 0, []),
        ("email-Enron", 36692, 2 * 183831, 0, 0, []),
        ("cnr-2000", 325557, 3216152, 0, 0, []),
        ("ogbl-ddi", 4267, 2 * 1067911, 0, 0, []),
    ],
)
def test_real_graphs_have_their_known_sizes(name, nodes, arcs, features, classes, sizes) -> None:
    g = load(name)
    assert (g.num_nodes, g.num_arcs, g.num_features, g.num_classes) == (nodes, arcs, features, classes)
    masks = [int(m.sum()) for m in (g.train_mask, g.val_mask, g.test_mask) if m is not None]
    assert masks == sizes
    assert g.name == name.lower()
    if name in ("cora", "PubMed", "coauthor_cs", "com-dblp", "email-Enron", "ogbl-ddi"):
        assert g.is_symmetric
        assert not g.has_self_loops


@needs_data
def test_slashdot_has_its_self_loops_and_dblp_its_own_ids() -> None:
    slashdot = load("soc-slashdot0902")
    assert int((slashdot.rows == slashdot.indices).sum()) == 78303
    dblp = load("com-dblp")
    assert int(dblp.ids.max()) == 425956
    assert bool((dblp.ids.diff() > 0).all())


@needs_data
def test_amazon_photo_is_stored_one_way_and_can_be_made_undirected_and_split() -> None:
    g = load("amazon_photo")
    assert g.symmetrised().without_self_loops().num_arcs == 2 * 119081
    g = split(g, train=20, val=500)
    assert [int(m.sum()) for m in (g.train_mask, g.val_mask, g.test_mask)] == [160, 500, 6990]


@needs_data
def test_planetoid_equals_what_pyg_reads() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.io import read_planetoid_data

    folder = data_sets(DATA)["cora"]
    try:
        theirs = read_planetoid_data(str(folder), "cora")
    except Exception as error:  # PyG's reader of old pickles depends on the versions of numpy and scipy
        pytest.skip(f"PyG does not read these files here: {error}")
    ours, theirs = load("cora"), from_pyg(theirs)
    for key in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(ours, key), getattr(theirs, key))


@needs_data
def test_the_links_of_ogbl_ddi_have_their_known_counts() -> None:
    with np.load(Path(DATA) / "ogbl-ddi" / "valid_test.npz", allow_pickle=False) as links:
        counts = {key: len(links[key]) for key in links}
    assert counts == {
        "valid_edge": 133489,
        "valid_edge_neg": 101882,
        "test_edge": 133489,
        "test_edge_neg": 95599,
    }


@needs_data
def test_a_planetoid_folder_may_be_named_by_its_path(tmp_path: Path) -> None:
    shutil.copytree(data_sets(DATA)["cora"], tmp_path / "Cora" / "raw")
    assert load(tmp_path / "Cora").num_nodes == read(tmp_path / "Cora" / "raw").num_nodes == 2708


@pytest.mark.parametrize("spec", ["karate", "er:nodes=70,degree=4", "kronecker:scale=6,degree=4",
                                  "bter:nodes=80,degree=4", "sbm:nodes=60,classes=3"])  # fmt: skip
def test_every_generator_gives_arcs_features_and_types(spec: str) -> None:
    join = "," if ":" in spec else ":"
    g, bare = load(f"{spec}{join}arc_features=3,arc_types=5"), load(spec)
    assert torch.equal(g.indices, bare.indices)
    assert bare.arc_data == {}
    assert (g.arc_data["features"].shape, g.arc_data["features"].dtype) == ((g.num_arcs, 3), torch.float32)
    assert (g.arc_data["type"].shape, g.arc_data["type"].dtype) == ((g.num_arcs,), torch.int64)
    assert set(g.arc_data["type"].tolist()) == set(range(5))


def test_arc_data_follow_from_the_seed_and_the_two_vertices_alone() -> None:
    dense, sparse = (
        load(f"er:nodes=90,degree={d},seed=4,directed=true,arc_features=4,arc_types=7") for d in (60, 3)
    )

    def by_arc(g: Graph) -> dict[tuple[int, int], tuple[list[float], int]]:
        pairs = zip(g.indices.tolist(), g.rows.tolist(), strict=True)
        numbers = zip(g.arc_data["features"].tolist(), g.arc_data["type"].tolist(), strict=True)
        return dict(zip(pairs, numbers, strict=True))

    many, few = by_arc(dense), by_arc(sparse)
    both = many.keys() & few.keys()
    assert len(both) > 50
    assert all(many[pair] == few[pair] for pair in both)
    assert all(many[s, t] != many[t, s] for s, t in many if (t, s) in many)
    wider = load("er:nodes=90,degree=3,seed=4,directed=true,arc_features=5").arc_data["features"]
    assert torch.equal(wider[:, :4], sparse.arc_data["features"])
    other = load("er:nodes=90,degree=3,seed=5,directed=true,arc_features=4,arc_types=7")
    assert not any(by_arc(other)[pair] == few[pair] for pair in by_arc(other).keys() & few.keys())


def test_arc_features_are_normal_and_their_columns_independent() -> None:
    x = load("er:nodes=300,degree=200,arc_features=5,arc_types=3").arc_data["features"].double()
    # 60,000 draws: the spread of a mean is 0.004, of a correlation as well; six of them.
    assert float(x.mean(0).abs().max()) < 0.025
    assert float((x.T @ x / len(x) - torch.eye(5)).abs().max()) < 0.035
    assert float((x.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.005)


def test_columns_are_named_for_edge_lists_alone(no_data: Path) -> None:
    (no_data / "g.csv").write_text("0,1,2.5,3\n1,0,1,4\n")
    g = load("g.csv", arc_columns=["weight", "kind"])
    assert (g.weights.tolist(), g.arc_data["kind"].tolist()) == ([1.0, 2.5], [4, 3])
    assert torch.equal(load("g", no_data, ["weight", "kind"]).arc_data["kind"], g.arc_data["kind"])
    write_store(karate(), no_data / "k.weft")
    for spec in ("karate", "er:nodes=9", "k.weft"):
        with pytest.raises(UserError, match="names the columns of an edge list"):
            load(spec, arc_columns=["time"])


def test_a_data_of_pyg_and_a_graph_are_graphs_already() -> None:
    pytest.importorskip("torch_geometric")
    graph = karate()
    assert load(graph) is graph
    assert torch.equal(load(to_pyg(graph)).indices, graph.indices)
    with pytest.raises(UserError, match="a list is no graph"):
        load([1, 2])
    with pytest.raises(UserError, match=r"Data is none\. Leave it out"):
        load(to_pyg(graph), arc_columns=["weight"])

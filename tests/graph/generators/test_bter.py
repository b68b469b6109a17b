"""BTER: degrees and clustering come out near what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from weft.errors import UserError
from weft.graph import Graph, bter, er, load, power_law, write_store
from weft.graph.generators.profile import profile_of


def local_clustering(g: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Degree and share of closed triangles of each vertex."""
    a = sp.csr_matrix((np.ones(g.num_arcs), g.indices.numpy(), g.indptr.numpy()))
    degree = np.diff(g.indptr.numpy())
    closed = np.asarray((a @ a).multiply(a).sum(axis=1)).ravel()
    return degree, closed / np.maximum(degree * (degree - 1), 1)


def test_degree_distribution_and_clustering_are_near_the_targets() -> None:
    counts = power_law(8000, 12, 100)
    d = np.arange(len(counts))
    target = 0.7 * np.exp(-d / 40)
    g = bter(counts, target)
    assert g.is_symmetric
    assert not g.has_self_loops
    degree, clustering = local_clustering(g)
    got = np.bincount(degree, minlength=len(counts))
    assert np.abs(got - counts).sum() < 0.02 * counts.sum()
    for lo, hi in ((3, 6), (6, 12), (12, 25), (25, 50)):
        chosen = (degree >= lo) & (degree < hi)
        wanted = target[degree[chosen]].mean()
        assert clustering[chosen].mean() == pytest.approx(wanted, rel=0.15)


def test_without_clustering_there_are_hardly_any_triangles() -> None:
    degree, clustering = local_clustering(bter(power_law(4000, 8, 60), 0.0))
    assert clustering[degree > 1].mean() < 0.03


def test_full_clustering_makes_blocks_of_like_degree_complete() -> None:
    g = bter([0, 0, 0, 8], 1.0)  # 8 vertices of degree 3: two blocks of 4
    degree, clustering = local_clustering(g)
    assert degree.tolist() == [3] * 8
    assert clustering.tolist() == [1.0] * 8


def test_the_seed_decides_and_numbers_serve_for_distributions() -> None:
    assert torch.equal(bter(nodes=500).indices, bter(nodes=500).indices)
    g = bter(nodes=2000, degree=6, max_degree=50, clustering=0.3, features=4, classes=2)
    assert g.num_nodes == 2000
    assert g.num_arcs / 2000 == pytest.approx(6, rel=0.05)
    assert g.num_features == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degrees": [0, -1, 3]}, "degrees[1] is -1"),
        ({"degrees": [0.5, 1]}, "whole numbers"),
        ({"degrees": [0, 0, 0, 2]}, "degree 3 needs more than the 2 vertices"),
        ({"degrees": [0, 9], "clustering": [0.1]}, "1 clustering values for degrees 0 to 1"),
        ({"clustering": 1.5}, "clustering[0] is 1.5"),
        ({"nodes": 100, "max_degree": 100}, "max_degree=100"),
        ({"nodes": 100, "degree": 60, "max_degree": 99}, "degree=60"),
    ],
)
def test_a_bad_argument_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        bter(**arguments)
    assert message in str(caught.value)


def test_isolated_vertices_may_be_asked_for() -> None:
    g = bter([5, 4], 0.0)
    assert sorted(g.indptr.diff().tolist()) == [0] * 5 + [1] * 4


def test_a_graph_like_another_has_its_degrees_and_its_clustering_and_times_as_many_arcs():
    model = bter(power_law(3000, 8, 60), 0.4, seed=3)
    write_store(model, "model.weft")
    twin = bter(like="model.weft")
    told, found = profile_of(model), profile_of(twin)
    assert twin.num_nodes == model.num_nodes
    assert abs(twin.num_arcs / model.num_arcs - 1) < 0.02
    size = min(len(told.degrees), len(found.degrees))
    assert np.abs(told.degrees[:size] - found.degrees[:size]).sum() < 0.05 * model.num_nodes
    often = np.flatnonzero(told.degrees[:30] > 40)
    often = often[often >= 3]
    assert np.abs(told.clustering[often] - found.clustering[often]).mean() < 0.1
    more = bter(like="model.weft", times=4)
    assert abs(more.num_arcs / model.num_arcs - 4) < 0.2
    assert more.num_nodes == model.num_nodes


def test_times_without_a_graph_and_degrees_beside_one_are_refused():
    with pytest.raises(
        UserError, match=r"times=8 multiplies the degrees of another graph. Name it: like=GRAPH"
    ):
        bter(times=8)
    with pytest.raises(UserError, match="Give one of them"):
        bter([0, 5], like="karate")
    with pytest.raises(UserError, match="times=0 is no such size"):
        bter(like="karate", times=0)
    assert load("bter:like=karate,times=2,features=3").num_features == 3


def test_the_profile_of_a_complete_graph_is_one_degree_with_every_triangle_closed():
    found = profile_of(er(9, 8))
    assert found.degrees.tolist() == [0] * 8 + [9]
    assert found.clustering[8] == 1
    assert found.times(5).degrees.tolist() == [0] * 8 + [9]  # no more than n - 1 neighbours
    assert found.times(1, nodes=18).degrees.tolist() == [0] * 8 + [18]

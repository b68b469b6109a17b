"""Graph500's Kronecker graph: sizes, connectedness, skew, seeds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph import kronecker


@given(st.integers(1, 8), st.integers(0, 12), st.integers(0, 3), st.booleans())
def test_no_loops_and_no_vertex_alone(scale: int, degree: int, seed: int, directed: bool) -> None:
    g = kronecker(scale, degree, seed, directed=directed)
    assert g.num_nodes == 2**scale
    assert not g.has_self_loops
    touched = g.indptr.diff() + torch.bincount(g.indices, minlength=g.num_nodes)
    assert int(touched.min()) > 0
    assert directed or g.is_symmetric


def test_the_benchmark_graph_has_the_size_of_the_issue() -> None:
    g = kronecker(scale=17, degree=30)
    assert g.num_nodes == 131_072
    assert 3_500_000 < g.num_arcs < 3_700_000


def test_degrees_are_heavy_tailed_and_labels_carry_no_order() -> None:
    degrees = kronecker(scale=12, degree=16).indptr.diff().double()
    assert degrees.max() > 20 * degrees.mean()
    half = len(degrees) // 2
    assert 0.7 < degrees[:half].sum() / degrees[half:].sum() < 1.4  # unpermuted R-MAT has 3 there


def test_the_seed_decides() -> None:
    a, b, c = kronecker(scale=8), kronecker(scale=8), kronecker(scale=8, seed=1)
    assert torch.equal(a.indices, b.indices)
    assert not torch.equal(a.indptr, c.indptr)


def test_random_features_and_classes_come_with_a_split() -> None:
    g = kronecker(scale=7, degree=8, features=5, classes=3)
    assert (g.num_features, g.num_classes) == (5, 3)
    assert int(g.train_mask.sum() + g.val_mask.sum() + g.test_mask.sum()) == 128
    assert torch.equal(g.indices, kronecker(scale=7, degree=8).indices)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 1000}, "nodes=1000 is none. Use nodes=512 or nodes=1024"),
        ({"nodes": 0}, "nodes=0"),
        ({"nodes": 1024, "scale": 9}, "nodes=1024 is scale=10"),
        ({"scale": 77}, "scale=77"),
        ({"scale": -1}, "scale=-1"),
        ({"scale": 31, "degree": 1e9}, "GB needed"),
        ({"scale": 5, "degree": -1}, "degree=-1"),
        ({"scale": 5, "degree": float("inf")}, "degree=inf"),
        ({"scale": 5, "features": -1}, "features=-1"),
        ({"scale": 5, "seed": -1}, "seed=-1"),
    ],
)
def test_a_bad_size_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        kronecker(**arguments)
    assert message in str(caught.value)


def test_nodes_may_stand_for_scale() -> None:
    assert torch.equal(kronecker(nodes=256).indices, kronecker(scale=8).indices)

"""Erdős–Rényi: every pair alike, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import er
from weft.graph.generators.common import distinct


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("directed", [False, True])
def test_a_full_degree_gives_every_pair_once(n: int, directed: bool) -> None:
    g = er(n, degree=n - 1, directed=directed)
    assert g.num_arcs == n * (n - 1)
    assert not g.has_self_loops


def test_the_mean_degree_is_the_one_asked_for() -> None:
    for directed in (False, True):
        g = er(5000, degree=10, directed=directed)
        assert g.num_arcs / 5000 == pytest.approx(10, rel=0.03)  # 5 standard deviations are 0.03
        assert g.is_symmetric != directed


@pytest.mark.parametrize("n", [7, 8])
def test_each_pair_is_as_likely_as_any_other(n: int) -> None:
    counts = np.zeros((n, n))
    for seed in range(300):
        g = er(n, degree=2, seed=seed)
        counts[g.rows.numpy(), g.indices.numpy()] += 1
    off = counts[~np.eye(n, dtype=bool)]
    expected = 300 * 2 / (n - 1)
    assert np.abs(off - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(("population", "count"), [(10, 0), (10, 10), (10, 3), (10**12, 1000), (100, 24)])
def test_distinct_draws_are_distinct(population: int, count: int) -> None:
    drawn = distinct(np.random.default_rng(0), population, count)
    assert len(drawn) == len(set(drawn.tolist())) == count
    assert all(0 <= v < population for v in drawn.tolist())


def test_the_seed_decides_and_extras_come_along() -> None:
    assert torch.equal(er(100, seed=3).indices, er(100, seed=3).indices)
    assert er(100, 4, features=6, classes=2).num_features == 6
    with pytest.raises(UserError, match="nodes=0"):
        er(0)
    with pytest.raises(UserError, match="degree=nan"):
        er(10, degree=float("nan"))

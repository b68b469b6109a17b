"""Normalisations against dense algebra and against PyG."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, from_pyg, normalise, normalise_features


def directed(n: int, weighted: bool, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(n, size=(2, 4 * n))
    weights = rng.uniform(0.5, 2.0, 4 * n) if weighted else None
    return Graph.from_arcs(source, target, n, weights)


def dense(g: Graph) -> torch.Tensor:
    a = torch.zeros(g.num_nodes, g.num_nodes, dtype=torch.float64)
    a[g.rows, g.indices.long()] = (
        torch.ones(g.num_arcs, dtype=torch.float64) if g.weights is None else g.weights.double()
    )
    return a


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 7, 8, 9])
def test_gcn_is_d_a_plus_i_d_on_directed_graphs(n: int, weighted: bool) -> None:
    g = directed(n, weighted)
    a = dense(g)
    a += torch.diag((a.diag() == 0).double())
    d = a.sum(dim=1).rsqrt()
    out = normalise(g, "gcn", dtype=torch.float64)
    torch.testing.assert_close(dense(out), d[:, None] * a * d[None, :], rtol=1e-13, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_equals_pyg_on_a_directed_graph_with_some_loops(weighted: bool) -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    g = directed(50, weighted)
    assert g.has_self_loops
    edges = torch.stack([g.indices.long(), g.rows])
    edges, weights = gcn_norm(edges, g.weights, num_nodes=50, add_self_loops=True, dtype=torch.float64)
    theirs = from_pyg(Data(edge_index=edges, edge_weight=weights, num_nodes=50))
    ours = normalise(g, "gcn", dtype=torch.float64)
    assert torch.equal(ours.indices, theirs.indices)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-13, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_rows_sum_to_one_and_rows_without_arcs_stay_empty(weighted: bool) -> None:
    g = Graph.from_arcs([0, 1, 2], [2, 2, 0], 4, [1.0, 3.0, 2.0] if weighted else None)
    out = normalise(g, "mean")
    assert out.indptr.tolist() == [0, 1, 1, 3, 3]
    assert out.weights.tolist() == ([1.0, 0.25, 0.75] if weighted else [1.0, 0.5, 0.5])
    assert out.weights.dtype == torch.float32


def test_a_row_that_sums_to_zero_gets_zeros_not_infinity() -> None:
    g = Graph.from_arcs([0, 1], [2, 2], 3, [1.0, -1.0])
    assert normalise(g, "mean").weights.tolist() == [0.0, 0.0]


def test_none_changes_nothing_and_an_unknown_name_suggests_one() -> None:
    g = directed(5, False)
    assert normalise(g, "none") is g
    with pytest.raises(UserError, match="Did you mean 'mean'"):
        normalise(g, "meen")


def test_feature_rows_sum_to_one_except_rows_of_zeros() -> None:
    g = Graph.from_arcs([0], [1], features=torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert normalise_features(g).features.tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert normalise_features(directed(5, False)).features is None

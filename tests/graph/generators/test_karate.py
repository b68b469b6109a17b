"""Zachary's karate club against PyG's copy of it."""

from __future__ import annotations

import pytest
import torch

from weft.graph import from_pyg, karate


def test_the_club_has_its_known_sizes() -> None:
    g = karate()
    assert (g.num_nodes, g.num_arcs, g.num_features, g.num_classes) == (34, 156, 34, 2)
    assert g.is_symmetric
    assert not g.has_self_loops
    assert torch.bincount(g.labels).tolist() == [17, 17]
    assert [int(m.sum()) for m in (g.train_mask, g.val_mask, g.test_mask)] == [4, 10, 20]
    assert set(g.labels[g.train_mask].tolist()) == set(g.labels[g.val_mask].tolist()) == {0, 1}


def test_arcs_equal_those_of_pyg() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.datasets import KarateClub

    theirs, ours = from_pyg(KarateClub()[0]), karate()
    assert torch.equal(ours.indptr, theirs.indptr)
    assert torch.equal(ours.indices, theirs.indices)

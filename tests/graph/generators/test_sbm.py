"""The planted partition: structure as asked for, and arcs worth having."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.errors import UserError
from weft.graph import Graph, normalise, sbm


def test_share_of_arcs_inside_classes_is_the_homophily() -> None:
    for homophily in (0.1, 0.6, 0.9):
        g = sbm(nodes=4000, classes=5, homophily=homophily)
        inside = (g.labels[g.rows] == g.labels[g.indices.long()]).double().mean()
        assert float(inside) == pytest.approx(homophily, abs=0.02)
        assert g.is_symmetric
        assert not g.has_self_loops


def test_classes_are_even_and_the_split_is_as_asked_for() -> None:
    g = sbm(nodes=1003, classes=4, train=0.25, val=100)
    assert sorted(torch.bincount(g.labels).tolist()) == [250, 251, 251, 251]
    assert [int(m.sum()) for m in (g.train_mask, g.val_mask, g.test_mask)] == [251, 100, 652]


def test_degree_and_seed() -> None:
    g = sbm(nodes=4000, degree=10)
    assert g.num_arcs / 4000 == pytest.approx(10, rel=0.03)
    assert torch.equal(g.features, sbm(nodes=4000, degree=10).features)
    assert not torch.equal(g.features, sbm(nodes=4000, degree=10, seed=1).features)


def accuracy(g: Graph, propagate: bool) -> float:
    """Test accuracy of a two-layer network, with or without A between the layers."""
    torch.manual_seed(0)
    norm = normalise(g, "gcn")
    rows, cols, weights = norm.rows, norm.indices.long(), norm.weights[:, None]

    def spread(h: Tensor) -> Tensor:
        return torch.zeros_like(h).index_add(0, rows, weights * h[cols]) if propagate else h

    first, second = torch.nn.Linear(g.num_features, 32), torch.nn.Linear(32, g.num_classes)
    optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02, weight_decay=1e-3)
    x = spread(g.features)
    for _ in range(60):
        out = spread(second(first(x).relu()))
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(out[g.train_mask], g.labels[g.train_mask]).backward()
        optimiser.step()
    right = out.argmax(dim=1) == g.labels
    return float(right[g.test_mask].double().mean())


def test_arcs_make_the_default_learnable_and_features_alone_do_not() -> None:
    g = sbm(nodes=4000)
    with_arcs, without = accuracy(g, True), accuracy(g, False)
    assert with_arcs > 0.9
    assert 0.15 < without < 0.5  # chance is 0.125


def test_noise_and_homophily_make_it_harder() -> None:
    easy = accuracy(sbm(nodes=1500), True)
    assert accuracy(sbm(nodes=1500, noise=4.0), True) < easy - 0.1
    assert accuracy(sbm(nodes=1500, homophily=0.25), True) < easy - 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "classes=1"),
        ({"nodes": 10, "classes": 8}, "nodes=10 is too few for classes=8"),
        ({"homophily": 1.2}, "homophily=1.2"),
        ({"noise": -1}, "noise=-1"),
        ({"features": 0}, "features=0"),
        ({"nodes": 10**14}, "GB needed"),
        ({"train": 2.5}, "train=2.5"),
    ],
)
def test_a_bad_argument_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        sbm(**arguments)
    assert message in str(caught.value)

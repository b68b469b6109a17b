from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from weft.nn import build_decoder
from weft.train import scoring
from weft.train.scoring import pair_gradients, pair_scores


@pytest.mark.parametrize("name", ["dot", "mlp"])
@pytest.mark.parametrize("chunk", [3, 100])
def test_gradients_in_chunks_are_those_of_autograd_over_all_pairs(name, chunk, monkeypatch):
    monkeypatch.setattr(scoring, "_CHUNK", chunk)
    decoder = build_decoder(name, 3, 5, 0.0, seed=2).double()
    g = torch.Generator().manual_seed(0)
    h = torch.randn(7, 5, generator=g, dtype=torch.float64)
    u, v = torch.randint(0, 7, (2, 11), generator=g)  # repeats, and pairs of a vertex with itself
    u[0] = v[0]
    labels = (torch.arange(11) < 6).double()
    shares = torch.rand(11, generator=g, dtype=torch.float64)
    loss, dh = pair_gradients(h, u, v, labels, shares, decoder)
    ours = [p.grad.clone() for p in decoder.parameters()]

    decoder.zero_grad()
    x = h.clone().requires_grad_()
    scores = decoder(x[u] * x[v])
    want = (shares * F.binary_cross_entropy_with_logits(scores, labels, reduction="none")).sum()
    want.backward()
    assert loss.item() == pytest.approx(want.item(), rel=1e-12)
    assert torch.allclose(dh, x.grad, rtol=1e-12, atol=1e-14)
    for a, p in zip(ours, decoder.parameters(), strict=True):
        assert torch.allclose(a, p.grad, rtol=1e-12, atol=1e-14)
    assert torch.allclose(pair_scores(h, u, v, decoder.eval()), scores.detach(), rtol=1e-12)


def test_no_pairs_have_no_loss_and_no_gradient():
    none = torch.empty(0, dtype=torch.int64)
    loss, dh = pair_gradients(
        torch.ones(3, 2), none, none, none.float(), none.float(), build_decoder("dot", 1, 2, 0.0)
    )
    assert loss.item() == 0
    assert torch.equal(dh, torch.zeros(3, 2))
    assert pair_scores(torch.ones(3, 2), none, none, build_decoder("dot", 1, 2, 0.0)).shape == (0,)

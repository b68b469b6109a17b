"""Scores of pairs, and the loss of them: functions of embeddings and pairs, whoever made those.

h       [k, w]  embeddings of the vertices at hand
u, v    [m]     the rows of h where a pair's ends stand
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import add_pair_products_, pair_products
from ..meter import left_out
from ..nn import Decoder

_CHUNK = 4096
"""Pairs at a time: the buffers between two products then stay in the cache."""
_SPARSE = 16
"""From so many vertices for each end on, ends are sorted instead of marked."""


def pair_scores(h: Tensor, u: Tensor, v: Tensor, decoder: Decoder) -> Tensor:
    """score[k] = decoder(h[u[k]] ∘ h[v[k]]), without a gradient. [m]

    >>> from weft.nn import build_decoder
    >>> pair_scores(torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([0]), torch.tensor([1]),
    ...             build_decoder("dot", 1, 2, 0.0))
    tensor([11.])
    """
    u, v = u.to(h.device), v.to(h.device)
    with torch.no_grad():
        parts = [
            decoder(pair_products(h, a, b)) for a, b in zip(u.split(_CHUNK), v.split(_CHUNK), strict=True)
        ]
    return torch.cat(parts) if parts else h.new_empty(0)


def pair_loss(scores: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """Σ_k shares[k] · bce(scores[k], labels[k]), bce(s, y) = −y log σ(s) − (1 − y) log σ(−s).

    >>> float(pair_loss(torch.zeros(2), torch.tensor([1., 0.]), torch.tensor([0.5, 0.5])))  # = log 2
    0.693...
    """
    if scores.is_meta:
        left_out("loss", scores)
        return scores.sum()
    labels, shares = labels.to(scores), shares.to(scores)
    return F.binary_cross_entropy_with_logits(scores, labels, shares, reduction="sum")


def pair_gradients(
    h: Tensor, u: Tensor, v: Tensor, labels: Tensor, shares: Tensor, decoder: Decoder,
    names: Tensor | None = None, turn: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(loss, dh): forward and back, some thousand pairs at a time; the decoder's weights get their gradients.

        z[k] = h[u[k]] ∘ h[v[k]]     loss = Σ shares · bce(decoder(z), labels)
        dh[i] = Σ over k with u[k] = i of dz[k] ∘ h[v[k]]  +  Σ over k with v[k] = i of dz[k] ∘ h[u[k]]

    The loss is a sum over pairs, so no buffer of m rows is ever made. `h.backward(dh)` goes on from here.

    >>> from weft.nn import build_decoder
    >>> h = torch.tensor([[1.0], [2.0]])
    >>> loss, dh = pair_gradients(h, torch.tensor([0]), torch.tensor([1]), torch.ones(1), torch.ones(1),
    ...                           build_decoder("dot", 1, 1, 0.0))
    >>> dh.ravel()  # −σ(−2) · (2, 1)
    tensor([-0.2384, -0.1192])
    """
    h = h.detach()
    u, v = u.to(h.device), v.to(h.device)
    loss, dh = h.new_zeros(()), torch.zeros_like(h)
    for at in range(0, u.numel(), _CHUNK):
        part = slice(at, at + _CHUNK)
        a, b = u[part], v[part]
        z = pair_products(h, a, b).requires_grad_()
        value = pair_loss(
            decoder(z, None if names is None else names[part], turn), labels[part], shares[part]
        )
        value.backward()
        loss += value.detach()
        assert z.grad is not None
        add_pair_products_(dh, h, a, b, z.grad)
    return loss, dh


def among(n: int, *ends: Tensor) -> tuple[Tensor, list[Tensor]]:
    """(ids, places): the different vertices of some lists, ascending, and where each entry stands among them.

    >>> ids, (u, v) = among(9, torch.tensor([7, 2]), torch.tensor([2, 5]))
    >>> ids.tolist(), u.tolist(), v.tolist()
    ([2, 5, 7], [2, 0], [0, 1])
    """
    if n > _SPARSE * sum(end.numel() for end in ends):  # n marks would be most of the work, and of the memory
        ids, at = torch.unique(torch.cat(ends), return_inverse=True)
        return ids, list(at.split([end.numel() for end in ends]))
    seen = torch.zeros(n, dtype=torch.bool, device=ends[0].device)
    for end in ends:
        seen[end] = True
    place = seen.cumsum(0) - 1
    return seen.nonzero().ravel(), [place[end] for end in ends]

"""Rows of other ranks: read where an arc begins there, and added to where a message ends there.

    extended   [n_own, …] → [n_own + n_halo, …]    every rank's own rows, then the ones that its arcs read
    gathered   [n_own + n_halo, …] → [n_own, …]    its dual: what was added up for others goes to them

Both have gradients: the backward of one is the other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..parallel import Fetch
from .space import Halo


def extended(x: Tensor, dim: int, halo: Halo) -> Tensor:
    """Own rows and the halo's. Asked again for the same x, it is not sent again.

    x [.., n_own, ..] → [.., n_own + n_halo, ..]; what is remembered goes with x, and when x is written to.
    """
    mine = (x._version, x.requires_grad and torch.is_grad_enabled(), dim, id(halo))
    kept = x.__dict__.get("_weft_halo")
    if kept is not None and kept[0] == mine:
        found: Tensor = kept[1]
        return found
    whole = torch.cat([x, _moved(halo.plan.rows(_flat(x, dim)), x, dim)], dim)
    if not (x.requires_grad and x.is_leaf):  # a leaf is part of its own graph: it would never be freed
        x.__dict__["_weft_halo"] = (mine, whole)
    return whole


def gathered(y: Tensor, dim: int, halo: Halo) -> Tensor:
    """y[v] of own vertices, with what other ranks have for them added.

    y [.., n_own + n_halo, ..] → [.., n_own, ..]
    """
    n_own = halo.space.size
    own, away = y.split([n_own, y.shape[dim] - n_own], dim)
    return own + _moved(halo.plan.sums(_flat(away, dim), n_own), own, dim)


def extremes(y: Tensor, touched: Tensor, dim: int, halo: Halo, largest: bool) -> Tensor:
    """`gathered` with the largest or smallest in place of the sum; no gradient.

    touched   as y: where it holds a number at all; result  0 where none does
    """
    worst = float("-inf") if largest else float("inf")
    y = y.masked_fill(~touched, worst)
    n_own, plan, comm = halo.space.size, halo.plan, halo.space.comm
    assert isinstance(plan, Fetch)
    own, away = y.split([n_own, y.shape[dim] - n_own], dim)
    flat = _flat(away, dim)
    # Rows in the order in which they would come, which is that of the ranks that own them.
    send = torch.empty_like(flat)
    send[plan.index] = flat
    came = comm.all_to_all(send, plan.need, plan.give, phase="back")
    best = _flat(own, dim).clone()
    places = plan.places.long()[:, None].expand_as(came)
    best.scatter_reduce_(0, places, came, "amax" if largest else "amin")
    return _moved(best.masked_fill(best == worst, 0), own, dim)


def _flat(x: Tensor, dim: int) -> Tensor:
    """Rows first, all else in one: what travels. [.., m, ..] → [m, w]"""
    front = x.movedim(dim, 0)
    return front.reshape(front.shape[0], math.prod(front.shape[1:])).contiguous()


def _moved(rows: Tensor, like: Tensor, dim: int) -> Tensor:
    """The inverse of `_flat` for rows of any number."""
    shape = list(like.movedim(dim, 0).shape)
    return rows.view(rows.shape[0], *shape[1:]).movedim(0, dim)

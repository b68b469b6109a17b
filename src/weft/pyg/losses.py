"""Losses: the mean over all ranks' rows, by the count of all ranks.

value     the same on every rank: that of one process
gradient  of that value, once the gradients of all ranks are added up (`backward`)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call, named, put, rule
from .reducing import total
from .space import Tag, tag_of

MEANS = named(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
    "poisson_nll_loss soft_margin_loss hinge_embedding_loss margin_ranking_loss cosine_embedding_loss "
    "gaussian_nll_loss triplet_margin_loss"
)
"""Losses whose mean is the sum of what `reduction="none"` gives, divided by how many those are."""


@rule(*MEANS)
def loss(call: Call) -> Any:
    how = _reduction(call)
    space, dim = _rows(call)
    each = _with_reduction(call, "none")
    if how == "none":
        return put(each, Tag(space, dim))
    if how == "sum":
        return total(call, each.sum())
    if how == "batchmean":
        return total(call, each.sum()) / space.total
    if how != "mean":
        raise call.refuse(f"has the reduction {how!r}, which is not known")
    per_row = each.numel() // space.size if space.size else _per_row(each, dim)
    return total(call, each.sum()) / (space.total * per_row)


def _per_row(each: Tensor, dim: int) -> int:
    out = 1
    for d, size in enumerate(each.shape):
        out *= 1 if d == dim else size
    return out


@rule("cross_entropy", "nll_loss")
def cross_entropy(call: Call) -> Any:
    """Σ w[y] · loss / Σ w[y], both sums over all ranks; ignored rows are in neither."""
    how = _reduction(call)
    space, _ = _rows(call)
    x, target = call.x, call.get(1, "target")
    if how == "none":
        return put(_with_reduction(call, "none"), Tag(space, 0))
    whole = total(call, _with_reduction(call, "sum"))
    if how == "sum":
        return whole
    if target.is_floating_point():  # a distribution for each row
        return whole / (space.total * (x[:1, :1].numel() if x.shape[0] else 1))
    weight, ignored = call.get(2, "weight"), call.get(4, "ignore_index", -100)
    counted = target[target != ignored]
    count = x.new_tensor(counted.numel()) if weight is None else weight[counted].sum()
    return whole / total(call, count.detach())


def _reduction(call: Call) -> str:
    if call.kwargs.get("size_average") is not None or call.kwargs.get("reduce") is not None:
        raise call.refuse("is given size_average or reduce, which torch has given up. Use reduction")
    return str(call.kwargs.get("reduction", "mean"))


def _with_reduction(call: Call, how: str) -> Tensor:
    out: Tensor = call.func(*call.args, **{**call.kwargs, "reduction": how})
    return out


def _rows(call: Call) -> tuple[Any, int]:
    """The rows that a loss is taken of: those of all tensors that are spread."""
    call.no_names()
    tags = [tag for _, tag in call.tagged()]
    if len({tag.dim for tag in tags}) != 1 or tags[0].dim != 0:
        raise call.refuse("is given rows in different dims")
    space = call.one_space([tag.space for tag in tags])
    for place, x in enumerate(call.args[:2]):
        if isinstance(x, torch.Tensor) and tag_of(x) is None and x.dim() and x.shape[0] != 1:
            raise call.refuse(
                f"compares rows of {space} with an argument {place} that is not spread over ranks"
            )
    return space, 0

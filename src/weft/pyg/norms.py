"""Normalisation over rows, with the mean and the variance of all ranks' rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .call import Call, put, rule
from .reducing import total
from .space import Tag, tag_of


@rule("batch_norm")
def batch_norm(call: Call) -> Any:
    """y = (x − mean) / √(var + eps) · weight + bias, of each channel over all rows of all ranks."""
    x, tag = call.x, tag_of(call.x)
    call.no_names()
    if call.func is not functional.batch_norm or tag is None or tag.dim == 1:
        raise call.refuse("normalises rows in a way that is not known")
    mean, var = call.get(1, "running_mean"), call.get(2, "running_var")
    weight, bias = call.get(3, "weight"), call.get(4, "bias")
    training, momentum, eps = (
        call.get(5, "training", False),
        call.get(6, "momentum", 0.1),
        call.get(7, "eps", 1e-5),
    )
    if not training:
        return put(call.run(), Tag(tag.space, tag.dim))
    count = tag.space.total * (x[:1, :1].numel() if x.shape[0] else 1)
    if count < 2:
        raise ValueError(f"Expected more than 1 value per channel when training, got {count}")
    dims = [d for d in range(x.dim()) if d != 1]
    y, batch_mean, batch_var = _standard(call, x, dims, count, eps)
    if mean is not None:
        mean.mul_(1 - momentum).add_(batch_mean.reshape(-1), alpha=momentum)
        var.mul_(1 - momentum).add_(batch_var.reshape(-1), alpha=momentum * count / (count - 1))
    return put(_scaled(y, weight, bias), Tag(tag.space, tag.dim))


@rule("instance_norm")
def instance_norm(call: Call) -> Any:
    """The same for each channel of each instance [b, c, rows]; rows are spread over ranks."""
    x, tag = call.x, tag_of(call.x)
    call.no_names()
    if call.func is not functional.instance_norm or tag is None or tag.dim == 1:
        raise call.refuse("normalises rows in a way that is not known")
    mean, var = call.get(1, "running_mean"), call.get(2, "running_var")
    weight, bias = call.get(3, "weight"), call.get(4, "bias")
    own, momentum, eps = (
        call.get(5, "use_input_stats", True),
        call.get(6, "momentum", 0.1),
        call.get(7, "eps", 1e-5),
    )
    if not own or tag.dim == 0:
        if own and mean is not None:
            raise call.refuse("keeps running statistics over instances that are spread over ranks")
        return put(call.run(), Tag(tag.space, tag.dim))
    dims = list(range(2, x.dim()))
    each = 1
    for d in dims:
        each *= 1 if d == tag.dim else x.shape[d]
    count = tag.space.total * each
    y, batch_mean, batch_var = _standard(call, x, dims, count, eps)
    if mean is not None:
        mean.mul_(1 - momentum).add_(batch_mean.mean(0).reshape(-1), alpha=momentum)
        var.mul_(1 - momentum).add_(batch_var.mean(0).reshape(-1), alpha=momentum * count / max(count - 1, 1))
    return put(_scaled(y, weight, bias), Tag(tag.space, tag.dim))


def _standard(
    call: Call, x: Tensor, dims: list[int], count: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(x − mean) / √(var + eps) over `dims` of all ranks; and the mean and the variance, without gradient."""
    mean = total(call, x.sum(dims, keepdim=True)) / count
    centred = x - mean
    var = total(call, centred.square().sum(dims, keepdim=True)) / count
    return centred * torch.rsqrt(var + eps), mean.detach(), var.detach()


def _scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = [1, -1, *[1] * (y.dim() - 2)]
    if weight is not None:
        y = y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)

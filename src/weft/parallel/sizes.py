"""Sizes of what torch's operations make of tensors without numbers, by a rule each.

torch finds most of them out in Python, by decomposing the operation: 0.2 to 1.3 ms each, and a dry run asks
for hundreds. Shapes and types follow from the operands' in a few steps. What a rule is not sure of it leaves
to torch: operands on a device, types that differ, arguments that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Rule = Callable[[tuple[Any, ...], dict[str, Any]], Tensor | None]
_aten = torch.ops.aten


class Sizes(TorchDispatchMode):
    """While it is open, this thread's operations on meta tensors go by rule, forward and back.

    >>> with Sizes():
    ...     y = torch.empty(3, 1, device="meta") * torch.empty(4, device="meta")
    >>> y.shape, y.is_meta
    (torch.Size([3, 4]), True)
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and loading the compiler takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = RULES.get(func)
        made = None if rule is None else rule(args, kwargs or {})
        return func(*args, **(kwargs or {})) if made is None else made


def _made(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _type(operands: Sequence[Any], whole: bool = False) -> torch.dtype | None:
    """The type of these tensors without a device, where it is one; of whole numbers where `whole` allows."""
    found, numbers = None, True
    for x in operands:
        if not isinstance(x, Tensor):
            numbers &= x is None or type(x) is int
        elif not x.is_meta or x.dtype != (found or x.dtype):
            return None
        else:
            found = x.dtype
    if found is None or found.is_floating_point:
        return found
    return found if whole and numbers and found in (torch.int64, torch.int32) else None


def _shape(operands: Sequence[Any]) -> torch.Size:
    """The shape that they are broadcast to."""
    shapes = [x.shape for x in operands if isinstance(x, Tensor)]
    return shapes[0] if all(s == shapes[0] for s in shapes) else torch.broadcast_shapes(*shapes)


def _entrywise(args: tuple[Any, ...], kwargs: dict[str, Any], whole: bool = False) -> Tensor | None:
    """y = f(a, b, …), entry by entry, of the operands' type."""
    dtype = None if kwargs.keys() - {"alpha"} else _type(args, whole)
    return None if dtype is None else _made(_shape(args), dtype)


def _exact(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The same; whole numbers give whole ones."""
    return _entrywise(args, kwargs, whole=True)


def _compared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = a < b, of truth values."""
    return None if kwargs or _type(args, whole=True) is None else _made(_shape(args), torch.bool)


def _chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = a where m, else b."""
    mask, *rest = args
    dtype = None if kwargs or not mask.is_meta else _type(rest, whole=True)
    return None if dtype is None else _made(_shape(args), dtype)


def _filled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = a number where m, else x."""
    x, mask, value = args
    dtype = None if kwargs or not mask.is_meta or isinstance(value, Tensor) else _type([x, value], whole=True)
    return None if dtype is None else _made(_shape([x, mask]), dtype)


def _joined(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = parts, one after the other along a dim."""
    parts, dim = args[0], args[1] if len(args) > 1 else 0
    first = parts[0]
    same = all(t.is_meta and t.dtype == first.dtype and t.dim() == first.dim() for t in parts)
    if kwargs or not same or not first.dim():
        return None
    dim %= first.dim()
    shape, rest = list(first.shape), [s for d, s in enumerate(first.shape) if d != dim]
    if any([s for d, s in enumerate(t.shape) if d != dim] != rest for t in parts):
        return None
    shape[dim] = sum(t.shape[dim] for t in parts)
    return _made(shape, first.dtype)


def _picked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = x[i], i of row numbers."""
    x, index = args
    if kwargs or len(index) != 1 or not isinstance(index[0], Tensor) or not x.dim():
        return None
    at = index[0]
    if not x.is_meta or not at.is_meta or at.dtype not in (torch.int64, torch.int32):
        return None
    return _made((*at.shape, *x.shape[1:]), x.dtype)


def _summed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = Σ over some dims."""
    x, dims = args[0], args[1] if len(args) > 1 else None
    keep = args[2] if len(args) > 2 else False
    if kwargs or _type([x]) is None:
        return None
    gone = {d % x.dim() for d in dims} if dims and x.dim() else set(range(x.dim()))
    shape = [1 if d in gone else s for d, s in enumerate(x.shape) if keep or d not in gone]
    return _made(shape, x.dtype)


def _counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """y = 0, 1, …, n − 1."""
    n, kind = args[0], kwargs.get("dtype")
    there = str(kwargs.get("device")) == "meta" and kwargs.keys() <= {"device", "dtype", "pin_memory"}
    return _made((n,), kind or torch.int64) if there and type(n) is int else None


RULES: dict[Any, Rule] = {
    **dict.fromkeys([
        _aten.div.Tensor, _aten.div.Scalar, _aten.exp.default, _aten.log.default, _aten.sqrt.default,
        _aten.rsqrt.default, _aten.reciprocal.default, _aten.tanh.default, _aten.sigmoid.default,
        _aten.relu.default, _aten.leaky_relu.default, _aten.elu.default, _aten.pow.Tensor_Scalar,
        _aten.leaky_relu_backward.default, _aten.sigmoid_backward.default, _aten.tanh_backward.default,
        _aten.threshold_backward.default,
    ], _entrywise),
    **dict.fromkeys([
        _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.maximum.default, _aten.minimum.default,
        _aten.add.Scalar, _aten.sub.Scalar, _aten.mul.Scalar, _aten.rsub.Scalar, _aten.neg.default,
        _aten.abs.default, _aten.clamp.default, _aten.clamp_min.default,
    ], _exact),
    **dict.fromkeys([
        _aten.lt.Scalar, _aten.le.Scalar, _aten.gt.Scalar, _aten.ge.Scalar, _aten.eq.Scalar, _aten.ne.Scalar,
        _aten.lt.Tensor, _aten.le.Tensor, _aten.gt.Tensor, _aten.ge.Tensor, _aten.eq.Tensor, _aten.ne.Tensor,
    ], _compared),
    _aten.where.self: _chosen,
    _aten.masked_fill.Scalar: _filled,
    _aten.cat.default: _joined,
    _aten.index.Tensor: _picked,
    _aten.sum.dim_IntList: _summed,
    _aten.sum.default: _summed,
    _aten.arange.default: _counted,
}  # fmt: skip
"""Which operations go by which rule."""

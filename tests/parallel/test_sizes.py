"""Rules for sizes: what torch itself would say, operation by operation."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import weft.parallel.sizes as sizes
from weft.parallel.sizes import RULES, Sizes

KINDS = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
SHAPES = [((3, 4), (3, 4)), ((3, 1), (4,)), ((0, 4), (1, 4)), ((), (2, 3)), ((5,), (5,))]


def make(shape, kind):
    return torch.empty(shape, dtype=kind, device="meta")


def calls(func):
    """Arguments of one operation, as they may come: shapes, types that agree or don't, numbers."""
    names = [a.name for a in func._schema.arguments]
    for (one, two), kind, other in ((s, k, o) for s in SHAPES for k in KINDS for o in {k, torch.float32}):
        a, b = make(one, kind), make(two, other)
        if names[:2] == ["tensors", "dim"]:
            yield from ([[a, make(one, kind)], d] for d in ([0, -1] if one else []))
        elif names[:2] == ["self", "indices"]:
            yield [a, [make(two, other)]]
        elif func is torch.ops.aten.where.self:
            yield [make(two, torch.bool), a, make(one, other)]
        elif func is torch.ops.aten.masked_fill.Scalar:
            yield from ([a, make(one, torch.bool), v] for v in (1, 0.5))
        elif func is torch.ops.aten.sum.dim_IntList:
            yield from (
                [a, dims, keep] for dims in ([0], [-1], None, []) for keep in (False, True) if one or not dims
            )
        elif names[0] == "end":
            yield [len(one)]
        elif "backward" in func._schema.name:
            yield (
                [a, make(one, other), 0.2, False]
                if "leaky" in str(func)
                else [a, make(one, other)] + [0] * ("threshold" in str(func))
            )
        elif (
            len(names) > 1
            and "Tensor" in str(func._schema.arguments[1].type)
            and func._overloadname != "Tensor_Scalar"
            and "clamp" not in str(func)
        ):
            yield [a, b]
        elif func._overloadname in ("Scalar", "Tensor_Scalar") or "clamp" in str(func):
            yield from ([a, v] for v in (2, 0.5))
        else:
            yield [a]


def told(run):
    """(shape, type) of what torch makes of it, or that it refuses."""
    try:
        y = run()
    except (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError):
        return None
    return y.shape, y.dtype, y.device.type


@pytest.mark.parametrize("func", RULES, ids=str)
def test_a_rule_says_what_torch_says(func):
    used = 0
    more = {"device": torch.device("meta")} if func is torch.ops.aten.arange.default else {}
    for args in calls(func):
        rule = told(lambda args=args: RULES[func](tuple(args), more)) if _ruled(func, args, more) else None
        if rule is not None:
            used += 1
            assert rule == told(lambda args=args: func(*args, **more)), (func, args)
    assert used


def _ruled(func, args, more):
    try:
        return RULES[func](tuple(args), more) is not None
    except (RuntimeError, IndexError):
        return False  # torch refuses it too: compared where it is asked


def test_operands_with_numbers_are_left_to_torch():
    a = torch.ones(2, 3)
    with Sizes():
        assert torch.equal(a + a, torch.full((2, 3), 2.0))
        assert torch.equal(torch.cat([a, a]), torch.ones(4, 3))
        assert torch.equal(a[torch.tensor([1])], torch.ones(1, 3))
        assert float(a.sum()) == 6


def test_gradients_come_by_rule_too():
    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.empty(3, 4, device="meta", requires_grad=True)
    with Seen(), Sizes():
        (x.tanh() * x).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (3, 4)
    assert torch.ops.aten.mul.Tensor not in seen
    assert torch.ops.aten.tanh_backward.default not in seen


def test_every_rule_is_of_an_operation_once():
    """A name that stands twice in the table would hide the first rule."""
    text = inspect.getsource(sizes)
    for func in RULES:
        assert text.count(f"_{func!s},") + text.count(f"_{func!s}:") == 1, func

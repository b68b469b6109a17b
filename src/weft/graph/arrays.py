"""Named arrays: what arcs and vertices carry beside the fixed fields of a graph.

    arc data     name → [arcs] or [arcs, d]      in the order of `Graph.indices`
    vertex data  name → [n] or [n, d]

Numbers are floating point and finite, or whole and not negative: types, counts, times. Arc data named
"features" are numbers that a model multiplies, whatever their type: a list is one feature an arc.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError

Of = Literal["arc", "vertex"]
FEATURES = "features"
"""The name under which arcs carry their features."""
KIND = "type"
"""The name under which arcs carry their kind."""
FLOATING = (torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FIXED: dict[Of, tuple[str, ...]] = {
    "arc": ("indptr", "indices", "weights", "rows"),
    "vertex": ("features", "labels", "train_mask", "val_mask", "test_mask", "ids"),
}
_CHUNK = 1 << 20
"""Numbers that are summed at a time: a copy of them in float64 stays small."""


def key_of(of: Of, name: str) -> str:
    """What files call an array.

    >>> key_of("arc", "time")
    'arc_time'
    """
    return f"{of}_{name}"


def named(keys: Collection[str], of: Of) -> list[str]:
    """The names of the arrays of this kind among the keys of a file.

    >>> named(["indptr", "arc_time", "vertex_age"], "arc")
    ['time']
    """
    return [key.removeprefix(f"{of}_") for key in keys if key.startswith(f"{of}_")]


def coerced(arrays: Mapping[str, Any] | None, of: Of) -> dict[str, Tensor]:
    """The arrays as tensors of a known type, where that loses nothing; their names are checked.

    >>> coerced({"kind": [0, 2], "long": torch.ones(2, dtype=torch.float16)}, "arc")
    {'kind': tensor([0, 2]), 'long': tensor([1., 1.])}
    >>> coerced({"my kind": [0, 2]}, "arc")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: arc data cannot be named 'my kind'. Use letters, digits and _, a letter first.
    """
    found = {}
    for name, x in (arrays or {}).items():
        check_name(name, of)
        found[name] = _coerced(name, x, of)
    return found


def check_name(name: str, of: Of) -> None:
    """Refuse a name that is no identifier, or that a fixed field has.

    >>> check_name("weights", "arc")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: arc data cannot be named 'weights': a graph has such a field. Use another name.
    """
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and name[0] != "_"):
        shown = repr(name)[:60]
        raise UserError(f"{of} data cannot be named {shown}. Use letters, digits and _, a letter first.")
    if name in _FIXED[of]:
        raise UserError(f"{of} data cannot be named {name!r}: a graph has such a field. Use another name.")


def _coerced(name: str, x: Any, of: Of) -> Tensor:
    if isinstance(x, np.ndarray):  # torch takes neither the other byte order nor what may not be written
        x = np.require(x, x.dtype.newbyteorder("="), "W")
    try:
        t = x if isinstance(x, Tensor) else torch.as_tensor(x, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{of} data {name!r} are no array of numbers. Give a tensor.") from None
    t = t.detach() if t.requires_grad else t
    if t.dtype in (*FLOATING, *WHOLE):
        return t
    if t.is_complex():
        raise UserError(f"{of} data {name!r} are complex. Give real numbers.")
    if t.is_floating_point():
        return t.float()
    if t.dtype == torch.bool:
        return t.to(torch.uint8)
    if t.dtype in (torch.uint16, torch.uint32):
        return t.long()
    raise UserError(f"{of} data {name!r} are {t.dtype}. Give floating-point or whole numbers.")


def check_array(name: str, x: Tensor, count: int, of: Of, trusted: bool = False) -> None:
    """Refuse an array of another length, or with numbers that are not finite, or with negative whole ones.

    >>> check_array("time", torch.tensor([1.0, float("nan")]), 2, "arc")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: arc data 'time' hold nan at arc 1. Replace it by a finite number.
    """
    if x.dim() not in (1, 2) or len(x) != count:
        shape = "x".join(map(str, x.shape)) or "one number"
        many = {"arc": "arcs", "vertex": "vertices"}[of]
        raise UserError(f"{of} data {name!r} are {shape} for {count} {many}. Give one row for each.")
    if trusted or not x.numel():
        return
    lo, hi = torch.aminmax(x)  # a NaN anywhere comes out as NaN, and nothing of x's size is allocated
    if x.is_floating_point():
        if not bool(torch.isfinite(lo) & torch.isfinite(hi)):
            at = int(torch.nonzero(~torch.isfinite(x).flatten())[0])
            where = at // (x.numel() // count)
            value = float(x.flatten()[at])
            raise UserError(
                f"{of} data {name!r} hold {value} at {of} {where}. Replace it by a finite number."
            )
    elif int(lo) < 0:
        at = int(torch.nonzero(x.flatten() < 0)[0])
        where = at // (x.numel() // count)
        value = int(x.flatten()[at])
        raise UserError(
            f"{of} data {name!r} hold {value} at {of} {where}. Whole numbers are types, from 0 on; "
            "give others as floating point."
        )


def is_kind(name: str, floating: bool) -> bool:
    """Whether arc data of this name and type are kinds or counts, and no features.

    >>> is_kind("type", floating=False), is_kind("features", floating=False), is_kind("time", floating=True)
    (True, False, False)
    """
    return not floating and name != FEATURES


def as_read(name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Arc data as models meet them: features and floating-point numbers [arcs, d], kinds int64.

    >>> as_read("features", torch.tensor([3, 1]), torch.float32)
    tensor([[3.],
            [1.]])
    """
    if is_kind(name, x.is_floating_point()):
        return x.long()
    return (x if x.dim() == 2 else x[:, None]).to(dtype)


def of_loops(x: Tensor, row: Tensor, loop: Tensor, rows: int, top: int) -> Tensor:
    """What the loop of each row carries, as PyG fills the loops of attention. [arcs, …] → [rows, …].

        row   [arcs] the row of each arc      loop  [arcs] bool: which of them are loops
        top   the largest whole number in the graph

    Floating point: the mean over the row's arcs that are no loops, 0 where there is none. Whole numbers:
    `top` + 1, so that a loop is a type of its own.

    >>> row, loop = torch.tensor([0, 0, 1]), torch.tensor([False, False, True])
    >>> of_loops(torch.tensor([1.0, 3.0, 9.0]), row, loop, 2, 0)
    tensor([2., 0.])
    """
    if not x.is_floating_point():
        return torch.full((rows, *x.shape[1:]), top + 1, dtype=torch.int64, device=x.device)
    # Float64 sums: a hub's thousands of terms then cost no digits.
    total = torch.zeros(rows, *x.shape[1:], dtype=torch.float64, device=x.device)
    step = max(1, _CHUNK * max(1, len(x)) // max(1, x.numel()))
    for at in range(0, len(x), step):
        part = slice(at, at + step)
        kept = ~loop[part]
        total.index_add_(0, row[part][kept], x[part][kept].double())
    count = torch.bincount(row[~loop], minlength=rows).clamp(min=1)
    return (total / count.view(-1, *[1] * (x.dim() - 1))).to(x.dtype)


def largest(x: Tensor) -> int:
    """The largest whole number, -1 where there is none.

    >>> largest(torch.tensor([3, 1])), largest(torch.tensor([0.5]))
    (3, -1)
    """
    return -1 if x.is_floating_point() or not x.numel() else int(x.max())

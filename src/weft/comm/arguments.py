"""What a call of a communicator may be given: checks, and tensors as an engine takes them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.errors import Note, UserError, unknown

OPS = ("sum", "max", "min")
DTYPES = frozenset({torch.float32, torch.float64, torch.int32, torch.int64, torch.bool, torch.uint8})


def check_tensor(name: str, x: Tensor, takes_meta: bool) -> None:
    """Refuse what no engine moves; tensors without numbers too, unless `takes_meta`."""
    if not isinstance(x, Tensor):
        raise UserError(f"{name}: a tensor is needed, got {type(x).__name__}. Use torch.as_tensor(x).")
    if x.dtype not in DTYPES:
        raise UserError(f"{name}: cannot move {x.dtype}. Use float32, float64, int32, int64, uint8 or bool.")
    if x.is_meta and not takes_meta:
        raise UserError(f"{name}: a tensor on the device 'meta' has nothing to move. Use Dry(comm).")


def readable(name: str, x: Tensor, takes_meta: bool) -> Tensor:
    """x as it may be sent: contiguous, without a gradient; says so where one is lost."""
    check_tensor(name, x, takes_meta)
    if x.requires_grad:
        if torch.is_grad_enabled():
            lost = (
                f"{name}: x wants a gradient, and what a message brings has none. Hand in x.detach() if "
                "that is meant; A @ h of an Operator sends gradients back."
            )
            warnings.warn(Note(lost), stacklevel=4)  # the caller of the communicator's operation
        x = x.detach()
    return x if x.is_contiguous() else x.contiguous()


def check_written(name: str, label: str, x: Tensor, takes_meta: bool) -> None:
    """Refuse what cannot be written in place."""
    check_tensor(name, x, takes_meta)
    if not x.is_contiguous():
        raise UserError(f"{name}: {label} is written in place and not contiguous. Use x.contiguous().")


def check_out(name: str, out: Tensor, x: Tensor, shape: Sequence[int], takes_meta: bool) -> None:
    """Refuse an `out` that the result of x, of this shape, does not fit into."""
    check_written(name, "out", out, takes_meta)
    if out.device != x.device:
        raise UserError(f"{name}: out is on {out.device}, x on {x.device}. Put both on one device.")
    if out.dtype != x.dtype or out.shape != shape:
        raise UserError(
            f"{name}: out is {out.dtype} {tuple(out.shape)}, the result is {x.dtype} {tuple(shape)}. "
            "Give it that type and shape."
        )


def make_out(name: str, out: Tensor | None, x: Tensor, rows: int, takes_meta: bool) -> Tensor:
    """Room for `rows` rows like x's: `out` where it is given and fits, else new."""
    shape = (rows, *x.shape[1:])
    if out is None:
        return torch.empty(shape, dtype=x.dtype, device=x.device)
    check_out(name, out, x, shape, takes_meta)
    if out.numel() and not out.is_meta and out.data_ptr() == x.data_ptr():
        raise UserError(f"{name}: out and x share their memory. Give out memory of its own.")
    return out


def check_sizes(
    name: str, label: str, sizes: Sequence[int], size: int, total: int | None = None
) -> list[int]:
    """A number of rows for each of `size` ranks, `total` in all where that is known."""
    sizes = [int(n) for n in sizes]
    if len(sizes) != size:
        raise UserError(f"{name}: {label} has {len(sizes)} entries for {size} ranks. Give one a rank.")
    if sizes and min(sizes) < 0:
        raise UserError(f"{name}: {label} has the negative entry {min(sizes)}. Use 0 or more.")
    if total is not None and sum(sizes) != total:
        raise UserError(f"{name}: {label} sums to {sum(sizes)}, x has {total} rows. Make them equal.")
    return sizes


def check_root(name: str, root: int, size: int) -> None:
    """Refuse a root that is no rank."""
    if not 0 <= root < size:
        raise UserError(f"{name}: root {root} is not a rank. Use 0 to {size - 1}.")


def check_op(op: str, x: Tensor) -> str:
    """The operation as engines know it: a sum of truth values is their maximum."""
    if op not in OPS:
        raise unknown("op", op, OPS)
    return "max" if op == "sum" and x.dtype == torch.bool else op


def rows_of(name: str, x: Tensor) -> int:
    """How many rows x has."""
    if x.dim() == 0:
        raise UserError(f"{name}: the tensor has no rows, it is a scalar. Use x.reshape(1).")
    return x.shape[0]


def words_of(sizes: Sequence[int], x: Tensor) -> list[int]:
    """Words of so many rows of x."""
    width = math.prod(x.shape[1:])
    return [n * width for n in sizes]


def bytes_a_word(tensors: Sequence[Tensor]) -> float:
    """The mean over tensors that may be of several types."""
    return sum(x.nbytes for x in tensors) / max(1, sum(x.numel() for x in tensors))


def plain(x: Tensor) -> Tensor:
    """The tensor that an engine sees: no gradient, truth values as bytes."""
    if x.requires_grad:
        x = x.detach()
    return x.view(torch.uint8) if x.dtype == torch.bool else x

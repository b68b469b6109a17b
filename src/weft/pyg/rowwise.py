"""Modules that take and give plain rows, whatever they do inside: each rank does its own, as they are.

HeteroLinear sorts rows by their type, multiplies those of a type together, and puts them back: y[k] follows
from x[k], type[k] and the weights alone. weft's own layers are told by A what other ranks have.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ..nn import Layer, Model
from .call import Refused
from .space import Tag, agree, set_tag, tag_of


def by_row(model: nn.Module) -> None:
    """Let the modules of a PyG model that are known to be so run on plain rows."""
    from torch_geometric.nn import HeteroLinear

    for path, module in model.named_modules():
        if type(module) is HeteroLinear and "forward" not in module.__dict__:
            module.forward = functools.partial(_typed, module, path)


def of_weft(model: nn.Module) -> set[nn.Module]:
    """Let weft's own models and layers take rows of a shared graph; the modules inside of these.

    `layer(A, h)` gives a row for each of h: A knows the ranks, and the layer need not.
    """
    inside: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, (Model, Layer)) and module not in inside:
            inside |= set(module.modules()) - {module}
            if "forward" not in module.__dict__:
                module.__dict__["forward"] = functools.partial(_on_rows, module, path)
    return inside


def _on_rows(module: nn.Module, path: str, A: Any, h: Tensor, *more: Any) -> Tensor:
    """weft's layer or model on rows that are tagged: the result is tagged alike."""
    tag, plain = tag_of(h), type(module).forward
    if tag is None:
        out: Tensor = plain(module, A, h, *more)
        return out
    with torch._C.DisableTorchFunction():
        if tag.dim or not torch.equal(tag.space.ids, A.rows.to("cpu")):
            name = f"{type(module).__name__} ({path})" if path else type(module).__name__
            raise Refused(f"{name}: its rows are not the vertices of A. Make A with job.operator(data).")
        rows = _bare(h)
        if A.holds(h):  # what never changes stays known under its other name
            A.hold(rows)
    return set_tag(plain(module, A, rows, *more), Tag(tag.space, 0))


def _bare(h: Tensor) -> Tensor:
    """The same rows without their tag: to torch a plain tensor; one for all calls where nothing learns it."""
    if h.requires_grad:
        return h.view_as(h)
    found: Tensor | None = h.__dict__.get("_weft_bare")
    if found is None or found.data_ptr() != h.data_ptr() or found.shape != h.shape:
        found = h.__dict__["_weft_bare"] = h.view_as(h)
    return found


def _typed(module: Any, path: str, x: Tensor, type_vec: Tensor) -> Tensor:
    """HeteroLinear: y[k] = x[k] W[type[k]] + b[type[k]]."""
    plain = type(module).forward
    rows, types = tag_of(x), tag_of(type_vec)
    if rows is None and types is None:
        out: Tensor = plain(module, x, type_vec)
        return out
    name = f"HeteroLinear ({path}): "
    if rows is None or types is None or rows.dim or types.dim or not agree(rows.space, types.space):
        raise Refused(f"{name}its rows and their types are not those of one space. Share both.")
    with torch._C.DisableTorchFunction():
        if module.is_sorted:
            # Of types in disorder one process would make other numbers: ranks may each be in order.
            wrong = torch.tensor([int((type_vec.diff() < 0).any())], device="cpu")
            if int(rows.space.comm.all_reduce(wrong, "max", phase="sum")):
                raise Refused(
                    f"{name}is_sorted is set, and types are not. Give relations in metadata's order."
                )
        return set_tag(plain(module, x, type_vec), Tag(rows.space, 0))

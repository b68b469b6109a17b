"""Modules that do every row by itself, whatever they do inside: each rank does its own rows, as they are.

HeteroLinear sorts rows by their type, multiplies those of a type together, and puts them back: y[k] follows
from x[k], type[k] and the weights alone.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from .call import Refused
from .space import Tag, agree, set_tag, tag_of


def by_row(model: nn.Module) -> None:
    """Let the modules of a PyG model that are known to be so run on plain rows."""
    from torch_geometric.nn import HeteroLinear

    for path, module in model.named_modules():
        if type(module) is HeteroLinear and "forward" not in module.__dict__:
            module.forward = functools.partial(_typed, module, path)


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

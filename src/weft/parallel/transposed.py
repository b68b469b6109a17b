"""Aᵀ on the same grid: the same blocks, turned in place; the two exchanges change places. Nothing moves.

    A    rank (i, k, ·) has A_j [R, C_j]          reads rows of slab j along row,   sums T along inner
    Aᵀ                      Aᵀ_p [Σ C_j, R_p]     reads rows of piece p along inner, sums along row

R_p are the rows of T that are for rank p of the inner line. So what A's backward does, Aᵀ's forward does,
with the same words.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels import CSR
from ..kernels.function import Function
from .propagate import FeatureLine, Plan, Sliced


def transposed(plan: Plan) -> tuple[Plan, Tensor]:
    """(the plan of Aᵀ, order): entry e of Aᵀ is entry order[e] of A, counted through all blocks of each."""
    blocks, pieces = plan.blocks(), plan.pieces
    row = torch.cat([a.row_of for a in blocks])
    device, index = row.device, blocks[0].indices.dtype
    widths = torch.tensor([a.shape[1] for a in blocks], device=device)
    begins = widths.cumsum(0) - widths
    column = torch.cat([begins[j] + a.indices.long() for j, a in enumerate(blocks)])
    values = None
    if any(a.values is not None for a in blocks):
        values = torch.cat([a.values for a in blocks if a.values is not None])
    if plan.mean:
        counts = blocks[0].counts[row].to(torch.get_default_dtype() if values is None else values.dtype)
        values = 1 / counts if values is None else values / counts
    data = {name: torch.cat([a.data[name] for a in blocks]) for name in blocks[0].data}
    total, order = int(widths.sum()), torch.argsort(column * max(sum(pieces), 1) + row)
    matrices: list[CSR | Sliced] = []
    orders, first = [], 0
    for size in pieces:
        mine = (row[order] >= first) & (row[order] < first + size)
        some = order[mine]
        counts = torch.bincount(column[some], minlength=total)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        carried = {name: x[some] for name, x in data.items()}
        turned = CSR(
            indptr,
            (row[some] - first).to(index),
            None if values is None else values[some],
            (total, size),
            carried,
        )
        cut = isinstance(plan.matrices[0], Sliced)
        matrices.append(Sliced(turned, plan.feature.comm) if cut else turned)
        orders.append(some)
        first += size
    names = [part.to(index) for part in plan.row_names.split(pieces)]
    row_names = torch.cat([plan.names_of(j) for j in range(len(blocks))])
    own = [total] if plan.feature.comm.size == 1 else plan.feature.rows
    line = FeatureLine(plan.feature.comm, own)
    return Plan(line, plan.inner, plan.row, matrices, names, row_names), torch.cat(orders)


class Turned(Function):
    """Numbers at A's entries in the order of Aᵀ's; backward: in that of A's. [arcs, h] → [arcs, h]."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return e.detach().index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (order,) = ctx.saved_tensors
        return torch.empty_like(grads[0]).index_copy_(0, order, grads[0].contiguous()), None

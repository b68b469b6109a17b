"""PGCN (Demirci et al., Algorithms 1 and 2): rows by partition, and only those rows of H that are read.

    forward   every send is posted, T_m = A_mm H_m meanwhile, then for each H_nm that comes T_m += A_mn H_nm
    backward  the same with Aᵀ and G: a gather of G over a stored Aᵀ, which is A where the graph is undirected
    weights   ΔW = Σ_m H_mᵀ S_m, an all-reduce

Words of one product of width w, over all ranks: w · Σ_j (λ_j − 1), the connectivity − 1 of the column nets.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...comm import Communicator
from ...kernels import CSR, pack_rows
from ...kernels.spmm import multiply
from ...parallel.exchange import Exchange
from .baseline import Baseline, cut


class Halo(Baseline):
    """Algorithms 1 and 2 of Demirci et al.; `owned`: the vertices of each rank."""

    def __init__(self, comm: Communicator, a: CSR, owned: Sequence[Tensor]):
        super().__init__(comm)
        self.rows, self.first = owned[comm.rank], True
        self.sides = {back: _Side(comm, m, owned) for back, m in ((False, a), (True, a.T))}

    def take(self, x: Tensor) -> Tensor:
        return x[self.rows]

    def product(self, h: Tensor, back: bool = False) -> Tensor:
        return self.sides[back].product(h)

    def outer(self, h: Tensor, s: Tensor, shape: tuple[int, int]) -> Tensor:
        return self.comm.all_reduce(h.T @ s, phase="weights")


class _Side:
    """One direction: this rank's rows of a matrix, and the plan of who reads what of whom."""

    def __init__(self, comm: Communicator, a: CSR, owned: Sequence[Tensor]):
        self.comm = comm
        whole = [cut(a, owned[comm.rank], block) for block in owned]
        read = [torch.unique(block.indices.long()) for block in whole]
        self.exchange = Exchange(comm, [block.numel() for block in owned], read)
        self.blocks = [
            block if p == comm.rank else cut(block, torch.arange(block.shape[0], device="cpu"), read[p])
            for p, block in enumerate(whole)
        ]

    def product(self, h: Tensor) -> Tensor:
        comm, plan = self.comm, self.exchange
        sources, posted = [(comm.rank - s) % comm.size for s in range(1, comm.size)], []
        for s, source in enumerate(sources, start=1):
            target = (comm.rank + s) % comm.size
            rows = h if plan.give is None else pack_rows(h, plan.give[target])
            room = h.new_empty(plan.need_sizes[source], h.shape[1])
            posted.append(comm.iswap([rows], target, [room], source, phase="halo"))
        own = self.blocks[comm.rank]
        total = multiply(own, h, own.values)
        for source, request in zip(sources, posted, strict=True):
            (came,) = request.wait()
            multiply(self.blocks[source], came, self.blocks[source].values, out=total, accumulate=True)
        return total

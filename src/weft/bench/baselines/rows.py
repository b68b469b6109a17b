"""CAGNET's 1D and 1.5D: block rows of A and H, blocks of H broadcast one after the other.

P = P/c × c ranks. Block row i of A, and of H, lies on all ranks (i, ·) of a process row; 1D is c = 1.

    forward   T_i  = Σ_q A_iq H_q        rank (i, j) takes the q of chunk j: H_q is broadcast in column
                                         (·, j); then an all-reduce along row (i, ·)
    backward  the same with Aᵀ, which is stored, too
    weights   Y    = Σ_i H_iᵀ S_i        an all-reduce along column (·, j)

Words received for one product of width w: n·w·(1 − 1/P) in 1D; in 1.5D at most n·w/c, and
2·(n·w·c/P)(c − 1)/c for the all-reduce, which is the paper's n·w·c/P where c = 2.
"""

from __future__ import annotations

from torch import Tensor

from ...comm import Communicator
from ...errors import UserError
from ...kernels import CSR
from ...kernels.spmm import multiply
from ...parallel.blocks import even_sizes
from .baseline import Baseline, cut


class BlockRows(Baseline):
    """Algorithms 1 and 2 of CAGNET.

    order        [n]  the vertices as they are cut into block rows
    replication  c, which divides P; 1: Algorithm 1
    """

    def __init__(self, comm: Communicator, a: CSR, order: Tensor, replication: int = 1):
        super().__init__(comm)
        c = replication
        if comm.size % c or c * c > comm.size:
            raise UserError(
                f"1.5D with {c} copies on {comm.size} ranks: {c} must divide them, and {c}² not exceed them."
            )
        blocks = order.split(even_sizes(order.numel(), comm.size // c))
        i, j = divmod(comm.rank, c)
        column, row = comm.split(j, i, name="column"), comm.split(c + i, j, name="row")
        assert column is not None
        assert row is not None
        self.column, self.row = column, row
        self.rows, self.first, self.sizes = blocks[i], j == 0, [b.numel() for b in blocks]
        stages = even_sizes(len(blocks), c)
        begin = sum(stages[:j])
        self.chunk = range(begin, begin + stages[j])
        self.blocks = {
            back: [cut(m, self.rows, blocks[q]) for q in self.chunk] for back, m in ((False, a), (True, a.T))
        }

    def take(self, x: Tensor) -> Tensor:
        return x[self.rows]

    def product(self, h: Tensor, back: bool = False) -> Tensor:
        total = h.new_zeros(h.shape)
        for q, a in zip(self.chunk, self.blocks[back], strict=True):
            block = h if q == self.column.rank else h.new_empty(self.sizes[q], h.shape[1])
            self.column.broadcast(block, q, phase="broadcast H")
            multiply(a, block, a.values, out=total, accumulate=True)
        return total if self.row.size == 1 else self.row.all_reduce(total, out=total, phase="sum T")

    def outer(self, h: Tensor, s: Tensor, shape: tuple[int, int]) -> Tensor:
        return self.column.all_reduce(h.T @ s, phase="weights")

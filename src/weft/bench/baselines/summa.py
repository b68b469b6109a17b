"""CAGNET's 2D and 3D: A, H and G in blocks on a mesh, multiplied by SUMMA; A's blocks travel, too.

P = a × b × c ranks (i, j, k). The n vertices are cut into a·c pieces R(i, k), in this order; columns into b
blocks F_j.

    layer k        K_k = ∪_i R(i, k)       cut again, b ways: C(j, k)
    rank (i, j, k) A[I_i, C(j, k)],        I_i = ∪_k R(i, k);   the same of Aᵀ
                   H[R(i, k), F_j]

    A H      for every stretch of K_k: A's columns broadcast along (i, ·, k), H's rows along (·, j, k), SpMM;
             then a reduce-scatter along the fibre (i, j, ·)
    T W      "partial SUMMA": for every stretch of columns T broadcast along (i, ·, k), GEMM with W's rows
    Hᵀ S     Hᵀ is laid out as A is (an all-to-all within a layer), then dense SUMMA, a sum along fibres and
             an all-gather

2D is c = 1 (Algorithm 3). A stretch is at most `blocking` long, and ends where the owner of either operand
changes. Words received with even blocks, and the paper's beside them:

    A H      nnz/(a·c) (1 − 1/b) + n·f/(b·c) (1 − 1/a)     2D: (nnz + n·f)/√P,    3D: (nnz + 2n·f)/P^⅔
             + n·f/(a·b) (1 − 1/c)
    T W      n·f/(a·c) (1 − 1/b)                           2D: n·f/√P,            3D: 2n·f/P^⅔
    Hᵀ S     n·f/(b·c) (1 − 1/a) + n·f/(a·c) (1 − 1/b)     2D: 2n·f/√P,           3D: 2n·f/P^⅔
             + at most n·f/P to transpose

nnz is one word an entry, as the paper counts; indices and row lengths travel as well, and are metered apart
("pattern"). In 3D complete rows of T are within reach of one process row, so that T W needs half of what the
paper counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...comm import Communicator
from ...kernels import CSR
from ...kernels.spmm import multiply
from ...parallel.blocks import even_sizes, starts
from .baseline import Baseline, cut


@dataclass(frozen=True)
class Stretch:
    """A piece of the inner dim, and who broadcasts it."""

    begin: int
    end: int
    left: int
    """The process column that has these columns of the left operand."""
    right: int
    """The process row that has these rows of the right one."""


def stretches(left: Sequence[int], right: Sequence[int], blocking: int = 0) -> list[Stretch]:
    """One dim, cut in two ways, as stretches with one owner each, none longer than `blocking` (0: any).

    >>> [(s.begin, s.end, s.left, s.right) for s in stretches([2, 2], [3, 1])]
    [(0, 2, 0, 0), (2, 3, 1, 0), (3, 4, 1, 1)]
    """
    total = sum(left)
    cuts = {0, total, *starts(left), *starts(right)}
    for begin, size in zip(starts(left), left, strict=True):
        cuts |= set(range(begin, begin + size, blocking or max(size, 1)))
    ends = sorted(cuts)
    owners = [[p for p, size in enumerate(sizes) for _ in range(size)] for sizes in (left, right)]
    return [Stretch(b, e, owners[0][b], owners[1][b]) for b, e in itertools.pairwise(ends)]


class Summa(Baseline):
    """Algorithm 3 and section IV-D of CAGNET.

    mesh      (a, b, c): process rows, process columns, layers
    blocking  b of Algorithm 3: the longest stretch of the inner dim in one stage; 0: whole blocks
    """

    def __init__(
        self, comm: Communicator, a: CSR, order: Tensor, mesh: tuple[int, int, int], blocking: int = 0
    ):
        super().__init__(comm)
        self.mesh, self.blocking = mesh, blocking
        many, across, layers = mesh
        self.i, (self.j, self.k) = (
            comm.rank // (across * layers),
            divmod(comm.rank % (across * layers), layers),
        )
        i, j, k = self.i, self.j, self.k
        self.row = _line(comm, i * layers + k, j, "row")
        self.column = _line(comm, j * layers + k, i, "column")
        self.fibre = _line(comm, i * across + j, k, "fibre")
        self.layer = _line(comm, k, i * across + j, "layer")
        pieces = order.split(even_sizes(order.numel(), many * layers))
        mine = [pieces[p * layers + k] for p in range(many)]  # R(·, k)
        self.inner = torch.cat(mine)  # K_k
        self.heights = [piece.numel() for piece in mine]
        self.widths = even_sizes(self.inner.numel(), across)  # of C(·, k)
        self.along_fibre = [piece.numel() for piece in pieces[i * layers : (i + 1) * layers]]
        self.rows, self.first = pieces[i * layers + k], j == 0
        whole = torch.cat(pieces[i * layers : (i + 1) * layers])  # I_i
        self.stages = stretches(self.widths, self.heights, blocking)
        self.pieces = {
            back: [cut(m, whole, self.inner[s.begin : s.end]) for s in self.stages]
            for back, m in ((False, a), (True, a.T))
        }
        # What is not this rank's is forgotten but for its size: it comes with every product.
        self.arcs = {back: [m.arcs for m in found] for back, found in self.pieces.items()}
        self.own = {
            back: {s: m for s, m in enumerate(found) if self.stages[s].left == j}
            for back, found in self.pieces.items()
        }
        self.height, self.values = whole.numel(), a.values
        del self.pieces

    def take(self, x: Tensor) -> Tensor:
        return self.restrict(x[self.rows])

    def restrict(self, z: Tensor) -> Tensor:
        sizes = self._columns(z.shape[1])
        return z.split(sizes, dim=1)[self.j].contiguous()

    def _columns(self, width: int) -> list[int]:
        """Sizes of F_j."""
        return even_sizes(width, self.mesh[1])

    def product(self, h: Tensor, back: bool = False) -> Tensor:
        total = h.new_zeros(self.height, h.shape[1])
        for s, stage in enumerate(self.stages):
            a = self._sparse(s, stage, back)
            block = self._dense(stage, h)
            multiply(a, block, a.values, out=total, accumulate=True)
        if self.fibre.size == 1:
            return total
        done: Tensor = self.fibre.ireduce_scatter(total, self.along_fibre, phase="sum T").wait()
        return done

    def _sparse(self, s: int, stage: Stretch, back: bool) -> CSR:
        """A's columns of a stage, from the rank of this process row that has them."""
        arcs, own = self.arcs[back][s], self.own[back].get(s)
        assert self.values is not None
        if own is None:
            counts = torch.empty(self.height, dtype=torch.int64, device="cpu")
            indices = torch.empty(arcs, dtype=torch.int32, device="cpu")
            values = self.values.new_empty(arcs)
        else:
            assert own.values is not None
            counts, indices, values = own.counts, own.indices, own.values
        self.row.broadcast(counts, stage.left, phase="pattern")
        self.row.broadcast(indices, stage.left, phase="pattern")
        self.row.broadcast(values, stage.left, phase="broadcast A")
        if own is not None:
            return own
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return CSR(ends, indices, values, (self.height, stage.end - stage.begin))

    def _dense(self, stage: Stretch, h: Tensor, phase: str = "broadcast H") -> Tensor:
        """H's rows of a stage, from the rank of this process column that has them."""
        size, begin = stage.end - stage.begin, stage.begin - starts(self.heights)[stage.right]
        block = h[begin : begin + size] if stage.right == self.i else h.new_empty(size, h.shape[1])
        return self.column.broadcast(block, stage.right, phase=phase)

    def times(self, t: Tensor, w: Tensor) -> Tensor:
        sizes, mine = self._columns(w.shape[0]), w.split(self._columns(w.shape[1]), dim=1)[self.j]
        z = t.new_zeros(t.shape[0], mine.shape[1])
        for s in stretches(sizes, [w.shape[0]], self.blocking):
            begin = s.begin - starts(sizes)[s.left]
            if s.left == self.j:
                block = t[:, begin : begin + s.end - s.begin].contiguous()
            else:
                block = t.new_empty(t.shape[0], s.end - s.begin)
            z.addmm_(self.row.broadcast(block, s.left, phase="broadcast T"), mine[s.begin : s.end])
        return z

    def complete(self, z: Tensor, width: int) -> Tensor:
        return self.row.all_gather(z.T.contiguous(), self._columns(width), phase="complete").T.contiguous()

    def outer(self, h: Tensor, s: Tensor, shape: tuple[int, int]) -> Tensor:
        f, g = shape
        left = self._transposed(h, f)  # Hᵀ[F'_i, C(j, k)]
        y = h.new_zeros(left.shape[0], s.shape[1])
        for stage in self.stages:
            size, begin = stage.end - stage.begin, stage.begin - starts(self.widths)[stage.left]
            if stage.left == self.j:
                piece = left[:, begin : begin + size].contiguous()
            else:
                piece = left.new_empty(left.shape[0], size)
            self.row.broadcast(piece, stage.left, phase="outer")
            y.addmm_(piece, self._dense(stage, s, "outer"))
        y = self.fibre.all_reduce(y, phase="weights")
        heights, widths = even_sizes(f, self.mesh[0]), self._columns(g)
        sizes = [a * b for a in heights for b in widths]
        found = self.layer.all_gather(y.reshape(-1), sizes, phase="weights").split(sizes)
        across = self.mesh[1]
        return torch.cat([
            torch.cat([found[a * across + b].view(high, wide) for b, wide in enumerate(widths)], dim=1)
            for a, high in enumerate(heights)
        ])  # fmt: skip

    def _transposed(self, h: Tensor, f: int) -> Tensor:
        """Hᵀ as A lies: rows F'_i of it (f cut a ways), columns C(j, k). [R(i, k), F_j] → [F'_i, C(j, k)]"""
        many, across, _ = self.mesh
        tall, wide = even_sizes(f, many), self._columns(f)
        here = starts(self.heights)[self.i], starts(wide)[self.j]

        def common(begin: int, size: int, other: int, much: int) -> tuple[int, int]:
            low, high = max(begin, other), min(begin + size, other + much)
            return low, max(low, high)

        def corner(i: int, j: int, to: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
            """The inner vertices and columns that go from rank (i, j) to rank `to` of the layer."""
            return (
                common(
                    starts(self.heights)[i], self.heights[i], starts(self.widths)[to[1]], self.widths[to[1]]
                ),
                common(starts(wide)[j], wide[j], starts(tall)[to[0]], tall[to[0]]),
            )

        peers = [(i, j) for i in range(many) for j in range(across)]
        send = []
        for peer in peers:
            (r, r_end), (c, c_end) = corner(self.i, self.j, peer)
            send.append(h[r - here[0] : r_end - here[0], c - here[1] : c_end - here[1]].T.reshape(-1))
        shapes = [corner(i, j, (self.i, self.j)) for i, j in peers]
        sizes = [(r[1] - r[0]) * (c[1] - c[0]) for r, c in shapes]
        came = self.layer.all_to_all(torch.cat(send), [x.numel() for x in send], sizes, phase="transpose")
        out = h.new_empty(tall[self.i], self.widths[self.j])
        top, left = starts(tall)[self.i], starts(self.widths)[self.j]
        for (inner, columns), block in zip(shapes, came.split(sizes), strict=True):
            (r, r_end), (c, c_end) = inner, columns
            out[c - top : c_end - top, r - left : r_end - left] = block.view(c_end - c, r_end - r)
        return out


def _line(comm: Communicator, color: int, key: int, name: str) -> Communicator:
    line = comm.split(color, key, name=name)
    assert line is not None
    return line

"""A sparse matrix in place of edge_index: `data.adj_t`, as PyG's `ToSparseTensor` makes it, shared.

    A   [n, n] torch.sparse_csr; row i has the arcs into i      on a rank  [n_own, n_own + n_halo]
    forward   y_own = A_own [x_own; x_halo]
    backward  dx_own = (A_own)ᵀ dy, the halo part sent back and added

What PyG asks of such a matrix has an answer: its sizes, its entries as an edge_index and values, products.
Anything else is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .call import Call, put
from .halo import extended
from .space import Count, Names, Root, Space, Tag, agree, set_tag, tag_of

Rule = Callable[[Call, "Matrix"], Any]


@dataclass(frozen=True, eq=False)
class Matrix(Tag):
    """A's rows of own vertices; `part` says which of its tensors this is.

    entries   the tagged [2, m]: columns (the arcs' sources) and rows, in the order in which A has them
    part      matrix; starts: crow_indices(); lengths: their differences
    """

    entries: Tensor | None = None
    part: str = "matrix"

    def row(self, k: int) -> Tensor:
        """Columns (0) or rows (1) of the entries: names."""
        assert self.entries is not None
        space, names = _named(self.entries)
        return set_tag(self.entries[k].clone(), Tag(space, 0, names[k]))

    @property
    def arcs(self) -> Space:
        return _named(self.entries)[0]

    @property
    def columns(self) -> Names:
        return _named(self.entries)[1][0]


def _named(index: Tensor | None) -> tuple[Space, tuple[Names, Names]]:
    """The arcs of a tagged edge_index, and what its two rows name."""
    tag = tag_of(index)
    assert tag is not None
    assert isinstance(tag.names, tuple)
    return tag.space, tag.names


def arcs_of(adj: Tensor, name: str) -> Tensor:
    """The entries of a whole matrix [n, n] as an edge_index: sources, then targets."""
    if adj.layout != torch.sparse_csr or adj.dim() != 2 or adj.shape[0] != adj.shape[1]:
        raise UserError(
            f"data.{name} is a sparse matrix {list(adj.shape)} of layout {adj.layout}, which is not shared. "
            "Use edge_index in its place, or a square one in torch.sparse_csr."
        )
    if adj.values().dim() > 1:
        raise UserError(f"data.{name} has several numbers an entry, which is not shared. Use edge_attr.")
    starts = adj.crow_indices().long()
    rows = torch.arange(adj.shape[0], device=starts.device).repeat_interleave(starts.diff())
    return torch.stack([adj.col_indices().long(), rows])


def cut_rows(adj: Tensor, index: Tensor, mine: Tensor) -> tuple[Tensor, Tensor]:
    """(this rank's rows of a matrix, which of its entries those are).

    index   the tagged edge_index [2, m_own] of its entries, `mine` of `arcs_of`
    """
    arcs, (source, target) = _named(index)
    width = source.space.size if source.halo is None else source.halo.size
    order = (index[1] * width + index[0]).argsort()
    mine = mine[order]
    entries = set_tag(index[:, order], Tag(Root(arcs.comm, mine, arcs.total, "arcs"), 1, (source, target)))
    counts = torch.bincount(entries[1], minlength=target.space.size)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    values = adj.values()[mine.to(adj.device)]
    size = (target.space.size, width)
    rows = torch.sparse_csr_tensor(
        starts, entries[0], values, size, device=adj.device, check_invariants=False
    )
    return set_tag(rows, Matrix(target.space, 0, None, entries)), mine


def matrix_of(call: Call) -> Matrix | None:
    """The sparse matrix among the arguments of a call."""
    return next((tag for _, tag in call.tagged() if isinstance(tag, Matrix)), None)


def matrix_rule(call: Call, tag: Matrix) -> Any:
    """What a function means for a shared sparse matrix."""
    found = _RULES.get((tag.part, call.name))
    if found is None:
        raise call.refuse("is not known for a sparse matrix that is spread over ranks. Use edge_index")
    return found(call, tag)


def _size(call: Call, tag: Matrix) -> Any:
    sizes = [Count(tag.space), Count(tag.columns.space)]
    dim = call.get(1, "dim")
    return torch.Size(sizes) if dim is None else sizes[dim]


def _kept(call: Call, tag: Matrix) -> Any:
    return put(call.run(), tag)


def _starts(call: Call, tag: Matrix) -> Any:
    ends = Space(tag.space.comm, tag.space.size + 1, 0, "starts of rows")
    return set_tag(call.run(), replace(tag, space=ends, part="starts"))


def _lengths(call: Call, tag: Matrix) -> Any:
    if len(call.args) + len(call.kwargs) > 1:
        raise call.refuse("of the starts of rows is known without arguments alone")
    return set_tag(call.run(), replace(tag, part="lengths"))


def _rows(call: Call, tag: Matrix) -> Any:
    """arange(n).repeat_interleave(lengths): the row of each entry."""
    x = call.x
    if tag_of(x) is not None or not torch.equal(x, torch.arange(x.numel(), device=x.device)):
        raise call.refuse("repeats rows in a way that is not known")
    return tag.row(1)


def _product(call: Call, tag: Matrix) -> Any:
    a, x = call.args[0], call.get(1, "mat2", call.kwargs.get("other"))
    xt, names = tag_of(x), tag.columns
    if tag_of(a) is not tag or xt is None or xt.dim != 0 or not agree(xt.space, names.space):
        raise call.refuse("multiplies a sparse matrix in another way than A x, with rows x of its vertices")
    call.no_names()
    whole = x if names.halo is None else extended(x, 0, names.halo)
    return put(call.func(a, whole, *call.args[2:]), Tag(tag.space, 0))


_RULES: dict[tuple[str, str], Rule] = {
    ("matrix", "size"): _size,
    ("matrix", "shape.get"): _size,
    **{("matrix", name): _kept for name in ("to", "cpu", "cuda", "detach", "clone", "contiguous", "alias")},
    ("matrix", "crow_indices"): _starts,
    ("matrix", "col_indices"): lambda call, tag: tag.row(0),
    ("matrix", "values"): lambda call, tag: put(call.run(), Tag(tag.arcs, 0)),
    **{("matrix", name): _product for name in ("sparse_mm", "mm", "matmul")},
    ("starts", "detach"): _kept,
    ("starts", "numel"): lambda call, tag: Count(tag.space),
    ("starts", "diff"): _lengths,
    ("lengths", "repeat_interleave"): _rows,
}
"""(part, function) → what it means."""

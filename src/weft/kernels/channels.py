"""Messages that an arc makes column by column, of both its ends and of its own features.

    z[e,c] = row[i,c] + column[j,c] + Σ_t features[e,t] weight[t,c]          e = (i, j)

    scores   s[e,h] = Σ over the columns of head h of mix[c] leaky(z[e,c])
    relu     y[i]   = Σ_e max(z, 0)
    gate     y[i]   = Σ_e σ(z) ∘ (x[j] + features[e] value_weight)
    stats    Σ_e z, Σ_e z², max_e z, min_e z, and who was the largest and the smallest

Nothing of arcs × width is made: z is computed where it is used, a tile of arcs at a time. Gradients of scores
and of rectified sums need the signs of z alone, a bit each; those that fit into the size of a row operand are
kept from forward to backward (`Signs`), z of the others is made once more, some rows at a time. No autograd
here: `weft.parallel.messages` and `weft.parallel.attend` call both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..memory import empty
from ..meter import metered
from . import dry, native
from .csr import CSR
from .sddmm import head_of

_SOME = 1 << 20
"""Numbers of z at a time in the torch kernels."""
_NARROW = 64
"""Columns below which signs have the room of so many: last layers are narrow, and have memory to spare."""


@dataclass(frozen=True)
class Channels:
    """What z is made of.

    row       [rows, w]     or None: 0
    column    [columns, w]
    features  [arcs, t]     or None;  weight [t, w]
    """

    column: Tensor
    row: Tensor | None = None
    features: Tensor | None = None
    weight: Tensor | None = None

    @property
    def width(self) -> int:
        return self.column.shape[1]

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.column, self.row, self.features, self.weight

    def served(self, a: CSR, *more: Tensor | None) -> bool:
        """Whether the C++ kernels take it."""
        return native.served(a.indices, *self.tensors, *more)

    def is_dry(self, a: CSR, *more: Tensor | None) -> bool:
        return dry.is_dry(a.indices, *self.tensors, *more)

    def rows(self, begin: int, end: int) -> Channels:
        """The same for these rows of A."""
        return self if self.row is None else replace(self, row=self.row[begin:end])

    def native(self, permutation: Tensor | None = None) -> object:
        assert native.extension is not None
        out = native.extension.Channels()
        out.row, out.column = native.address(self.row), native.address(self.column)
        out.features, out.weight = native.address(self.features), native.address(self.weight)
        out.inner = 0 if self.features is None else self.features.shape[1]
        out.permutation = native.address(permutation)
        return out

    def tiles(self, a: CSR, weight: Tensor | None = None) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """(arcs, i, j, z) for some arcs at a time."""
        step = max(1, _SOME // max(self.width, 1))
        for begin in range(0, a.arcs, step):
            some = slice(begin, min(a.arcs, begin + step))
            i, j = a.row_of[some], a.indices[some].long()
            z = self.column[j]
            if self.row is not None:
                z = z + self.row[i]
            if self.features is not None and self.weight is not None:
                z = z + self.features[some] @ self.weight
            yield some, i, j, z


@dataclass(frozen=True)
class Signs:
    """Which columns of z are positive, a bit each, of the arcs of rows begin … end − 1 of A.

    bits    [arcs of these rows, bytes an arc], as the C++ kernels lay them
    """

    bits: Tensor
    begin: int
    end: int

    @classmethod
    def room(cls, a: CSR, ch: Channels, first: int, dim: int, begin: int = 0, share: int = 1) -> Signs | None:
        """Uninitialised memory for rows from `begin` on, as many as fit into [rows, max(w, 64)] / share.

        None where the C++ kernels do not take the operands: torch's make z again instead.
        """
        if not ch.served(a):
            return None
        width, rows = ch.width, a.shape[0]
        stride = native.kernel("sign_bytes", ch.column, a.indices)(width, first, max(dim, 1))
        most = rows * max(width, _NARROW) * ch.column.element_size() // share // max(stride, 1)
        past = int(a.indptr[begin]) + most
        end = int(torch.searchsorted(a.indptr, past, right=True)) - 1
        end = min(max(end, begin + 1), rows)
        arcs = int(a.indptr[end] - a.indptr[begin]) if rows else 0
        return cls(empty(arcs, stride, like=ch.column, dtype=torch.uint8), begin, end)

    @classmethod
    def passes(
        cls, a: CSR, ch: Channels, first: int, dim: int, kept: Signs | None
    ) -> Iterator[tuple[Signs, bool]]:
        """(signs, whether they are known) until all rows had a turn: what was kept, then room for more."""
        begin, known = 0, kept
        while begin < a.shape[0] or not begin:
            here = known or cls.room(a, ch, first, dim, begin)
            assert here is not None
            yield here, known is not None
            if here.end >= a.shape[0]:
                return
            begin, known = here.end, None

    def native(self, a: CSR) -> tuple[int, int, int]:
        """(address, first arc, end) for a kernel."""
        return native.address(self.bits), int(a.indptr[self.begin]), int(a.indptr[self.end])


def _leaky(z: Tensor, slope: float) -> Tensor:
    return torch.where(z > 0, z, z * slope)


@metered("attend")
def channel_scores(
    a: CSR, ch: Channels, mix: Tensor, slope: float, first: int, dim: int, heads: int,
    signs: Signs | None = None,
) -> Tensor:  # fmt: skip
    """s[e,h] = Σ over the columns c of head h of mix[c] leaky(z[e,c]). → [arcs, heads].

        mix [w];  column c belongs to head (first + c) // dim;  signs: written where given

    >>> a = CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1))
    >>> channel_scores(a, Channels(torch.tensor([[1.0, -1.0]])), torch.ones(2), 0.5, 0, 2, 1)
    tensor([[0.5000]])
    """
    if ch.served(a, mix):
        out = empty(a.arcs, heads, like=ch.column)
        _native_scores(a, ch, mix, slope, first, dim, heads, signs, (0, a.shape[0]), out)
        return out
    if ch.is_dry(a, mix):
        return dry.blank(a.arcs, heads, dtype=ch.column.dtype)
    out = ch.column.new_zeros(a.arcs, heads)
    head = head_of(ch.width, first, dim, mix.device)
    for some, _, _, z in ch.tiles(a):
        out[some] = out[some].index_add(1, head, _leaky(z, slope) * mix)
    return out


def _native_scores(
    a: CSR, ch: Channels, mix: Tensor, slope: float, first: int, dim: int, heads: int, signs: Signs | None,
    rows: tuple[int, int], out: Tensor | None,
) -> None:  # fmt: skip
    """Of these rows: scores where there is an `out` [arcs, heads], and signs where wanted."""
    begin, end = rows
    native.kernel("channel_scores", ch.column, a.indices)(
        end - begin, *map(native.address, (a.indptr[begin : end + 1], a.indices)),
        ch.rows(begin, end).native(), native.address(mix), slope, ch.width, first, max(dim, 1), heads,
        *((0, 0, 0) if signs is None else signs.native(a)), native.address(out),
        native.threads(a.arcs * ch.width),
    )  # fmt: skip


@metered("attend")
def channel_scores_backward(
    a: CSR, ch: Channels, ds: Tensor, mix: Tensor, slope: float, first: int, dim: int,
    signs: Signs | None = None, into: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """(drow, dcolumn, dweight, dmix), given ds [arcs, heads] in A's order.

        D[e,c] = ds[e,h] (1 where z > 0, else slope)
        drow[i] = mix ∘ Σ_e D      dcolumn[j] = mix ∘ Σ_e D      dweight = mix ∘ fᵀ D      dmix = Σ_e D ∘ z

    The last needs no z: it is Σ_i row ∘ Σ D + Σ_j column ∘ Σ D + Σ_t weight ∘ fᵀ D.

        signs   those kept from `channel_scores`; z of other rows is made again
        into    dcolumn is added to it and is it
    """
    rows, width = a.shape[0], ch.width
    dweight = None if ch.weight is None else torch.zeros_like(ch.weight)
    dmix = torch.zeros_like(mix)
    if ch.served(a, ds, mix, into):
        drow = empty(rows, width, like=ch.column)
        dcolumn = empty(a.shape[1], width, like=ch.column) if into is None else into
        threads, t = native.threads(a.arcs * width), a.T
        kernel = native.kernel("channel_scores_backward", ch.column, a.indices)
        more = (*map(native.address, (ds, mix)), slope, width, first, max(dim, 1), ds.shape[1])
        if not a.arcs:  # nor a permutation, by which a kernel knows the transpose
            return drow.zero_(), dcolumn.zero_() if into is None else into, dweight, dmix
        for here, kept in Signs.passes(a, ch, first, dim, signs):
            begin, end = here.begin, here.end
            if not kept:
                _native_scores(a, ch, mix, slope, first, dim, ds.shape[1], here, (begin, end), None)
            kernel(
                t.shape[0], *map(native.address, (t.indptr, t.indices)), ch.native(a.permutation), begin, end,
                *here.native(a), *more, native.address(dcolumn), into is not None or begin > 0, 0,
                native.address(dmix), threads,
            )  # fmt: skip
            kernel(
                end - begin, *map(native.address, (a.indptr[begin : end + 1], a.indices)),
                ch.rows(begin, end).native(), 0, 0, *here.native(a), *more, native.address(drow[begin:end]),
                False, *map(native.address, (dweight, dmix)), threads,
            )  # fmt: skip
        return drow, dcolumn, dweight, dmix
    if ch.is_dry(a, ds, mix):
        dtype = ch.column.dtype
        dcolumn = dry.blank(a.shape[1], width, dtype=dtype) if into is None else dry.written(into)
        return dry.blank(rows, width, dtype=dtype), dcolumn, dweight, dmix
    drow = ch.column.new_zeros(rows, width)
    dcolumn = ch.column.new_zeros(a.shape[1], width) if into is None else into
    head = head_of(width, first, dim, mix.device)
    for some, i, j, z in ch.tiles(a):
        d = ds[some][:, head]
        dz = d * mix
        dz = torch.where(z > 0, dz, dz * slope)
        drow.index_add_(0, i, dz)
        dcolumn.index_add_(0, j, dz)
        if dweight is not None and ch.features is not None:
            dweight += ch.features[some].T @ dz
        dmix += (d * _leaky(z, slope)).sum(0)
    return drow, dcolumn, dweight, dmix


@metered("spmm")
def channel_sum(
    a: CSR, ch: Channels, kind: str, x: Tensor | None = None, value_weight: Tensor | None = None,
    out: Tensor | None = None, signs: Signs | None = None,
) -> Tensor:  # fmt: skip
    """y[i] (+)= Σ_e max(z, 0) (kind "relu"), or Σ_e σ(z) ∘ (x[j] + features[e] value_weight) ("gate").

    signs   of relu: written where given

    >>> a = CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1))
    >>> channel_sum(a, Channels(torch.tensor([[1.0, -1.0]])), "relu")
    tensor([[1., 0.]])
    """
    rows, width = a.shape[0], ch.width
    if ch.served(a, x, value_weight, out):
        accumulate = out is not None
        out = empty(rows, width, like=ch.column) if out is None else out
        if kind == "relu":
            _native_relu(a, ch, signs, (0, rows), out, accumulate)
            return out
        native.kernel("channel_gate", ch.column, a.indices)(
            rows, *map(native.address, (a.indptr, a.indices)), ch.native(),
            *map(native.address, (x, value_weight)), width, native.address(out), accumulate,
            native.threads((a.arcs + rows) * width),
        )  # fmt: skip
        return out
    if ch.is_dry(a, x, value_weight, out):
        return dry.blank(rows, width, dtype=ch.column.dtype) if out is None else dry.written(out)
    out = ch.column.new_zeros(rows, width) if out is None else out
    for some, i, j, z in ch.tiles(a):
        out.index_add_(
            0, i, z.relu() if kind == "relu" else z.sigmoid() * _values(ch, some, j, x, value_weight)
        )
    return out


def _native_relu(
    a: CSR, ch: Channels, signs: Signs | None, rows: tuple[int, int], out: Tensor | None, accumulate: bool
) -> None:
    """Of these rows: sums where there is an `out`, and signs where wanted."""
    begin, end = rows
    native.kernel("channel_relu", ch.column, a.indices)(
        end - begin, *map(native.address, (a.indptr[begin : end + 1], a.indices)),
        ch.rows(begin, end).native(), ch.width, *((0, 0, 0) if signs is None else signs.native(a)),
        native.address(out), accumulate, native.threads((a.arcs + end - begin) * ch.width),
    )  # fmt: skip


def _values(ch: Channels, some: slice, j: Tensor, x: Tensor | None, value_weight: Tensor | None) -> Tensor:
    assert x is not None
    if value_weight is None or ch.features is None:
        return x[j]
    return x[j] + ch.features[some] @ value_weight


@dataclass
class SumGradients:
    """Of both sides of z, the row one's None where z has none; of x; of both weights, where there are any.

    The column's is None where it was not wanted.
    """

    row: Tensor | None
    column: Tensor | None
    x: Tensor | None
    weight: Tensor | None
    value_weight: Tensor | None


@metered("spmm")
def channel_sum_backward(
    a: CSR, ch: Channels, kind: str, g: Tensor, x: Tensor | None = None, value_weight: Tensor | None = None,
    signs: Signs | None = None, wanted: bool = True,
) -> SumGradients:  # fmt: skip
    """The gradients of `channel_sum`, given that of y, g [rows, w].

    relu   D[e] = g[i] where z > 0, else 0:   drow[i] = Σ_e D,  dcolumn[j] = Σ_e D,  dweight = fᵀ D
    gate   dz = σ'(z) ∘ v ∘ g[i], dv = σ(z) ∘ g[i],  v = x[j] + f value_weight

    signs   of relu, those kept from `channel_sum`; z of other rows is made again
    wanted  of relu, whether the column's gradient is: without it there is no walk over Aᵀ
    """
    width, gate = ch.width, kind == "gate"
    dweight = None if ch.weight is None else torch.zeros_like(ch.weight)
    dvalue = None if value_weight is None else torch.zeros_like(value_weight)
    if ch.served(a, g, x, value_weight):
        drow = None if ch.row is None else empty(a.shape[0], width, like=g)
        dcolumn = empty(a.shape[1], width, like=g) if wanted or gate else None
        if not gate:
            _native_relu_backward(a, ch, g, signs, drow, dcolumn, dweight)
            return SumGradients(drow, dcolumn, None, dweight, None)
        dx = empty(a.shape[1], width, like=g)
        for transposed in (True, False) if drow is not None else (True,):
            m = a.T if transposed else a
            outs = (dcolumn, dx, dweight, dvalue) if transposed else (drow, None, None, None)
            native.kernel("channel_gate_backward", ch.column, a.indices)(
                m.shape[0], *map(native.address, (m.indptr, m.indices)),
                ch.native(a.permutation if transposed else None), transposed,
                *map(native.address, (g, x, value_weight)), width, *map(native.address, outs),
                native.threads((a.arcs + m.shape[0]) * width),
            )  # fmt: skip
        return SumGradients(drow, dcolumn, dx, dweight, dvalue)
    if ch.is_dry(a, g, x, value_weight):
        blank = dry.blank(a.shape[1], width, dtype=g.dtype)
        drow = None if ch.row is None else dry.blank(a.shape[0], width, dtype=g.dtype)
        return SumGradients(drow, blank if wanted or gate else None, blank if gate else None, dweight, dvalue)
    drow = None if ch.row is None else g.new_zeros(a.shape[0], width)
    dcolumn = g.new_zeros(a.shape[1], width) if wanted or gate else None
    dsource = g.new_zeros(a.shape[1], width) if gate else None
    for some, i, j, z in ch.tiles(a):
        if dsource is not None:
            s = z.sigmoid()
            dv = s * g[i]
            dz = (1 - s) * dv * _values(ch, some, j, x, value_weight)
            dsource.index_add_(0, j, dv)
            if dvalue is not None and ch.features is not None:
                dvalue += ch.features[some].T @ dv
        else:
            dz = g[i] * (z > 0)
        if dcolumn is not None:
            dcolumn.index_add_(0, j, dz)
        if drow is not None:
            drow.index_add_(0, i, dz)
        if dweight is not None and ch.features is not None:
            dweight += ch.features[some].T @ dz
    return SumGradients(drow, dcolumn, dsource, dweight, dvalue)


def _native_relu_backward(
    a: CSR, ch: Channels, g: Tensor, signs: Signs | None, drow: Tensor | None, dcolumn: Tensor | None,
    dweight: Tensor | None,
) -> None:  # fmt: skip
    width = ch.width
    t = a if dcolumn is None else a.T
    threads = native.threads((a.arcs + a.shape[0]) * width)
    kernel = native.kernel("channel_relu_backward", ch.column, a.indices)
    for here, kept in Signs.passes(a, ch, 0, width, signs):
        begin, end = here.begin, here.end
        if not kept:
            _native_relu(a, ch, here, (begin, end), None, False)
        if dcolumn is not None:
            kernel(
                t.shape[0], *map(native.address, (t.indptr, t.indices)), ch.native(a.permutation), begin, end,
                *here.native(a), native.address(g), width, native.address(dcolumn), begin > 0, 0, threads,
            )  # fmt: skip
        if drow is None and dweight is None:
            continue
        side = None if drow is None else drow[begin:end]
        kernel(
            end - begin, *map(native.address, (a.indptr[begin : end + 1], a.indices)),
            ch.rows(begin, end).native(), 0, 0, *here.native(a), native.address(g[begin:end]), width,
            native.address(side), False, native.address(dweight), threads,
        )  # fmt: skip


Stats = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@metered("spmm")
def channel_stats(a: CSR, ch: Channels) -> Stats:
    """(Σ z, Σ z², max z, min z, whose the largest was, whose the smallest), each [rows, w].

    Rows without arcs give 0 and -1. Of equals the first arc's; NaN wins, as in torch.

    >>> a = CSR(torch.tensor([0, 2]), torch.tensor([0, 1]), None, (1, 2))
    >>> [t.item() for t in channel_stats(a, Channels(torch.tensor([[1.0], [3.0]])))]
    [4.0, 10.0, 3.0, 1.0, 1, 0]
    """
    rows, width = a.shape[0], ch.width
    if ch.served(a):
        out = [empty(rows, width, like=ch.column) for _ in range(4)]
        args = [torch.empty(rows, width, dtype=a.indices.dtype, device=a.indices.device) for _ in range(2)]
        native.kernel("channel_stats", ch.column, a.indices)(
            rows, *map(native.address, (a.indptr, a.indices)), ch.native(), width,
            *map(native.address, (*out, *args)), native.threads((a.arcs + rows) * width),
        )  # fmt: skip
        return (*out, *args)  # type: ignore[return-value]
    if ch.is_dry(a):
        numbers = [dry.blank(rows, width, dtype=ch.column.dtype) for _ in range(4)]
        names = [dry.blank(rows, width, dtype=a.indices.dtype) for _ in range(2)]
        return (*numbers, *names)  # type: ignore[return-value]
    total, squares = (ch.column.new_zeros(rows, width) for _ in range(2))
    most = ch.column.new_full((rows, width), -torch.inf)
    least = ch.column.new_full((rows, width), torch.inf)
    for _, i, _, z in ch.tiles(a):
        at = i[:, None].expand_as(z)
        total.index_add_(0, i, z)
        squares.index_add_(0, i, z * z)
        most.scatter_reduce_(0, at, z, "amax")
        least.scatter_reduce_(0, at, z, "amin")
    # Who it was: the first arc, by its number, that has the row's best.
    number = torch.full((2, rows, width), a.arcs, dtype=torch.int64, device=a.indices.device)
    for some, i, _, z in ch.tiles(a):
        arc = torch.arange(some.start, some.stop, device=z.device)[:, None].expand_as(z)
        for k, best in enumerate((most, least)):
            hit = (z == best[i]) | (z.isnan() & best[i].isnan())
            number[k].scatter_reduce_(0, i[:, None].expand_as(z), torch.where(hit, arc, a.arcs), "amin")
    none = torch.cat([a.indices, a.indices.new_full((1,), -1)])
    empty_row = (a.counts == 0)[:, None]
    return (
        total, squares, most.masked_fill(empty_row, 0), least.masked_fill(empty_row, 0),
        none[number[0]], none[number[1]],
    )  # fmt: skip


@metered("spmm")
def channel_stats_backward(
    a: CSR, ch: Channels, grads: tuple[Tensor, ...], args: tuple[Tensor, Tensor], labels: Tensor | None,
    weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """(dcolumn, dweight) of the gradients of Σ z, Σ z², max, min; `labels`: what winners call column j."""
    t, width = a.T, ch.width
    dweight = torch.zeros_like(ch.weight) if weights and ch.weight is not None else None
    if ch.served(a, *grads, *args, labels):
        dcolumn = empty(t.shape[0], width, like=ch.column)
        native.kernel("channel_stats_backward", ch.column, a.indices)(
            t.shape[0], *map(native.address, (t.indptr, t.indices)), ch.native(a.permutation),
            *map(native.address, (labels, *grads, *args)), width, *map(native.address, (dcolumn, dweight)),
            native.threads((a.arcs + t.shape[0]) * width),
        )  # fmt: skip
        return dcolumn, dweight
    if ch.is_dry(a, *grads, *args):
        return dry.blank(t.shape[0], width, dtype=ch.column.dtype), dweight
    dcolumn = ch.column.new_zeros(t.shape[0], width)
    for some, i, j, z in ch.tiles(a):
        name = (j if labels is None else labels[j].long())[:, None]
        dz = grads[0][i] + 2 * z * grads[1][i]
        for g, arg in zip(grads[2:], args, strict=True):
            dz = dz + torch.where(arg[i] == name, g[i], 0.0)
        dcolumn.index_add_(0, j, dz)
        if dweight is not None and ch.features is not None:
            dweight += ch.features[some].T @ dz
    return dcolumn, dweight

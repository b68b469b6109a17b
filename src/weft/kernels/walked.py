"""A x where x lies in a file: rows are read forward, and the sums are those of one product, to the bit.

    way       holds at a time                 x is read                        further traffic
    copy      x                               once                             none
    slices    some columns of x               once whole, once in slices       x, y written, y read, sliced
    chunks    the sources of some rows of A   as often as chunks share pages   none

A row's sum goes over the same arcs in the same order as in one product, in as many partial sums: slices begin
where the kernel's own tiles of columns do, and of a chunk the last rows see as many arcs beyond them as they
do in A (the kernel sums rows near the end of a matrix in another order).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import paged
from ..memory import empty, pool
from . import native
from .csr import CSR

Product = Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor, bool, bool], None]
"""(indptr, indices, values, x, out, mean, accumulate): the kernel, for as many rows as out has."""

_BEYOND = 32
"""Arcs that the kernel may look at beyond a row, at most (`ahead_of` and `side_by_side` in spmm.cpp)."""
_TILE, _NARROW = 16, 8
"""Vectors of the kernel's tile of columns, and of the narrowest that sums arc after arc as it does."""
_VECTOR = {"baseline": 16, "avx2": 32, "avx512": 64}
"""Bytes of a vector."""


@dataclass(frozen=True)
class Way:
    """How a product with an x of one width goes."""

    chunks: tuple[tuple[int, int, int], ...]
    """(begin, end, sources) of rows whose sources fit; empty: another way."""
    slices: tuple[int, ...]
    """Columns of each slice; empty: another way."""
    reads: int
    """Bytes that are read."""
    writes: int
    """Bytes that are written, beside y."""


def way_of(a: CSR, width: int, size: int, room: int, whole_rows: bool = False) -> Way:
    """The way with the least traffic for x [columns, width] of numbers of `size` bytes; A keeps it.

    `whole_rows`: without slices.

    >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> way_of(a, 3, 4, room=24).reads, way_of(a, 3, 4, room=12).chunks
    (24, ((0, 1, 1), (1, 2, 1)))
    """
    whole = a.shape[1] * width * size
    if whole <= room:
        return Way((), (), whole, 0)
    made: dict[tuple[int, int, int, bool], Way] = a.__dict__.setdefault("ways", {})
    key = (width, size, room, whole_rows)
    if key not in made:
        chunks, reads = chunks_of(a, max(1, room // (width * size)), width * size)
        slices, y = slices_of(a.shape[1], width, size, room), a.shape[0] * width * size
        sliced = Way((), slices, 2 * whole + y, whole + y)
        made[key] = Way(chunks, (), reads, 0)
        if slices and not whole_rows and sliced.reads + sliced.writes < reads:
            made[key] = sliced
    return made[key]


def slices_of(columns: int, width: int, size: int, room: int) -> tuple[int, ...]:
    """Widths of slices [columns, ·] that fit into `room`, cut where the kernel's tiles allow; empty: none do.

    >>> slices_of(1000, 300, 4, room=600_000) if native.extension and native.extension.isa() == "avx2" else (
    ...     128, 128, 44)
    (128, 128, 44)
    """
    if native.extension is None:
        return ()
    lanes = _VECTOR[native.extension.isa()] // size
    unit, tiles = _NARROW * lanes, width - width % (_TILE * lanes)
    several = room // (columns * unit * size)
    rest = width - tiles
    if not tiles or not several or columns * rest * size > room:
        return ()
    wide = unit * several
    cuts = [min(wide, tiles - begin) for begin in range(0, tiles, wide)]
    return (*cuts, rest) if rest else tuple(cuts)


def chunks_of(a: CSR, most: int, row: int) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """((begin, end, sources) of chunks of rows that read at most `most` rows of x; bytes of all they read).

    A row that reads more is a chunk of its own. Read are whole pages; `row`: bytes of a row of x.
    """
    few = max(1, most // 8)
    marks = torch.arange(0, a.arcs + few, few, device="cpu")
    ends = torch.searchsorted(a.indptr, marks, right=True).sub_(1).clamp_(max=a.shape[0])
    cuts = torch.cat([ends, torch.tensor([0, a.shape[0]], device="cpu")]).unique().tolist()
    seen = torch.zeros(a.shape[1], dtype=torch.bool, device="cpu")
    chunks: list[tuple[int, int, int]] = []
    begin = count = pages = 0
    ends_of = a.indptr[torch.tensor(cuts, device="cpu")].tolist()
    for k in range(len(cuts) - 1):
        columns = a.indices[ends_of[k] : ends_of[k + 1]].long()
        fresh = columns[~seen[columns]].unique()
        if count + fresh.numel() > most and cuts[k] > begin:
            chunks.append((begin, cuts[k], count))
            pages += _pages(seen, row)
            seen.zero_()
            begin, count, fresh = cuts[k], 0, columns.unique()
        seen[fresh] = True
        count += fresh.numel()
    if cuts[-1] > begin:
        chunks.append((begin, cuts[-1], count))
        pages += _pages(seen, row)
    return tuple(chunks), pages * mmap.PAGESIZE


def _pages(seen: Tensor, row: int) -> int:
    """Pages that the rows of x with a mark lie in."""
    first = seen.nonzero().ravel() * row
    if not first.numel():
        return 0
    begin, end = first // mmap.PAGESIZE, (first + row - 1) // mmap.PAGESIZE
    shared = (begin[1:] == end[:-1]).sum()
    return int((end - begin + 1).sum() - shared)


def multiply(
    a: CSR, x: Tensor, values: Tensor | None, mean: bool, out: Tensor | None, accumulate: bool,
    product: Product,
) -> Tensor:  # fmt: skip
    """A x, into `out` where given; `product` is the kernel. What is as large as x lies in a file too."""
    if out is None:
        out = empty(a.shape[0], x.shape[1], like=x, aside=a.shape[0] >= x.shape[0])
    # A mean that is added to something is rounded once or twice, as the compiler liked it for each tile.
    way = way_of(a, x.shape[1], x.element_size(), pool.room, whole_rows=mean and accumulate)
    if way.slices:
        _by_slices(a, x, values, mean, out, accumulate, product, way.slices)
    elif way.chunks:
        _by_chunks(a, x, values, mean, out, accumulate, product, way.chunks)
    else:
        product(a.indptr, a.indices, values, _brought(x), out, mean, accumulate)
    return out


def _brought(x: Tensor) -> Tensor:
    """x in memory, read once, forward."""
    here = torch.empty_like(x)
    for piece in paged.pieces(x):
        here[piece] = x[piece]
    return here


def _by_slices(
    a: CSR, x: Tensor, values: Tensor | None, mean: bool, out: Tensor, accumulate: bool, product: Product,
    widths: tuple[int, ...],
) -> None:  # fmt: skip
    """*cut x into slices of columns, multiply each, join what came*"""
    ins = _cut(x, widths)
    outs = _cut(out, widths) if accumulate else []
    for k, width in enumerate(widths):
        here = _brought(ins[k])
        ins[k] = ins[k].new_empty(0)  # its file may be used again
        if not accumulate:
            outs.append(empty(out.shape[0], width, like=x, aside=True))
        product(a.indptr, a.indices, values, here, outs[k], mean, accumulate)
        del here  # before the next one is made
        for _ in paged.pieces(outs[k]):
            pass  # written, and not needed before all are joined
    for piece in paged.pieces(*outs, writes=[out]):
        torch.cat([y[piece] for y in outs], 1, out=out[piece])


def _cut(x: Tensor, widths: tuple[int, ...]) -> list[Tensor]:
    """x [n, w] as slices [n, ·] in files, read once."""
    slices = [empty(x.shape[0], width, like=x, aside=True) for width in widths]
    for piece in paged.pieces(x, writes=slices):
        for part, columns in zip(slices, x[piece].split(list(widths), 1), strict=True):
            part[piece] = columns
    return slices


def _by_chunks(
    a: CSR, x: Tensor, values: Tensor | None, mean: bool, out: Tensor, accumulate: bool, product: Product,
    chunks: tuple[tuple[int, int, int], ...],
) -> None:  # fmt: skip
    """*find the sources of a chunk, bring them together, multiply with what is left of A*"""
    most = max(1, pool.room // max(1, x.shape[1] * x.element_size()))
    label = torch.empty(a.shape[1], dtype=a.indices.dtype, device="cpu")
    seen = torch.zeros(a.shape[1], dtype=torch.bool, device="cpu")
    for begin, end, sources in chunks:
        first, last = int(a.indptr[begin]), int(a.indptr[end])
        beyond = min(_BEYOND, a.arcs - last)
        indptr, indices = a.indptr[begin : end + 1] - first, a.indices[first : last + beyond]
        own = None if values is None else values[first : last + beyond]
        if sources <= most:
            seen.zero_()
            seen[indices[: last - first].long()] = True
            needed = seen.nonzero().ravel()
            label[needed] = torch.arange(needed.numel(), dtype=label.dtype, device="cpu")
            local = torch.zeros_like(indices)  # arcs beyond the chunk count, and are not added
            local[: last - first] = label[indices[: last - first].long()]
            here = _rows(x, needed)
        else:
            local, here = indices, x
        if not beyond:
            product(indptr, local, own, here, out[begin:end], mean, accumulate)
        else:  # they are a further row, in the place of the next one
            indptr = torch.cat([indptr, indptr[-1:] + beyond])
            next_row = out[end].clone()
            product(indptr, local, own, here, out[begin : end + 1], mean, accumulate)
            out[end] = next_row
        found = paged.of(out)
        if found is not None:
            row = out.shape[1] * out.element_size()
            found[0].let_go(found[1] + begin * row, found[1] + end * row)


def _rows(x: Tensor, needed: Tensor) -> Tensor:
    """x[needed], ascending: read forward, what is next asked for where most of it is needed."""
    here = torch.empty(max(1, needed.numel()), x.shape[1], dtype=x.dtype, device="cpu")
    found, row = paged.of(x), x.shape[1] * x.element_size()
    step = max(1, paged.PIECE // max(1, row))
    spans = [(begin, min(begin + step, needed.numel())) for begin in range(0, needed.numel(), step)]
    bounds = [(int(needed[b]) * row, (int(needed[e - 1]) + 1) * row) for b, e in spans]

    def ask(k: int) -> None:
        if found is not None and k < len(spans):
            (b, e), (low, high) = spans[k], bounds[k]
            if 4 * (e - b) * row >= high - low:
                found[0].ask(found[1] + low, found[1] + high)

    ask(0)
    for k, (b, e) in enumerate(spans):
        ask(k + 1)
        torch.index_select(x, 0, needed[b:e], out=here[b:e])
        if found is not None:
            found[0].let_go(found[1] + bounds[k][0], found[1] + bounds[k][1])
    return here

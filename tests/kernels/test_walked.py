"""A x with x in a file: the bits of one product in memory, whatever the way."""

from __future__ import annotations

import pytest
import torch

from weft import memory, paged
from weft.kernels import CSR, native, walked
from weft.kernels.spmm import multiply

from .matrices import random_csr


@pytest.fixture
def budget(monkeypatch):
    """`budget(room)`: a pool of its own that lets products bring so many bytes together."""
    if native.extension is None:
        pytest.skip("files are walked by the C++ kernels")
    monkeypatch.setattr(memory, "_LARGE", 1)
    monkeypatch.setattr(paged, "PIECE", 4096)

    def set_room(room: int) -> memory.Pool:
        pool = memory.Pool()
        pool.allow(2 * room)
        monkeypatch.setattr(memory, "pool", pool)
        monkeypatch.setattr(walked, "pool", pool)
        return pool

    return set_room


def filed(pool: memory.Pool, x: torch.Tensor) -> torch.Tensor:
    out = pool.empty(tuple(x.shape), x.dtype, aside=True)
    return out.copy_(x)


def matrix(seed: int, dtype: torch.dtype | None) -> CSR:
    """Directed, rows long enough that the kernel sums some near the end of A in another order."""
    return random_csr(67, 61, 0.35, seed, dtype)


def both(a: CSR, x: torch.Tensor, pool: memory.Pool, mean: bool, accumulate: bool):
    """(in memory, from a file)"""
    start = torch.randn(a.shape[0], x.shape[1], generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    out = (start.clone(), filed(pool, start)) if accumulate else (None, None)
    plain = multiply(a, x, a.values, mean, out[0], accumulate)
    walk = multiply(a, filed(pool, x), a.values, mean, out[1], accumulate)
    return plain, walk


WAYS = [(way, width) for way in ("copy", "chunks") for width in (1, 3, 16, 33, 64, 131)]
WAYS += [("slices", width) for width in (256, 259, 300, 520)]  # at least a tile of each instruction set


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("way", "width"), WAYS)
@pytest.mark.parametrize(
    ("mean", "accumulate", "weighted"),
    [(False, False, True), (False, True, True), (True, False, False), (True, True, False)],
)
def test_every_way_gives_the_bits_of_one_product(budget, way, width, dtype, mean, accumulate, weighted):
    a = matrix(width, dtype if weighted else None)
    x = torch.randn(61, width, generator=torch.Generator().manual_seed(1), dtype=dtype)
    row = width * dtype.itemsize
    tile = 16 * walked._VECTOR[native.extension.isa()]
    wide = {"copy": 61 * row, "slices": 61 * max(tile // 2, row % tile), "chunks": 40 * row}[way]
    pool = budget(wide)
    found = walked.way_of(a, width, dtype.itemsize, pool.room)
    if way == "slices":
        # Of a small matrix chunks may move less: both ways are tried.
        slices = walked.slices_of(61, width, dtype.itemsize, pool.room)
        assert len(slices) > 1 or 61 * row <= pool.room
        key = (width, dtype.itemsize, pool.room, False)
        a.__dict__["ways"] = {key: walked.Way((), slices, 0, 0)}
    elif way == "chunks":
        chunks, _ = walked.chunks_of(a, 40, row)
        assert len(chunks) > 3
        key = (width, dtype.itemsize, pool.room)
        a.__dict__["ways"] = {(*key, whole): walked.Way(chunks, (), 0, 0) for whole in (False, True)}
    else:
        assert not found.chunks
        assert not found.slices
    plain, walk = both(a, x, pool, mean, accumulate)
    assert memory.in_file(walk)
    assert torch.equal(plain, walk)


def test_chunks_cover_the_rows_and_stay_within_the_room():
    a = random_csr(97, 83, 0.08, 3, None)
    chunks, reads = walked.chunks_of(a, 20, 4096)
    assert [begin for begin, _, _ in chunks] == [0] + [end for _, end, _ in chunks[:-1]]
    assert chunks[-1][1] == 97
    columns = [a.indices[a.indptr[b] : a.indptr[e]].unique().numel() for b, e, _ in chunks]
    assert columns == [sources for _, _, sources in chunks]
    assert max(columns) <= 20
    assert reads == 4096 * sum(columns)  # a page a row


def test_a_row_that_reads_more_than_fits_is_a_chunk_of_its_own_with_the_same_bits(budget):
    dense = torch.zeros(9, 50)
    dense[4] = torch.randn(50, generator=torch.Generator().manual_seed(2))
    dense[torch.arange(9), torch.arange(9) * 5] = 1.5
    where = dense.nonzero()
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (dense != 0).sum(1).cumsum(0)])
    a = CSR(indptr, where[:, 1].int(), dense[where[:, 0], where[:, 1]], (9, 50))
    pool = budget(10 * 8 * 4)
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(3))
    way = walked.way_of(a, 8, 4, pool.room)
    assert max(sources for _, _, sources in way.chunks) == 50
    plain, walk = both(a, x, pool, False, False)
    assert torch.equal(plain, walk)


def test_the_way_with_less_traffic_is_taken(budget):
    budget(1)
    size = walked._VECTOR[native.extension.isa()] * 16
    near = CSR(torch.arange(201), torch.arange(200).int(), None, (200, 200))
    room = 100 * size  # half of x, a tile wide
    assert walked.way_of(near, size // 4, 4, room).chunks  # each row is read once
    everyone = random_csr(200, 200, 0.9, 1, None)
    assert walked.way_of(everyone, size // 4, 4, room).slices

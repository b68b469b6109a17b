"""Memory in files: rows in pieces, budgets, a disk that is full."""

from __future__ import annotations

import errno
import gc
import os

import pytest
import torch

from weft import memory, paged
from weft.errors import UserError
from weft.memory import Pool


def test_pieces_pass_over_every_row_once_and_files_keep_their_numbers(monkeypatch):
    monkeypatch.setattr(paged, "PIECE", 9000)
    pool = Pool()
    pool.allow(1)
    x = pool.empty((700, 13), torch.float32)
    assert pool.filed == x.numel() * 4
    for piece in paged.pieces(x):
        x[piece] = torch.arange(700.0)[piece, None]
    spans = [(piece.start, piece.stop) for piece in paged.pieces(x)]
    assert len(spans) == 5
    assert [begin for begin, _ in spans] == [0] + [end for _, end in spans[:-1]]
    assert torch.equal(x, torch.arange(700.0)[:, None].expand(700, 13))


def test_pieces_of_a_sum_are_the_same_in_memory_and_in_a_file(monkeypatch):
    monkeypatch.setattr(paged, "PIECE", 1000)
    pool = Pool()
    pool.allow(1)
    filed, plain = pool.empty((100, 7), torch.float64), torch.empty(100, 7, dtype=torch.float64)
    assert list(paged.pieces(filed, always=True)) == list(paged.pieces(plain, always=True))
    assert list(paged.pieces(plain)) == [slice(0, 100)]  # else nothing is cut that need not be


def test_a_budget_is_filled_before_files_are_made_and_free_memory_of_other_sizes_goes_first():
    pool = Pool()
    pool.allow(80_000)
    a = pool.empty((5000,), torch.float32)
    b = pool.empty((5000,), torch.float32)
    c = pool.empty((5000,), torch.float32)  # half of the budget is taken
    assert (pool.bytes, pool.filed) == (40_000, 20_000)
    assert [paged.of(t) is not None for t in (a, b, c)] == [False, False, True]
    del a, b
    wide = pool.empty((10_000,), torch.float32)
    assert paged.of(wide) is None
    assert (pool.bytes, pool.filed) == (40_000, 20_000)
    del c
    again = pool.empty((5000,), torch.float32)  # the file that is free
    assert pool.filed == 20_000
    assert paged.of(again) is not None
    del wide, again
    pool.trim()
    assert (pool.blocks, pool.bytes, pool.filed) == (0, 0, 0)


def test_without_a_budget_nothing_lies_in_files():
    pool = Pool()
    x = pool.empty((5000,), torch.float32, aside=True)
    assert pool.filed == 0
    assert paged.of(x) is None


def test_a_file_has_no_name_and_ends_with_its_tensor(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pool = Pool()
    pool.allow(1)
    before = len(os.listdir("/proc/self/fd"))
    x = pool.empty((5000,), torch.float32)
    assert list(tmp_path.iterdir()) == []  # a kill leaves nothing
    assert len(os.listdir("/proc/self/fd")) > before
    del x
    pool.trim()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_said_before_anything_is_written(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    pool = Pool()
    pool.allow(1)
    with pytest.raises(UserError, match=r"no room for 20,000 bytes of rows on disk: No space left"):
        pool.empty((5000,), torch.float32)


def test_in_file_knows_a_view_of_a_block():
    pool = Pool()
    pool.allow(1)
    x = pool.empty((100, 50), torch.float32)
    assert memory.in_file(x[3:5])
    assert not memory.in_file(x[3:5].clone())


@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("width", [7, 1024])
def test_copies_are_the_rows_of_the_same_pieces(monkeypatch, width, past):
    """Also where a piece begins within a page, and where the disk has no reads past the cache."""
    monkeypatch.setattr(paged, "PIECE", 9000)
    if not past:
        monkeypatch.setattr(paged, "_opened_past_cache", lambda file: file)
    pool = Pool()
    pool.allow(1)
    x, plain = pool.empty((700, width), torch.float32), torch.randn(700, 3)
    x.copy_(torch.arange(700.0 * width).view(700, width))
    assert paged.of(x) is not None
    found = list(paged.pieces(x, plain, always=True))
    seen = []
    for piece, (rows, others) in paged.copies(x, plain):
        assert torch.equal(rows, x[piece])
        assert torch.equal(others, plain[piece])
        assert rows.data_ptr() % 64 == x[piece].data_ptr() % 64  # products have the same bits
        seen.append(piece)
    assert seen == found
    assert len(seen) > 1

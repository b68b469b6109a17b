"""Memory that lies in files: what a memory budget has no room for.

A block is a shared map of a file without a name in TMPDIR: it goes with the process, however that ends. Rows
are walked some at a time, in their order:

    ask ahead   the system reads the next piece while this one is computed with
    give back   pages behind are let go, those of the cache too: a walk holds a few pieces
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from .errors import UserError

PIECE = 1 << 25
"""Bytes of the widest tensor that are walked at a time."""

_blocks: dict[int, weakref.ref[Paged]] = {}
"""Every block by the address where it begins."""


class Paged(mmap.mmap):
    """A map of a new file that has no name; `begin` is its address.

    >>> block = Paged.make(5000)
    >>> block[:3] = b"abc"
    >>> block.let_go(0, 5000)
    >>> block[:3]
    b'abc'
    """

    begin: int
    _file: int

    @classmethod
    def make(cls, size: int) -> Paged:
        """`size` bytes, for which the disk has room: later a full disk would end the process."""
        try:
            with tempfile.TemporaryFile() as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                block = cls(file.fileno(), size)
                block._file = os.dup(file.fileno())
        except OSError as error:
            raise UserError(
                f"no room for {size:,} bytes of rows on disk: {error.strerror}. "
                "Set TMPDIR to a folder with more."
            ) from None
        block.begin = np.frombuffer(block, np.uint8).ctypes.data
        _blocks[block.begin] = weakref.ref(block)
        weakref.finalize(block, _forget, block.begin, block._file).atexit = False
        return block

    def ask(self, begin: int, end: int) -> None:
        """The bytes begin … end − 1 will be read soon: the system may begin to."""
        first = begin - begin % mmap.PAGESIZE
        if hasattr(mmap, "MADV_WILLNEED") and first < end:
            self.madvise(mmap.MADV_WILLNEED, first, end - first)

    def let_go(self, begin: int, end: int) -> None:
        """Nobody needs these bytes soon: their pages are free, once they are written."""
        first, last = begin - begin % mmap.PAGESIZE, end - end % mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED") and first < last:
            self.madvise(mmap.MADV_DONTNEED, first, last - first)
        if hasattr(os, "posix_fadvise") and first < last:
            os.posix_fadvise(self._file, first, last - first, os.POSIX_FADV_DONTNEED)


def _forget(begin: int, file: int) -> None:
    _blocks.pop(begin, None)
    os.close(file)


def of(t: Tensor) -> tuple[Paged, int] | None:
    """(the block that t lies in, where it begins there); None: it is plain memory."""
    if not _blocks or not t.is_cpu:
        return None
    at = t.data_ptr()
    for begin, found in list(_blocks.items()):
        block = found()
        if block is not None and begin <= at < begin + len(block):
            return block, at - begin
    return None


def pieces(*reads: Tensor, writes: Sequence[Tensor] = (), always: bool = False) -> Iterator[slice]:
    """Rows of these [n, …] tensors, some at a time; one piece where none of them lies in a file.

        reads    what is read: asked for ahead
        writes   what is only written
        always   the same pieces where all lie in memory: for sums over rows, whose bits follow from them

    >>> import torch
    >>> list(pieces(torch.ones(3, 2)))
    [slice(0, 3, None)]
    """
    tensors = (*reads, *writes)
    n = tensors[0].shape[0]
    found = [(t, place) for t in tensors if (place := of(t)) is not None]
    wide = max(t.stride(0) * t.element_size() if t.dim() else 1 for t in tensors)
    step = max(1, PIECE // max(1, wide))
    if n <= step or not (found or (always and tensors[0].is_cpu)):
        yield slice(0, n)
        for t, place in found:
            span = _span(t, place[1], 0, n)
            place[0].let_go(*span)
        return
    asked = [(t, place) for t, place in found if any(t is r for r in reads)]
    for t, (block, at) in asked:
        block.ask(*_span(t, at, 0, step))
    for begin in range(0, n, step):
        end = min(begin + step, n)
        for t, (block, at) in asked:
            block.ask(*_span(t, at, end, min(end + step, n)))
        yield slice(begin, end)
        for t, (block, at) in found:
            block.let_go(*_span(t, at, begin, end))


def _span(t: Tensor, at: int, begin: int, end: int) -> tuple[int, int]:
    row = t.stride(0) * t.element_size()
    return at + begin * row, at + end * row


def cut(t: Tensor, piece: slice) -> Tensor:
    """The rows of a piece; t itself where that is all of it."""
    return t if piece.stop - piece.start == t.shape[0] else t[piece]

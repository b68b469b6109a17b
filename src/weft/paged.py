"""Memory that lies in files: what a memory budget has no room for.

A block is a shared map of a file without a name in TMPDIR: it goes with the process, however that ends. Rows
are walked some at a time, in their order:

    ask ahead   the system reads the next piece while this one is computed with
    give back   pages behind are let go, those of the cache too: a walk holds a few pieces

What is only read goes past the system's cache (`copies`): threads read the next piece into our own memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
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
    _direct: int

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
                block._direct = _opened_past_cache(block._file)
        except OSError as error:
            raise UserError(
                f"no room for {size:,} bytes of rows on disk: {error.strerror}. "
                "Set TMPDIR to a folder with more."
            ) from None
        block.begin = np.frombuffer(block, np.uint8).ctypes.data
        _blocks[block.begin] = weakref.ref(block)
        weakref.finalize(block, _forget, block.begin, {block._file, block._direct}).atexit = False
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

    def fetch(self, begin: int, end: int, into: memoryview) -> None:
        """The bytes begin … end − 1, whole blocks of the disk, into memory that begins at one."""
        done = 0
        while done < end - begin:
            try:
                got = os.preadv(self._direct, [into[done : end - begin]], begin + done)
            except OSError:  # this disk does not read past the cache
                got = os.preadv(self._file, [into[done : end - begin]], begin + done)
            if not got:
                break  # the last block of a file may be a part
            done += got


def _opened_past_cache(file: int) -> int:
    """The same file, for reads past the system's cache; the file itself where there are none."""
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return file


def _forget(begin: int, files: set[int]) -> None:
    _blocks.pop(begin, None)
    for file in files:
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
    if not _blocks and (not always or n <= _step(tensors)):
        yield slice(0, n)
        return
    found = [(t, place) for t in tensors if (place := of(t)) is not None]
    step = _step(tensors)
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


def _step(tensors: Sequence[Tensor]) -> int:
    wide = max(t.stride(0) * t.element_size() if t.dim() else 1 for t in tensors)
    return max(1, PIECE // max(1, wide))


def copies(*reads: Tensor, writes: Sequence[Tensor] = ()) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """The pieces of `pieces(…, always=True)`, and the rows of `reads`; nobody writes to them meanwhile.

    Rows in a file are read past the system's cache, by threads, while the piece before them is computed with:
    no page is mapped, and the disk need not wait. Rows begin as far from a page as in the file: so products
    have the same bits.

    >>> [(piece, x.tolist()) for piece, (x,) in copies(torch.ones(2, 1))]
    [(slice(0, 2, None), [[1.0], [1.0]])]
    """
    n, step = reads[0].shape[0], _step((*reads, *writes))
    if not _blocks and n <= step:
        yield slice(0, n), reads
        return
    staged = {k: _Stage(t, *place, step) for k, t in enumerate(reads) if n > step and (place := _filed(t))}
    if not staged:
        for piece in pieces(*reads, writes=writes, always=True):
            yield piece, tuple(cut(t, piece) for t in reads)
        return
    others = [(t, place) for k, t in enumerate((*reads, *writes)) if k not in staged and (place := of(t))]
    for stage in staged.values():
        stage.ask(0, min(step, n))
    for begin in range(0, n, step):
        piece = slice(begin, min(begin + step, n))
        rows = tuple(staged[k].rows() if k in staged else t[piece] for k, t in enumerate(reads))
        if piece.stop < n:
            for stage in staged.values():
                stage.ask(piece.stop, min(piece.stop + step, n))
        yield piece, rows
        for t, (block, at) in others:
            block.let_go(*_span(t, at, piece.start, piece.stop))


def _filed(t: Tensor) -> tuple[Paged, int] | None:
    """Where t lies in a file, if its rows do one after the other."""
    return of(t) if t.dim() == 2 and t.is_contiguous() else None


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_READERS, "weft-reader")


_READERS = 2
"""Threads that read a piece together."""


class _Stage:
    """Two pieces of a tensor in memory: one is computed with, the other is on its way."""

    def __init__(self, t: Tensor, block: Paged, at: int, step: int) -> None:
        self._t, self._block, self._at = t, block, at
        self._bytes = t.stride(0) * t.element_size()
        self._memory = [mmap.mmap(-1, step * self._bytes + 2 * mmap.PAGESIZE) for _ in range(2)]
        self._turn = 0
        self._coming: tuple[list[Future[None]], int, int] = ([], 0, 0)

    def ask(self, begin: int, end: int) -> None:
        """Rows begin … end − 1 are to come next."""
        page = mmap.PAGESIZE
        first, last = _span(self._t, self._at, begin, end)
        low, high = first - first % page, last + -last % page
        share = -(-(high - low) // _READERS)
        share += -share % page
        view = memoryview(self._memory[self._turn])
        parts = [
            _readers().submit(self._block.fetch, at, min(at + share, high), view[at - low :])
            for at in range(low, high, share)
        ]
        self._coming = parts, first - low, end - begin

    def rows(self) -> Tensor:
        """Those that were asked for, once they are there."""
        parts, skip, count = self._coming
        for part in parts:
            part.result()
        flat = torch.frombuffer(self._memory[self._turn], dtype=torch.uint8)
        self._turn = 1 - self._turn
        return flat[skip : skip + count * self._bytes].view(self._t.dtype).view(count, self._t.shape[1])


def _span(t: Tensor, at: int, begin: int, end: int) -> tuple[int, int]:
    row = t.stride(0) * t.element_size()
    return at + begin * row, at + end * row


def cut(t: Tensor, piece: slice) -> Tensor:
    """The rows of a piece; t itself where that is all of it."""
    return t if piece.stop - piece.start == t.shape[0] else t[piece]

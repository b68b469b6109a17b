"""Large buffers that are used again: an epoch asks for the same ones as the last.

torch gives a large tensor's memory back to the system when it is freed, and the next one is mapped and
zeroed anew, page by page: half of an epoch's time (docs/log.md). Here the memory of a freed tensor goes
to a free list instead, and the next tensor of that size takes it. Allocation then happens in the first
epoch only, which a test counts.

Under a budget (`Pool.allow`) half of it is for these blocks; those that it has no room for lie in files
(`paged`). The other half is for what a product brings together from such files.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .paged import Paged, of

_LARGE = 1 << 20
"""Below this many bytes malloc does well by itself."""
_SLACK = 1.125
"""A free block serves where it is at most this much larger than what is asked."""


@dataclass
class Pool:
    """Blocks of memory, handed out as tensors and taken back when the last reference to one dies.

    >>> pool = Pool()
    >>> a = pool.empty((1024, 1024), torch.float32)
    >>> del a
    >>> b = pool.empty((1024, 1020), torch.float32)  # nearly the same size: the same block
    >>> pool.blocks, pool.bytes
    (1, 4194304)
    """

    _free: list[mmap.mmap] = field(default_factory=list)
    # Reentrant: the collector of cycles may run inside `_take` and free a tensor, which gives its block back.
    _lock: Any = field(default_factory=threading.RLock)
    blocks: int = 0
    """Blocks ever asked of the system and not given back."""
    bytes: int = 0
    """Their size, without those in files."""
    filed: int = 0
    """Bytes of blocks in files."""
    limit: int = 0
    """Bytes that all budgets allow; 0: there is none."""
    shares: int = 0
    """How many budgets: one a rank, and ranks may be threads."""

    def allow(self, size: int) -> None:
        """A rank may use `size` bytes; what does not fit lies in files. Several budgets add up."""
        with self._lock:
            self.limit, self.shares = self.limit + size, self.shares + 1

    def disallow(self, size: int) -> None:
        """Take one `allow` back."""
        with self._lock:
            self.limit, self.shares = self.limit - size, self.shares - 1

    @property
    def room(self) -> int:
        """Bytes that a product may bring together from files; 0: there is no budget."""
        return self.limit // 2 // max(1, self.shares)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, aside: bool = False) -> Tensor:
        """An uninitialised CPU tensor; its memory returns to the pool by itself. `aside`: in a file."""
        count = int(np.prod(shape, dtype=np.int64))
        size = count * dtype.itemsize
        block = self._take(size, aside and self.limit > 0)
        lease = np.frombuffer(block, dtype=np.uint8, count=size)
        # The tensor's storage keeps `lease` alive; when the storage dies, so does the lease.
        weakref.finalize(lease, self._give_back, block).atexit = False
        # Not a view of it: autograd forbids writing into a view that a custom function returns. Nor through
        # `untyped_storage()`, whose object would stay and count as a second owner: autograd adds gradients
        # up in place only where it is the last one, and else into new memory.
        shaped = torch.from_numpy(lease).view(dtype).view(shape)
        return torch.empty(0, dtype=dtype, device="cpu").set_(shaped)  # type: ignore[call-overload]

    def _take(self, size: int, aside: bool) -> mmap.mmap:
        with self._lock:
            filed = aside or not self._has_room(size)
            fits = [
                b for b in self._free if size <= len(b) <= size * _SLACK and isinstance(b, Paged) == filed
            ]
            if fits:
                block = min(fits, key=len)
                self._free.remove(block)
                return block
            self.blocks += 1
            self.bytes += 0 if filed else size
            self.filed += size if filed else 0
        if filed:
            return Paged.make(size)
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # random reads of rows then miss the TLB less
            block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _has_room(self, size: int) -> bool:
        """Whether memory has a block of this size, perhaps once free ones of other sizes are given back."""
        if not self.limit or self.bytes + size <= self.limit // 2:
            return True
        plain = [b for b in self._free if not isinstance(b, Paged)]
        if any(size <= len(b) <= size * _SLACK for b in plain):
            return True
        if self.bytes - sum(map(len, plain)) + size > self.limit // 2:
            return False
        self._drop(plain)
        return True

    def _give_back(self, block: mmap.mmap) -> None:
        with self._lock:
            self._free.append(block)

    def trim(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self._drop(list(self._free))

    def _drop(self, blocks: list[mmap.mmap]) -> None:
        for block in blocks:
            self._free.remove(block)
            self.blocks -= 1
            if isinstance(block, Paged):
                self.filed -= len(block)
            else:
                self.bytes -= len(block)


pool = Pool()
"""The process's own."""


def empty(*shape: int, like: Tensor, dtype: torch.dtype | None = None, aside: bool = False) -> Tensor:
    """`torch.empty` with `like`'s device and type; large CPU tensors come from the pool.

    `aside`: in a file, where there is a budget.
    """
    dtype = dtype or like.dtype
    if like.device.type != "cpu" or math.prod(shape) * dtype.itemsize < _LARGE:
        return torch.empty(shape, dtype=dtype, device=like.device)
    return pool.empty(shape, dtype, aside)


def in_file(t: Tensor) -> bool:
    """Whether t lies in a file."""
    return of(t) is not None


def trim() -> None:
    """Give free memory back to the system, the pool's and malloc's: after the work of setting up."""
    pool.trim()
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if release is not None:
        release(0)

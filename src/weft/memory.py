"""Large buffers that are used again: an epoch asks for the same ones as the last.

torch gives a large tensor's memory back to the system when it is freed, and the next one is mapped and
zeroed anew, page by page: half of an epoch's time (docs/log.md). Here the memory of a freed tensor goes
to a free list instead, and the next tensor of that size takes it. Allocation then happens in the first
epoch only, which a test counts.
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
    """Their size."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised CPU tensor; its memory returns to the pool by itself."""
        count = int(np.prod(shape, dtype=np.int64))
        size = count * dtype.itemsize
        block = self._take(size)
        lease = np.frombuffer(block, dtype=np.uint8, count=size)
        # The tensor's storage keeps `lease` alive; when the storage dies, so does the lease.
        weakref.finalize(lease, self._give_back, block).atexit = False
        # Not a view of it: autograd forbids writing into a view that a custom function returns. Nor through
        # `untyped_storage()`, whose object would stay and count as a second owner: autograd adds gradients
        # up in place only where it is the last one, and else into new memory.
        shaped = torch.from_numpy(lease).view(dtype).view(shape)
        return torch.empty(0, dtype=dtype, device="cpu").set_(shaped)  # type: ignore[call-overload]

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            fits = [b for b in self._free if size <= len(b) <= size * _SLACK]
            if fits:
                block = min(fits, key=len)
                self._free.remove(block)
                return block
            self.blocks += 1
            self.bytes += size
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # random reads of rows then miss the TLB less
            block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _give_back(self, block: mmap.mmap) -> None:
        with self._lock:
            self._free.append(block)

    def trim(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self.blocks -= len(self._free)
            self.bytes -= sum(map(len, self._free))
            self._free.clear()


pool = Pool()
"""The process's own."""


def empty(*shape: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.empty` with `like`'s device and type; large CPU tensors come from the pool."""
    dtype = dtype or like.dtype
    if like.device.type != "cpu" or math.prod(shape) * dtype.itemsize < _LARGE:
        return torch.empty(shape, dtype=dtype, device=like.device)
    return pool.empty(shape, dtype)


def trim() -> None:
    """Give free memory back to the system, the pool's and malloc's: after the work of setting up."""
    pool.trim()
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if release is not None:
        release(0)

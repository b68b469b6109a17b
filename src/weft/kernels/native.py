"""The door to the C++ kernels: which tensors they take, and how their buffers are handed over.

A kernel takes contiguous CPU tensors of float32 or float64 with int32 or int64 indices. Everything else
(CUDA, other types, a build without the extension) goes to the torch kernels; `meta` tensors to `dry.py`.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import logging
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..errors import unknown

log = logging.getLogger("weft")


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("weft._native")
    except ImportError as error:
        log.warning(
            "weft runs without its C++ kernels, many times slower: %s. Reinstall with a C++ compiler.", error
        )
        return None


extension: ModuleType | None = _load()

_SUFFIX = {torch.float32: "_f32", torch.float64: "_f64", torch.int32: "_i32", torch.int64: "_i64"}
_backend: contextvars.ContextVar[str] = contextvars.ContextVar("weft_backend", default="auto")


@contextlib.contextmanager
def use(backend: str) -> Iterator[None]:
    """Choose the kernels inside a `with` block: "auto", "native" or "torch".

    >>> with use("torch"):
    ...     served(torch.ones(2, 2))
    False
    """
    if backend not in ("auto", "native", "torch"):
        raise unknown("kernel backend", backend, ["auto", "native", "torch"])
    if backend == "native" and extension is None:
        raise RuntimeError("the C++ kernels are not built. Reinstall weft with a C++ compiler.")
    token = _backend.set(backend)
    try:
        yield
    finally:
        _backend.reset(token)


def served(*tensors: Tensor | None) -> bool:
    """Whether the C++ kernels take these tensors."""
    if extension is None or _backend.get() == "torch":
        return False
    for t in tensors:  # noqa: SIM110  (small batches come through here thousands of times a second)
        if t is not None and not (t.is_cpu and t.dtype in _SUFFIX):
            return False
    return True


def kernel(name: str, *typed: Tensor) -> Callable[..., Any]:
    """The C++ function for these tensors' types, such as `spmm_f32_i32`."""
    for t in typed:
        name += _SUFFIX[t.dtype]
    return getattr(extension, name)


def address(t: Tensor | None) -> int:
    """Where the tensor's elements start; 0 for None. The caller keeps the tensor alive."""
    if t is None:
        return 0
    if not t.is_contiguous():
        raise ValueError(f"a kernel needs a contiguous tensor, this one has strides {t.stride()}")
    pointer = t.data_ptr()
    if not pointer and t.numel():  # else C++ takes it for None, or follows it
        raise ValueError(f"a {t.device.type} tensor {tuple(t.shape)} among real ones has no numbers to read")
    return pointer


# Below this many multiply-adds a second thread costs more than it gives.
_SMALL = 1 << 15


_limit: contextvars.ContextVar[int] = contextvars.ContextVar("weft_threads", default=0)


def limit(count: int) -> None:
    """At most so many threads a kernel in this context (a thread beside the main one); 0: torch's number."""
    _limit.set(count)


def threads(work: int) -> int:
    """How many threads to use for `work` multiply-adds: torch's own number, or 1 for little work."""
    return 1 if work < _SMALL else _limit.get() or torch.get_num_threads()

"""Whether code names the device of every tensor that it makes; a GPU is not needed to see it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import weft

ROOT = Path(weft.__file__).parent
TORCH = Path(torch.__file__).parent
HERE = Path(__file__)
FACTORIES = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.arange, torch.tensor, torch.as_tensor, torch.rand,
    torch.randn, torch.randint, torch.randperm, torch.eye, torch.linspace,
}  # fmt: skip


_here = threading.local()


class NamedDevices(TorchFunctionMode):
    """Inside, a factory without `device=` is an error where it is called by a file of these rooms of weft.

        with NamedDevices("parallel", "nn"):
            model(graph, x)
        AssertionError: src/weft/nn/layers.py:31 calls torch.zeros without device=

    Torch's own frames count as their caller's: `nn.Linear(3, 4)` is a tensor without a device too. What a
    test makes itself is not looked at. The mode is the thread's: ranks in threads enter it each.
    """

    def __init__(self, *rooms: str) -> None:
        super().__init__()
        self.rooms = rooms

    def __enter__(self) -> NamedDevices:
        _here.open = (*getattr(_here, "open", ()), self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _here.open = _here.open[:-1]
        super().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES and not _named(func, args, kwargs):
            path, line = _caller()
            room = path.relative_to(ROOT).parts[0].removesuffix(".py") if path.is_relative_to(ROOT) else None
            assert room not in self.rooms, (
                f"src/weft/{path.relative_to(ROOT)}:{line} calls torch.{func.__name__} without device="
            )
        return func(*args, **kwargs)


def _named(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func is torch.as_tensor and isinstance(args[0] if args else kwargs["data"], torch.Tensor):
        return True
    return kwargs.get("device") is not None or kwargs.get("out") is not None


def _caller() -> tuple[Path, int]:
    """File and line of the first frame that is neither this file's nor torch's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = Path(frame.f_code.co_filename)
        # The optimisers keep their step count on the CPU, on purpose.
        if path != Path(__file__) and (
            not path.is_relative_to(TORCH) or path.is_relative_to(TORCH / "optim")
        ):
            break
        frame = frame.f_back
    return Path(frame.f_code.co_filename), frame.f_lineno


def _with_modes(run: Callable[..., Any]) -> Callable[..., Any]:
    """Torch leaves a mode inside what the mode is asked about, so inside `backward` too: enter it again."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for mode in getattr(_here, "open", ()):
                stack.enter_context(mode)
            return run(*args, **kwargs)

    return call


torch.autograd._engine_run_backward = _with_modes(torch.autograd._engine_run_backward)

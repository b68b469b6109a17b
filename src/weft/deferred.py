"""torch's compiler, loaded by whoever uses it and not by every rank.

torch's optimisers import `torch._dynamo` in their first step: more than a second of every rank's start, for
a call that does nothing outside of a compiler. A stand-in answers that call. Anything else that is asked of
it, `torch.compile` among them, loads the real module and takes the stand-in away.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from typing import Any

import torch

_NAME = "torch._dynamo"


def defer_compiler() -> None:
    """Put the stand-in where `import torch._dynamo` looks; nothing where the module is there already.

    >>> defer_compiler()
    >>> import torch._dynamo
    >>> torch._dynamo.graph_break()
    """
    if _NAME in sys.modules:
        return
    spec = importlib.util.find_spec(_NAME)
    if spec is None:
        return
    stand_in = _StandIn(spec.origin)
    sys.modules[_NAME] = stand_in
    torch._dynamo = stand_in


class _StandIn(types.ModuleType):
    """`torch._dynamo` as far as an optimiser's step reads it."""

    def __init__(self, origin: str | None):
        super().__init__(_NAME)
        # Whoever looks through all modules for a file (inspect) must not load this one by that.
        self.__file__ = origin
        self._told: list[Any] = []
        self._lock = threading.RLock()

    def graph_break(self, msg: str = "") -> None:
        """Nothing is compiled."""

    def disable(self, fn: Any = None, recursive: bool = True, **more: Any) -> Any:
        """What is not to be compiled is itself, as nothing is; torch keeps the answer beside the function."""
        if fn is None:
            return lambda given: self.disable(given, recursive, **more)
        self._told.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def _load(self) -> types.ModuleType:
        with self._lock:
            if sys.modules.get(_NAME) is self:
                del sys.modules[_NAME], torch._dynamo
                real = importlib.import_module(_NAME)
                torch._dynamo = real
                for fn in self._told:  # they ask again, and the compiler answers
                    if getattr(fn, "__dynamo_disable", None) is fn:
                        delattr(fn, "__dynamo_disable")  # by name: a class would mangle it
                self._told.clear()
            return sys.modules[_NAME]

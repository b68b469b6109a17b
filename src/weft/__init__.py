"""weft trains graph neural networks on graphs too big or too slow for one process.

The public names are loaded when they are first used, so that `import weft` does not wait for torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

# torch maps and zeroes a large tensor's memory anew each time, page by page. In huge pages that takes a
# quarter of the time (docs/log.md). It reads this when it first allocates; a user's own word stands.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from . import cli as cli
    from . import comm as comm
    from . import graph as graph
    from . import kernels as kernels
    from . import minibatch as minibatch
    from . import nn as nn
    from . import parallel as parallel
    from . import partition as partition
    from . import planner as planner
    from . import pyg as pyg
    from . import report as report
    from . import train as train
    from .comm import Communicator as Communicator
    from .comm import Ledger as Ledger
    from .comm import connect as connect
    from .graph import Graph as Graph
    from .graph import load as load
    from .parallel import Grid as Grid
    from .parallel import Operator as Operator
    from .pyg import Job as Job
    from .pyg import accelerate as accelerate
    from .pyg import explain as explain
    from .pyg import join as join
    from .pyg import ranks as ranks
    from .train import RunConfig as RunConfig
    from .train import Trainer as Trainer

__version__ = "0.1.0"

_HOMES = {
    "Communicator": "comm",
    "Operator": "parallel",
    "Graph": "graph",
    "Grid": "parallel",
    "Job": "pyg",
    "Ledger": "comm",
    "RunConfig": "train",
    "Trainer": "train",
    "accelerate": "pyg",
    "connect": "comm",
    "explain": "pyg",
    "join": "pyg",
    "load": "graph",
    "ranks": "pyg",
}

__all__ = [
    "Communicator",
    "Graph",
    "Grid",
    "Job",
    "Ledger",
    "Operator",
    "RunConfig",
    "Trainer",
    "accelerate",
    "connect",
    "explain",
    "join",
    "load",
    "ranks",
]

_ROOMS = (
    "cli",
    "comm",
    "graph",
    "kernels",
    "minibatch",
    "nn",
    "parallel",
    "partition",
    "planner",
    "pyg",
    "report",
    "train",
)
"""Packages that are there after `import weft` alone: `weft.graph.from_pyg`."""


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"weft.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"weft.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]

"""Run a function on real or virtual ranks and collect what it returns: the launcher that Python calls.

On `mpi` and `torch` the ranks are processes. The function is found again in them by file and name;
arguments and results travel as files in a private directory, written by `torch.save` and read with
`weights_only=True`, so that only tensors and plain data pass. Starting a job costs seconds: put many cases
into one function.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.errors import UserError, unknown


class RankFailed(RuntimeError):
    """A rank failed with an exception that is not one of Python's own or weft's; the text names it."""


def run_ranks(
    fn: Callable[..., Any] | str, ranks: int, engine: str = "threads", *args: Any, stall_seconds: float = 60,
    threads: int | None = None,
) -> list[Any]:  # fmt: skip
    """`fn(comm, *args)` on `ranks` ranks of `engine`; the results by rank.

    `threads`: of each rank that is a process; by default the machine's cores are divided.

    The first failure is raised here, with its type where Python or weft define it, the rank in
    `error.rank`, and the rank and its traceback in a note. A rank that ends without a result is a failure,
    whatever its status. On `mpi` and `torch`, `fn` is a function at the top of a module, or the text
    "module:function".

    >>> run_ranks(lambda comm, x: comm.rank + x, 3, "threads", 10)
    [10, 11, 12]
    """
    if engine == "threads":
        from weft.comm.threads import run_threads

        return run_threads(_resolve(fn) if isinstance(fn, str) else fn, ranks, *args)
    if engine not in ("mpi", "torch"):
        raise unknown("engine", engine, ("threads", "mpi", "torch"))
    import torch

    from weft.comm.launch import run_job

    with tempfile.TemporaryDirectory(prefix="weft-run-") as name:
        folder = Path(name)
        torch.save(list(args), folder / "args")
        # A job of its own: the ranks must not believe that they are part of one we may be in.
        outcome = run_job(
            ["-m", "weft.comm.run", name, *_address(fn)],
            ranks,
            engine,
            threads,
            stall_seconds=stall_seconds,
            environment={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        if outcome.failures:
            _raise(outcome.failures[0], ranks, engine)
        results = []
        for rank in range(ranks):
            file = folder / f"result.{rank}"
            if not file.exists():
                raise RankFailed(f"rank {rank} of {ranks} ({engine}) ended quietly, without a result")
            results.append(torch.load(file, weights_only=True)[0])
        return results


def _raise(failure: Any, ranks: int, engine: str) -> None:
    kind = UserError if failure.kind == "user" else getattr(builtins, failure.type, None)
    where = f"rank {failure.rank} of {ranks} (engine {engine})"
    if isinstance(kind, type) and issubclass(kind, Exception):
        error: Exception = kind(failure.line if failure.kind == "user" else failure.text)
        error.add_note(f"raised on {where}")
    else:
        error = RankFailed(failure.line if failure.rank is None else f"{where}: {failure.line}")
    if failure.trace:
        error.add_note(failure.trace)
    error.rank = failure.rank  # type: ignore[attr-defined]
    raise error


def _address(fn: Callable[..., Any] | str) -> list[str]:
    """Where a rank finds `fn`: a file or a module, and a name."""
    if isinstance(fn, str):
        module, _, name = fn.partition(":")
        return ["module", module, name]
    name = fn.__qualname__
    if "<" in name:
        raise UserError(f"run_ranks: {name} is inside another function. Move it to the top of its module.")
    if fn.__module__.startswith("weft."):
        return ["module", fn.__module__, name]
    return ["file", str(Path(inspect.getfile(fn)).resolve()), name]


def _resolve(address: str) -> Callable[..., Any]:
    _, module, name = _address(address)
    return _find("module", module, name)


def _find(kind: str, place: str, name: str) -> Callable[..., Any]:
    if kind == "module":
        found: Any = importlib.import_module(place)
    else:
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None:
            raise UserError(f"run_ranks: {place} is not a Python file. Put the function into one.")
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        sys.path.insert(0, str(Path(place).parent))
        spec.loader.exec_module(found)
    for part in name.split("."):
        found = getattr(found, part)
    result: Callable[..., Any] = found
    return result


def _main(folder: str, kind: str, place: str, name: str) -> None:
    import torch

    from weft.comm.launch import connect

    comm = connect()
    args = torch.load(Path(folder) / "args", weights_only=True)
    result = _find(kind, place, name)(comm, *args)
    partial = Path(folder) / f"partial.{comm.rank}"
    torch.save([result], partial)
    partial.rename(Path(folder) / f"result.{comm.rank}")


if __name__ == "__main__":
    _main(*sys.argv[1:])

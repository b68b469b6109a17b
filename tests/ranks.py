"""Real ranks that are started once and called by many tests: starting them takes longer than most tests do.

A call is a file with a function's address and its arguments; each rank of the call answers with a file.
Between calls ranks look for the next one: they do not wait in a message. A call on k ranks runs on a
communicator of the first k of four, or of eight. After a call that failed, or came to no end, all ranks are
ended, and the next call starts others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from weft.comm import Communicator, connect
from weft.comm.run import _address, _find

SIZES = (4, 8)
_LOOK, _SELDOM = 0.005, 0.05
"""Seconds between two looks: of who waits for an answer, and of ranks that have nothing to do."""


class Ranks:
    """`ranks(fn, 3, x)` is `run_ranks(fn, 3, "mpi", x)` on ranks that are there already."""

    def __init__(self) -> None:
        self._groups = {size: _Group(size) for size in SIZES}

    def __call__(self, fn: Callable[..., Any], ranks: int, *args: Any, seconds: float = 240) -> list[Any]:
        return self._groups[next(size for size in SIZES if size >= ranks)](fn, ranks, *args, seconds=seconds)

    def end(self) -> None:
        for group in self._groups.values():
            group.end()


class _Group:
    """So many ranks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._job: subprocess.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()
        self._calls = 0

    def __call__(self, fn: Callable[..., Any], ranks: int, *args: Any, seconds: float = 240) -> list[Any]:
        if self._job is None or self._job.poll() is not None:
            self._start()
        number, self._calls = self._calls, self._calls + 1
        _write(self._folder / f"call.{number}", [*_address(fn), ranks, list(args)])
        results, deadline = [], time.monotonic() + seconds
        for rank in range(ranks):
            file = self._folder / f"answer.{number}.{rank}"
            while not file.exists():
                self._check(number, ranks, deadline)
                time.sleep(_LOOK)
            results.append(torch.load(file, weights_only=True)[0])
        return results

    def _check(self, number: int, ranks: int, deadline: float) -> None:
        assert self._job is not None
        failed = [self._folder / f"failed.{number}.{rank}" for rank in range(ranks)]
        told = [file.read_text() for file in failed if file.exists()]
        gone, late = self._job.poll() is not None, time.monotonic() > deadline
        if told or gone or late:
            said = "\n".join([*told, (self._folder / "log").read_text()[-4000:]])
            self.end()
            raise AssertionError(
                f"the ranks {'failed' if told else 'ended' if gone else 'are late'}:\n{said}"
            )

    def _start(self) -> None:
        self.end()
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-ranks-")))
        self._calls = 0
        code = (
            "import sys; from weft.comm.launch import launch; "
            f"sys.exit(launch([{__file__!r}, {str(self._folder)!r}], {self._size}, 'mpi', 1, 60))"
        )
        log = self._stack.enter_context((self._folder / "log").open("wb"))
        place = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._job = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log, env=place)

    def end(self) -> None:
        """Those who look for work find none and end; those in a message are ended."""
        if self._job is not None:
            (self._folder / "end").touch()
            try:
                self._job.wait(20)
            except subprocess.TimeoutExpired:
                self._job.terminate()
                self._job.wait(60)
        self._job = None
        self._stack.close()


def _write(path: Path, value: object) -> None:
    """Whole, or not there."""
    part = path.with_name(f"part.{path.name}")
    torch.save(value, part)
    part.rename(path)


def _serve(folder: Path, comm: Communicator) -> None:
    """What each rank does."""
    some = {k: comm.split(0 if comm.rank < k else 1, comm.rank) for k in range(1, comm.size + 1)}
    number = 0
    while not (folder / "end").exists():
        call = folder / f"call.{number}"
        if not call.exists():
            time.sleep(_SELDOM)
            continue
        kind, place, name, ranks, args = torch.load(call, weights_only=True)
        if comm.rank < ranks:
            torch.manual_seed(0)
            try:
                result = _find(kind, place, name)(some[ranks], *args)
                _write(folder / f"answer.{number}.{comm.rank}", [result])
            except Exception:
                part = folder / f"part.failed.{comm.rank}"
                part.write_text(f"rank {comm.rank} of {ranks}: {traceback.format_exc()}")
                part.rename(folder / f"failed.{number}.{comm.rank}")
        number += 1


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), connect())

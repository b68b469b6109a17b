"""Ranks that convert together: steps that all of them end, and what they share through the scratch folder.

    step      each rank works by itself, then all tell each other what came of it; a mistake of one is all's
    runs      written by the rank that read the arcs, read by any: facts travel as messages, fences as files
    bits      the ids that occur: each rank's own in a file, put together by all

A rank is anything with `rank`, `size` and `all_gather_json`: a communicator, or `Alone`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.errors import UserError
from weft.graph.stream import runs as sorted_runs
from weft.graph.stream.runs import Run

_PIECE = 1 << 20
_OF_ALL = "_weft_of_all"
"""The mark of a mistake that all ranks raise."""


class Team(Protocol):
    """The ranks of a conversion, of which this is one."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather_json(self, value: Any) -> list[Any]:
        """Plain data of every rank."""


class Alone:
    """One process.

    >>> Alone().all_gather_json("x")
    ['x']
    """

    rank = 0
    size = 1

    def all_gather_json(self, value: Any) -> list[Any]:
        return [value]


class Stopped(Exception):
    """Another rank made a mistake, and will say which."""


def together(team: Team, work: Callable[[], Any], stop: Callable[[], None] = lambda: None) -> list[Any]:
    """What `work` gives on every rank, plain data; where one makes a mistake, all raise the first.

    `stop` is called at once on a rank that fails. No rank waits within `work`.

    >>> together(Alone(), lambda: 7)
    [7]
    """
    told: dict[str, Any] = {"kind": "", "value": None}
    mistake: Exception | None = None
    try:
        told["value"] = work()
    except Stopped:
        told["kind"] = "stopped"
    except UserError as error:
        told, mistake = {"kind": "user", "text": str(error)}, error
    except OSError as error:
        text = error.strerror or str(error)
        told, mistake = {"kind": "os", "number": error.errno or 0, "text": text}, error
    if mistake is not None:
        stop()
    every = team.all_gather_json(told)
    for one in every:
        if one["kind"] in ("user", "os"):
            if team.size == 1 and mistake is not None:
                raise mistake
            failed: Exception
            failed = UserError(one["text"]) if one["kind"] == "user" else OSError(one["number"], one["text"])
            failed.__dict__[_OF_ALL] = True
            raise failed
    return [one["value"] for one in every]


def cleared(team: Team, error: BaseException, clear: Callable[[], None]) -> None:
    """Clear up after a mistake, on every rank. Of one that all raise, nobody leaves before all have.

    Whoever starts ranks ends the others once one has left: what rank 0 takes away would stay.
    """
    clear()
    if team.size > 1 and error.__dict__.get(_OF_ALL):
        team.all_gather_json(None)


def runs_of_all(team: Team, folder: Path, stage: str, own: Sequence[Run]) -> list[Run]:
    """The runs of every rank, in the input's order."""
    if team.size == 1:
        return sorted(own, key=lambda run: run.order)

    def tell() -> list[dict[str, Any]]:
        with open(folder / f"fences-{stage}-{team.rank}", "wb") as file:
            for run in own:
                file.write(run.fences.tobytes())
        return [run.facts() for run in own]

    told = together(team, tell)
    found = list(own)
    for rank, listed in enumerate(told):
        if rank != team.rank and listed:
            raw = (folder / f"fences-{stage}-{rank}").read_bytes()
            at = 0
            for facts in listed:
                run = Run.told(folder, facts)
                count = len(range(0, run.count, sorted_runs.FENCE))
                run.fences = np.frombuffer(raw, run.kind, count, at)
                at += run.fences.nbytes
                found.append(run)
    return sorted(found, key=lambda run: run.order)


def either(team: Team, folder: Path, bits: np.ndarray) -> None:
    """Bits [words] uint64 that any rank has set, set on all."""
    if team.size == 1:
        return

    def tell() -> int:
        (used,) = np.nonzero(bits)
        words = int(used[-1]) + 1 if len(used) else 0
        bits[:words].tofile(folder / f"bits-{team.rank}")
        return words

    for rank, words in enumerate(together(team, tell)):
        if rank != team.rank:
            for first in range(0, words, _PIECE):
                last = min(words, first + _PIECE)
                part = np.empty(last - first, np.uint64)
                sorted_runs.read_into(folder / f"bits-{rank}", 8 * first, part)
                bits[first:last] |= part


def cuts(team: Team, runs: Sequence[Run], rows: bool = False) -> list[Any]:
    """Keys at which the ranks' shares of all runs begin, about as many entries each; the last has no end.

    With `rows` no row is cut: keys are (row, column).

    >>> run = Run(Path("-"), 4 * 4096, (0,), fences=np.array([1, 2 << 32, 5 << 32 | 7, 9 << 32], np.uint64))
    >>> two = type("Two", (Alone,), {"size": 2})()
    >>> [key >> 32 for key in cuts(two, [run], rows=True)[:2]], cuts(two, [run])[2]
    ([0, 5], None)
    """
    least: Any = b"" if runs and np.dtype(runs[0].kind).kind == "S" else 0
    fences = np.sort(np.concatenate([run.fences for run in runs])) if runs else np.zeros(0, np.uint64)
    begins = [least]
    for rank in range(1, team.size):
        key = fences[len(fences) * rank // team.size].item() if len(fences) else least
        begins.append(key >> 32 << 32 if rows else key)
    return [*begins, None]

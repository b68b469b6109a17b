"""What a conversion has done so far, so that the same command goes on where it was ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.errors import UserError
from weft.graph.stream.runs import Run
from weft.graph.stream.team import Team, together
from weft.graph.writer import is_neighbour

_NAME = "journal"
_UNFINISHED = "unfinished"


class Journal:
    """Lines of JSON in a folder of scratch files: what is converted and how, then each piece that is done.

    Each rank has a file of its own in the folder, which all of them see; what was done is in all of these, so
    that other ranks, more or fewer, may go on. A folder of another conversion, or of none that is known, is
    emptied.

    what   tells this conversion from others
    how    sizes of pieces; those that a conversion began with are kept by who goes on, where they fit
    out    what is made; what an earlier start, killed, left of it half written is taken away
    """

    def __init__(
        self, folder: Path, what: dict[str, Any], how: dict[str, int], team: Team, out: Path,
    ) -> None:  # fmt: skip
        self.folder, self._out = folder, out
        self._team = team
        self._lock: Any = None
        self.done: list[dict[str, Any]] = []
        try:
            self.how = together(team, lambda: self._begin(what, how) if team.rank == 0 else None)[0]
            together(team, self._hear)
            together(team, self._hold)
        except BaseException:  # another rank was lost
            self.close()
            raise

    def _begin(self, what: dict[str, Any], how: dict[str, int]) -> dict[str, int]:
        """Rank 0: whether there is something to go on with; the sizes to go on with."""
        head = self._read(self.folder / _NAME)[:1]
        self._hold()
        self._sweep()
        if head and head[0].get("what") == what and _fits(head[0].get("how"), how):
            for flag in ("stop", "wide"):
                (self.folder / flag).unlink(missing_ok=True)
            kept: dict[str, int] = head[0]["how"]
            return kept
        self.remove()
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            raise UserError(f"{self.folder} is in the way. Remove it.") from None
        except OSError as error:
            raise UserError(f"cannot make {self.folder}: {error.strerror}. Give another --scratch.") from None
        self._append({"what": what, "how": how})
        return how

    def writes(self, scratch: Path) -> None:
        """Note the file that the store is written to: who goes on takes it away where nobody else does."""
        (self.folder / _UNFINISHED).write_text(scratch.name, encoding="utf-8")

    def _sweep(self) -> None:
        """The file that a start wrote to which was killed."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            name = (self.folder / _UNFINISHED).read_text(encoding="utf-8")
            if is_neighbour(name, self._out):
                (self._out.parent / name).unlink()

    def _hear(self) -> None:
        """What all ranks of an earlier start have done."""
        if not (self.folder / _NAME).is_file():
            raise UserError(
                f"rank {self._team.rank} cannot see {self.folder}. Give a --scratch that all ranks share."
            )
        for path in sorted(self.folder.glob(f"{_NAME}*")):
            told = [entry for entry in self._read(path) if "what" not in entry]
            self.done += [entry for entry in told if self._is_there(entry)]

    def _is_there(self, entry: dict[str, Any]) -> bool:
        """Whether the files of an entry are: a later stage takes them away when it has used them."""
        for facts in _flat(entry.get("runs", [])):
            run = Run.told(self.folder, facts)
            if not run.path.is_file() or run.path.stat().st_size != run.bytes:
                return False
        return True

    @property
    def _own(self) -> Path:
        return self.folder / (f"{_NAME}.{self._team.rank}" if self._team.rank else _NAME)

    def _hold(self) -> None:
        """Keep others out for as long as this is open."""
        if self._lock is not None or not self.folder.is_dir():
            return
        if not self._own.is_file():
            if self._team.rank == 0:
                return
            self._own.touch()
        self._lock = open(self._own, "rb")  # noqa: SIM115 - held for as long as the journal
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another weft is at work in {self.folder}. Wait for it, or end it.") from None

    def add(self, entry: dict[str, Any]) -> None:
        """Note a piece that is done: its files are whole."""
        self.done.append(entry)
        self._append(entry)

    def own(self, stage: str) -> list[dict[str, Any]]:
        """This rank's share of what an earlier start did in a stage."""
        found = [entry for entry in self.done if entry.get("stage") == stage]
        return found[self._team.rank :: self._team.size]

    def flag(self, name: str) -> None:
        """Tell the other ranks something while they work."""
        with contextlib.suppress(OSError):
            (self.folder / name).touch()

    def flagged(self, name: str) -> bool:
        """Whether a rank did."""
        return self._team.size > 1 and (self.folder / name).exists()

    def remove(self) -> None:
        """Take the folder away, whatever is in it."""
        self.close()
        if self._team.rank == 0 and ((self.folder / _NAME).is_file() or not any(self.folder.glob("*"))):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.folder)

    def close(self) -> None:
        """Leave the folder to the next."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _append(self, entry: dict[str, Any]) -> None:
        with open(self._own, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """All entries but one that was cut off."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return []
        entries = []
        for line in lines[:-1]:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        return entries


def _flat(facts: Any) -> Iterator[dict[str, Any]]:
    if isinstance(facts, dict):
        yield facts
    else:
        for some in facts:
            yield from _flat(some)


def _fits(had: Any, now: dict[str, int]) -> bool:
    """Whether pieces of sizes that were planned before suit the memory of now.

    The plan looks at what the process holds, which differs a little from start to start.

    >>> _fits({"bits": 640}, {"bits": 600}), _fits({"bits": 6400}, {"bits": 600})
    (True, False)
    """
    return isinstance(had, dict) and had.keys() == now.keys() and all(had[k] <= 1.25 * now[k] for k in now)

"""What a conversion has done so far, so that the same command goes on where it was ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from weft.errors import UserError

_NAME = "journal"


class Journal:
    """Lines of JSON in a folder of scratch files: what is converted and how, then each piece that is done.

    A folder of another conversion, or of none that is known, is emptied.
    """

    def __init__(self, folder: Path, what: dict[str, Any]) -> None:
        self.folder = folder
        self._lock: Any = None
        self.done: list[dict[str, Any]] = []
        told = self._read()
        if told and told[0] == what:
            self.done = told[1:]
        else:
            self.remove()
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                raise UserError(f"{folder} is in the way. Remove it.") from None
            except OSError as error:
                raise UserError(f"cannot make {folder}: {error.strerror}. Give another --scratch.") from None
            self._append(what)
        self._lock = open(folder / _NAME, "rb")  # noqa: SIM115 - held for as long as the journal
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another weft is at work in {folder}. Wait for it, or end it.") from None

    def add(self, entry: dict[str, Any]) -> None:
        """Note a piece that is done: its files are whole."""
        self.done.append(entry)
        self._append(entry)

    def remove(self) -> None:
        """Take the folder away, whatever is in it."""
        self.close()
        if (self.folder / _NAME).is_file() or not any(self.folder.glob("*")):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.folder)

    def close(self) -> None:
        """Leave the folder to the next."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _append(self, entry: dict[str, Any]) -> None:
        with open(self.folder / _NAME, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[dict[str, Any]]:
        """All entries but one that was cut off."""
        try:
            lines = (self.folder / _NAME).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return []
        entries = []
        for line in lines[:-1]:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        return entries

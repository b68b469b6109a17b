"""The arrays of an npz archive, read from their fronts to their backs, some entries at a time."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.readers.files import DAMAGED, PARSING


@dataclass(frozen=True)
class Head:
    """What a member announces, compared with what it holds."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def heads(path: Path) -> dict[str, Head]:
    """Name → shape and type of every array; a pickle, or one that holds less than it says, is refused."""
    with sound(path), zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): _head(archive, info, path) for info in archive.infolist()}


def _head(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Head:
    with archive.open(info) as stream:
        head = _format(stream)
    if head.dtype.hasobject:
        raise UserError(
            f"{path}: {info.filename} holds Python objects (a pickle). Save plain arrays of numbers."
        )
    if math.prod(head.shape) * head.dtype.itemsize > info.file_size:
        raise UserError(f"{path}: {info.filename} announces more than it holds. Save it again.")
    return head


def _format(stream: Any) -> Head:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with PARSING:
        shape, _, dtype = read(stream)
    return Head(tuple(shape), np.dtype(dtype))


class Member:
    """A list of an archive, read in turn."""

    def __init__(self, archive: zipfile.ZipFile, name: str, path: Path) -> None:
        self._path, self._name = path, name
        with sound(path):
            self._stream = archive.open(f"{name}.npy")
            self._dtype = _format(self._stream).dtype

    def read(self, count: int) -> np.ndarray:
        """The next entries, as they stand."""
        with sound(self._path):
            raw = self._stream.read(count * self._dtype.itemsize)
        if len(raw) < count * self._dtype.itemsize:
            raise UserError(f"{self._path}: {self._name} ends too soon. Save it again.")
        return np.frombuffer(raw, self._dtype)

    def close(self) -> None:
        self._stream.close()


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """One line in place of what zip and numpy raise at a damaged archive."""
    try:
        yield
    except UserError:
        raise
    except (*DAMAGED, RuntimeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is not a sound npz file ({reason}). Fetch or save it again.") from None

"""Writing a store: sections that grow piece by piece, a checksum for each piece of the file.

    writer = Writer(file)
    writer.add("indptr", array)                      at once, or
    grows = writer.grow("indices", "<i4"); grows.append(part); ...; grows.end()
    writer.finish("name", classes)

Nothing but what is appended is held. A section whose length is known may be reserved and filled while the
last one grows.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError

MAGIC = b"\x93WEFT\r\n\x1a"  # as PNG's: a transfer that alters line ends spoils it
PREAMBLE = struct.Struct("<8sIIQQ")
ALIGN = 64
CHUNK = 1 << 20
"""Bytes that have a checksum of their own."""


@dataclass(frozen=True)
class Section:
    """One array in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc32: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def raw_bytes(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, not copied.

    >>> raw_bytes(np.array([1, 2], "<i2")).tobytes()
    b'\\x01\\x00\\x02\\x00'
    """
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


class Growing:
    """A section that is being written, wherever the file stands meanwhile.

    row     the shape of one entry along dim 0: () for a list
    """

    def __init__(self, writer: Writer, name: str, dtype: str, row: tuple[int, ...], offset: int) -> None:
        self._writer, self._name, self._dtype, self._row = writer, name, np.dtype(dtype), row
        self._offset = self._at = offset
        self._rows = 0
        self._checks = Checks()

    def append(self, array: np.ndarray) -> None:
        """Write the next entries, of this section's type."""
        array = np.ascontiguousarray(array, dtype=self._dtype)
        raw = raw_bytes(array)
        self._rows += len(array)
        self._checks.add(raw)
        self._at = self._writer.put(self._at, raw)

    @property
    def offset(self) -> int:
        """Where it begins in the file."""
        return self._offset

    def leave(self, rows: int) -> None:
        """Room for so many entries in all; other sections come after it."""
        self._writer.leave(self._offset + rows * math.prod(self._row) * self._dtype.itemsize)

    def join(self, rows: int, pieces: Iterable[Sequence[int]]) -> None:
        """The next entries, which a `Part` wrote: of each of its pieces (CRC-32, bytes)."""
        self._rows += rows
        for crc, length in pieces:
            self._checks.join(crc, length)
            self._at += length

    def end(self) -> Section:
        """The section, complete."""
        return self._writer.ended(
            Section(
                self._name, self._dtype.str, (self._rows, *self._row), self._offset, self._checks.whole()
            ),
            self._checks.each(),
        )


class Part:
    """Entries of a section from some place on, written to an open file; who has the `Writer` joins them.

    >>> import io
    >>> file = io.BytesIO()
    >>> part = Part(file, offset=64, dtype="<i4", row=(), first=3)
    >>> part.append(np.array([7, 8], np.int32))
    >>> part.rows, file.tell(), [length for _, length in part.pieces]
    (2, 84, [8])
    """

    def __init__(self, file: Any, offset: int, dtype: str, row: tuple[int, ...], first: int) -> None:
        self._file, self._dtype = file, np.dtype(dtype)
        self._at = first * math.prod(row) * self._dtype.itemsize
        self.rows = 0
        self.pieces: list[tuple[int, int]] = []
        file.seek(offset + self._at)

    def append(self, array: np.ndarray) -> None:
        """Write the next entries; pieces end where the section's chunks do."""
        array = np.ascontiguousarray(array, dtype=self._dtype)
        raw = raw_bytes(array)
        self.rows += len(array)
        self._file.write(raw)
        while raw:
            piece = raw[: CHUNK - self._at % CHUNK]
            crc, length = zlib.crc32(piece), len(piece)
            if self.pieces and self._at % CHUNK:
                before, had = self.pieces.pop()
                crc, length = zlib.crc32(piece, before), had + length
            self.pieces.append((crc, length))
            self._at, raw = self._at + len(piece), raw[len(piece) :]


class Writer:
    """A store that is being written to a file opened for writing, or to anything with write, seek, tell."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._sections: list[Section] = []
        self._checks: dict[str, list[int]] = {}
        self._end = self.put(
            0, memoryview(bytes(ALIGN))
        )  # the preamble comes last: until then it is no store

    def add(self, name: str, array: np.ndarray) -> Section:
        """A whole section."""
        grows = self.grow(name, array.dtype.newbyteorder("<").str, array.shape[1:])
        step = max(1, 16 * CHUNK // max(1, array.itemsize * math.prod(array.shape[1:])))
        for at in range(0, len(array), step):
            grows.append(array[at : at + step])
        return grows.end()

    def grow(self, name: str, dtype: str, row: tuple[int, ...] = (), rows: int | None = None) -> Growing:
        """A section to append to, the last one of the file; or with `rows` one that leaves that much room."""
        start = self._end + -self._end % ALIGN
        if rows is not None:
            self._end = start + rows * math.prod(row) * np.dtype(dtype).itemsize
        return Growing(self, name, dtype, row, start)

    def leave(self, end: int) -> None:
        """What comes next stands after this place of the file."""
        self._end = max(self._end, end)

    def put(self, at: int, raw: memoryview) -> int:
        """Bytes to a place of the file; where they end."""
        if self._file.tell() != at:
            self._file.seek(at)
        self._file.write(raw)
        return at + len(raw)

    def ended(self, section: Section, checks: list[int]) -> Section:
        self._end = max(self._end, section.offset + section.bytes)
        self._sections.append(section)
        self._checks[section.name] = checks
        return section

    def finish(self, name: str, num_classes: int, parts: Sequence[int] | None = None) -> list[Section]:
        """The checksums, the header, and last the preamble that makes the file a store.

        `parts` are sizes: vertices lie part by part.
        """
        # One order, whichever section was complete first.
        self._sections.sort(key=lambda s: s.offset)
        table = np.array([c for s in self._sections for c in self._checks[s.name]], dtype="<u4")
        offset = self._end + -self._end % ALIGN
        self.put(self._end, memoryview(bytes(offset - self._end)))
        end = self.put(offset, memoryview(table.tobytes()))
        checks = {
            "bytes": CHUNK, "offset": offset, "count": len(table), "crc32": zlib.crc32(table.tobytes()),
        }  # fmt: skip
        facts: dict[str, Any] = {
            "name": name,
            "num_classes": num_classes,
            "sections": [vars(s) for s in self._sections],
        }
        if parts is not None:
            facts["parts"] = list(parts)
        header = json.dumps(facts | {"checks": checks}).encode()
        self.put(end, memoryview(header))
        # Weft of before named arrays reads what has none; it passes over the checks.
        version = 2 if any(s.name.startswith(("arc_", "vertex_")) for s in self._sections) else 1
        self.put(0, memoryview(PREAMBLE.pack(MAGIC, version, zlib.crc32(header), end, len(header))))
        return self._sections


class Checks:
    """CRC-32 of each `CHUNK` bytes of what is added, and of all of it.

    >>> checks = Checks()
    >>> checks.add(memoryview(b"we")), checks.add(memoryview(b"ft"))
    (None, None)
    >>> checks.whole() == zlib.crc32(b"weft"), len(checks.each())
    (True, 1)
    """

    def __init__(self) -> None:
        self._done: list[int] = []
        self._crc = self._held = 0

    def add(self, raw: memoryview) -> None:
        at = 0
        while at < len(raw):
            part = raw[at : at + CHUNK - self._held]
            self._crc, self._held = zlib.crc32(part, self._crc), self._held + len(part)
            if self._held == CHUNK:
                self._done.append(self._crc)
                self._crc = self._held = 0
            at += len(part)

    def join(self, crc: int, length: int) -> None:
        """Bytes that somebody else has seen, of one chunk: their CRC-32."""
        self._crc = _times(_shift(length), self._crc) ^ crc if self._held else crc
        self._held += length
        if self._held == CHUNK:
            self._done.append(self._crc)
            self._crc = self._held = 0

    def each(self) -> list[int]:
        return [*self._done, *([self._crc] if self._held else [])]

    def whole(self) -> int:
        total = 0
        shift = _shift(CHUNK)
        for crc in self._done:
            total = _times(shift, total) ^ crc
        return _times(_shift(self._held), total) ^ self._crc if self._held else total


def _times(matrix: tuple[int, ...], vector: int) -> int:
    """A matrix over GF(2), given by its columns, times a vector: both as bits."""
    total = 0
    while vector:
        low = vector & -vector
        total ^= matrix[low.bit_length() - 1]
        vector ^= low
    return total


def _shift(length: int) -> tuple[int, ...]:
    """What `length` zero bytes do to a CRC-32: a linear map of its 32 bits, by repeated squaring."""
    key = _SHIFTS.get(length)
    if key is not None:
        return key
    step = (0xEDB88320, *(1 << k for k in range(31)))  # one zero bit
    for _ in range(3):
        step = tuple(_times(step, column) for column in step)  # a byte
    total = tuple(1 << k for k in range(32))
    left = length
    while left:
        if left & 1:
            total = tuple(_times(step, column) for column in total)
        step = tuple(_times(step, column) for column in step)
        left >>= 1
    if length == CHUNK:
        _SHIFTS[length] = total
    return total


_SHIFTS: dict[int, tuple[int, ...]] = {}


# Files


@contextlib.contextmanager
def replacing(path: Path, overwrite: bool = False) -> Iterator[Any]:
    """A file to write, which becomes `path` where nothing failed; an interrupted write leaves nothing."""
    check_new(path, overwrite)
    try:
        with neighbour(path) as scratch:
            with open(scratch, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _put(scratch, path, overwrite)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}. Check the folder and its space."
        ) from None


def check_new(path: Path, overwrite: bool = False) -> None:
    """Refuse to write over what is there, or into a folder that is not."""
    if path.is_dir() or (path.exists() and not overwrite):
        raise _exists(path)
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent} to write {path.name} into. Make it first.")


@contextlib.contextmanager
def neighbour(path: Path) -> Iterator[Path]:
    """A scratch file beside `path`, gone afterwards whatever happens."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    scratch = Path(name)
    try:
        mask = os.umask(0)
        os.umask(mask)
        scratch.chmod(0o666 & ~mask)  # mkstemp's 0600 would keep a group out of its own graph
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def is_neighbour(name: str, path: Path) -> bool:
    """Whether a file beside `path` has a name that `neighbour` gives.

    >>> is_neighbour(".g.weft.a1_b.tmp", Path("g.weft")), is_neighbour("../g.weft", Path("g.weft"))
    (True, False)
    """
    return Path(name).name == name and name.startswith(f".{path.name}.") and name.endswith(".tmp")


def _put(scratch: Path, path: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(scratch, path)
        return
    try:
        os.link(scratch, path)  # unlike a rename, a link never replaces what came there meanwhile
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise _exists(path) from None
        os.rename(scratch, path)


def _exists(path: Path) -> UserError:
    return UserError(f"{path} exists already. Choose another path, or remove it first.")

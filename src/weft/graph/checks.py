"""Checksums of a store's chunks, compared when a chunk is first read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.writer import Section


class ChunkChecks:
    """What `weft.graph.writer` noted of each chunk. Opening reads nothing, the first look the table.

    A look at some entries reads the whole chunks that these lie in, once: later looks are free.
    """

    def __init__(
        self, path: Path, sections: Mapping[str, Section], facts: Mapping[str, Any], end: int
    ) -> None:
        self._path, self._sections = path, sections
        self._size, self._offset, self._count, self._crc = (
            facts[key] for key in ("bytes", "offset", "count", "crc32")
        )
        if not all(type(x) is int and x >= 0 for x in (self._size, self._offset, self._count, self._crc)):
            raise ValueError("checks")
        if self._size < 4096 or self._offset + 4 * self._count > end:
            raise ValueError("checks")
        self._first: dict[str, int] = {}
        total = 0
        for section in sorted(sections.values(), key=lambda s: s.offset):
            self._first[section.name] = total
            total += -(-section.bytes // self._size)
        if total != self._count:
            raise ValueError("checks")
        self._table: np.ndarray | None = None
        self._seen = np.zeros(0, bool)

    def trust(self) -> None:
        """All of it was compared otherwise."""
        self._seen = np.ones(self._count, bool)
        self._table = np.zeros(0, np.uint32)

    def look(self, key: str, first: int, last: int) -> None:
        """Compare the chunks of entries first..last-1 of a section."""
        section = self._sections[key]
        if first < last and section.bytes:
            each = section.bytes // section.shape[0]
            self._compare(section, np.arange(first * each // self._size, -(-last * each // self._size)))

    def look_at(self, key: str, places: np.ndarray) -> None:
        """Compare the chunks of entries at these places."""
        section = self._sections[key]
        if not len(places) or not section.bytes:
            return
        each = section.bytes // section.shape[0]
        touched = np.zeros(-(-section.bytes // self._size), bool)
        touched[places * each // self._size] = True
        touched[((places + 1) * each - 1) // self._size] = True
        if each > self._size:  # a row of many chunks
            for place in places.tolist():
                touched[place * each // self._size : -(-(place + 1) * each // self._size)] = True
        self._compare(section, np.flatnonzero(touched))

    def look_along(self, key: str, starts: np.ndarray, ends: np.ndarray) -> None:
        """Compare the chunks of entries starts[k]..ends[k]-1, for every k."""
        section = self._sections[key]
        some = ends > starts
        if not some.any() or not section.bytes:
            return
        each = section.bytes // section.shape[0]
        first, last = starts[some] * each // self._size, (ends[some] * each - 1) // self._size
        touched = np.zeros(-(-section.bytes // self._size), bool)
        touched[first] = touched[last] = True
        for k in np.flatnonzero(last - first > 1).tolist():  # stretches of many chunks
            touched[first[k] : last[k]] = True
        self._compare(section, np.flatnonzero(touched))

    def _compare(self, section: Section, chunks: np.ndarray) -> None:
        if self._table is None:
            self._read_table()
        assert self._table is not None
        first = self._first[section.name]
        chunks = chunks[~self._seen[first + chunks]]
        if not len(chunks):
            return
        with open(self._path, "rb", buffering=0) as file:
            for chunk in chunks.tolist():
                size = min(self._size, section.bytes - chunk * self._size)
                part = os.pread(file.fileno(), size, section.offset + chunk * self._size)
                if len(part) < size:
                    raise UserError(f"{self._path} is truncated. Write or copy the store again.")
                if zlib.crc32(part) != self._table[first + chunk]:
                    raise UserError(
                        f"{self._path}: wrong checksum in section '{section.name}'. Write the store again."
                    )
                self._seen[first + chunk] = True

    def _read_table(self) -> None:
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            raw = file.read(4 * self._count)
        if len(raw) < 4 * self._count or zlib.crc32(raw) != self._crc:
            raise UserError(f"{self._path}: wrong checksum in the table of checksums. Write the store again.")
        self._table, self._seen = np.frombuffer(raw, "<u4"), np.zeros(self._count, bool)

"""npz archives of a CSR matrix, as scipy's `save_npz` writes them, as segments."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.readers.files import existing_file
from weft.graph.rows import out_of_range
from weft.graph.stream.members import Head, Member, heads, sound
from weft.graph.stream.pieces import Arcs, Segment

ROWS = 1 << 18
"""Entries, of pointers or of arcs, that are read at a time."""
_NEEDED = {"indptr", "indices"}
_KNOWN = _NEEDED | {"data", "shape", "format", "_is_array"}


class Compressed:
    """A square CSR matrix: entry (i, j) is the arc i → j, vertices are those of the matrix.

    Pointers, columns and values are three streams of the archive; a piece of each is held.
    """

    whole = fixed = True
    undirected = False
    num_nodes: int | None

    def __init__(self, path: str | Path) -> None:
        self.path = existing_file(path)
        self.size = self.path.stat().st_size
        found = heads(self.path)
        for name in ("indptr", "indices"):
            head = found[name]
            if len(head.shape) != 1 or head.dtype.kind not in "iu":
                told = f"{len(head.shape)}-dimensional {head.dtype}"
                raise UserError(f"{self.path}: {name} is {told}. Give a list of whole numbers.")
        self.carried: dict[str, int] = {}
        self._arcs, self._n = found["indices"].shape[0], found["indptr"].shape[0] - 1
        if self._n < 0:
            raise UserError(f"{self.path}: indptr is empty. It must have an entry a row, and one more.")
        self.num_nodes = self._n
        self.weighted = "data" in found
        self.weight_bytes = 8 * self.weighted
        if self.weighted:
            self._check_data(found["data"])
        self._check_form(found)

    def _check_data(self, head: Head) -> None:
        if head.dtype.kind not in "fiub":
            raise UserError(f"{self.path}: weights are {head.dtype}. Give real numbers.")
        if head.shape != (self._arcs,):
            told = "x".join(map(str, head.shape)) or "one number as"
            raise UserError(f"{self.path}: {told} weights for {self._arcs} arcs. Give one weight an arc.")
        kept = head.dtype in (np.float32, np.float64)
        self._weight_type = head.dtype if kept else np.dtype(np.float32)
        self.weight_bytes = self._weight_type.itemsize

    def _check_form(self, found: dict[str, Head]) -> None:
        form = found.get("format")
        if form is not None and self._small("format", form).tobytes().replace(b"\0", b"") != b"csr":
            raise UserError(
                f"{self.path} holds a sparse matrix in another form than csr. Save it with matrix.tocsr()."
            )
        shape = found.get("shape")
        if shape is None:
            return
        sizes = self._small("shape", shape).tolist() if shape.dtype.kind in "iu" else []
        if not isinstance(sizes, list) or len(sizes) != 2 or min(sizes) < 0:
            raise UserError(f"{self.path}: shape is {sizes}. Give two sizes: rows and columns.")
        rows, columns = sizes
        if rows != columns:
            raise UserError(
                f"{self.path} is {rows}x{columns}, not square. A graph needs as many rows as columns."
            )
        if rows != self._n:
            raise UserError(f"{self.path}: shape says {rows} vertices, indptr {self._n}. Correct the file.")

    def _small(self, name: str, head: Head) -> np.ndarray:
        count = int(np.prod(head.shape))
        if count * head.dtype.itemsize > 64:
            raise UserError(f"{self.path}: {name} is too long. Save it again.")
        with sound(self.path), zipfile.ZipFile(self.path) as archive:
            return Member(archive, name, self.path).read(count)

    def stamp(self) -> list[Any]:
        return [str(self.path.resolve()), self.size, self.path.stat().st_mtime_ns]

    def expected(self) -> int:
        return self._arcs

    def check(self, given: int) -> None:
        if given != self._arcs:
            raise UserError(f"{self.path} announces {self._arcs} entries but has {given}. Fetch it again.")

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        """Members of an archive are streams: one thread reads them, the others sort."""
        most = max(ROWS, size // 16)
        with ExitStack() as stack:
            with sound(self.path):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
            names = ["indptr", "indices", *(["data"] if self.weighted else [])]
            streams = {name: Member(archive, name, self.path) for name in names}
            for member in streams.values():
                stack.callback(member.close)
            sources: list[np.ndarray] = []
            number = held = 0
            for source in self._sources(streams["indptr"]):
                if held and held + len(source) > most:
                    yield from self._segment(number, sources, streams, done)
                    number, held, sources = number + 1, 0, []
                sources.append(source)
                held += len(source)
            if held:
                yield from self._segment(number, sources, streams, done)

    def _segment(
        self, number: int, sources: list[np.ndarray], streams: dict[str, Member], done: set[int]
    ) -> Iterator[Segment]:
        count = sum(map(len, sources))
        read = [(x, *(streams[name].read(len(x)) for name in streams if name != "indptr")) for x in sources]
        if number not in done:
            yield Segment(number, self.size * count // max(1, self._arcs), partial(self._pieces, read))

    def _pieces(self, read: list[tuple[np.ndarray, ...]]) -> Iterator[Arcs]:
        for source, target, *data in read:
            if len(target) and not 0 <= int(target.min()) <= int(target.max()) < self._n:
                wild = int(target.min() if int(target.min()) < 0 else target.max())
                raise UserError(f"{self.path}: {out_of_range(wild, self._n)}")
            weights = None
            if data:
                with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
                    weights = data[0].astype(self._weight_type)
                if not np.isfinite(weights).all():
                    wild_number = float(weights[~np.isfinite(weights)][0])
                    raise UserError(f"{self.path}: a weight is {wild_number}. Replace it by a finite number.")
            yield Arcs(source.astype(np.int64), target.astype(np.int64), weights)

    def _sources(self, pointers: Member) -> Iterator[np.ndarray]:
        """The row of each entry, in order, at most `ROWS` of them at a time; in few bytes while they wait."""
        n, kind = self._n, np.int32 if self._n < 2**31 else np.int64
        last = int(pointers.read(1)[0])
        first = last
        for row in range(0, n, ROWS):
            ends = np.empty(min(ROWS, n - row) + 1, np.int64)
            ends[0], ends[1:] = last, pointers.read(len(ends) - 1)
            falls = np.flatnonzero(ends[1:] < ends[:-1])
            if len(falls):
                at = int(falls[0])
                raise UserError(
                    f"{self.path}: indptr falls from {ends[at]} to {ends[at + 1]} at row {row + at}. "
                    "It must never fall."
                )
            last = int(ends[-1])
            if first != 0 or last > self._arcs:
                break
            for begin in range(int(ends[0]), last, ROWS):
                inside = np.clip(ends, begin, min(begin + ROWS, last))
                counts: np.ndarray = inside[1:] - inside[:-1]
                yield np.repeat(np.arange(row, row + len(counts), dtype=kind), counts)
        if first != 0 or last != self._arcs:
            raise UserError(
                f"{self.path}: indptr runs from {first} to {last} for {self._arcs} indices. "
                f"It must run from 0 to {self._arcs}."
            )


def holds_rows(path: Path) -> bool:
    """Whether an npz archive is a CSR matrix and nothing else: no features, no labels, no data of arcs."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return False
    return names >= _NEEDED and names <= _KNOWN

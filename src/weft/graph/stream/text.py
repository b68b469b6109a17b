"""Edge lists as segments: some megabytes of whole lines each, which threads read beside each other."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.guard import allowed_bytes
from weft.graph.readers.columns import (
    SKIP,
    column_names,
    first_arc,
    leading_comments,
    parse_lines,
    stacked,
    widths_of,
    wrong_line,
)
from weft.graph.readers.files import existing_file
from weft.graph.stream import native
from weft.graph.stream.pieces import Arcs, Bad, Segment

_LINE = 1 << 24
_HEAD = 1 << 20
_HEAD_NODES = re.compile(rb"(?mi)^[#%].*?\bNodes:\s*(\d{1,18})\b")
_HEAD_UNDIRECTED = re.compile(rb"(?mi)^[#%]\s*undirected graph\b")


class Text:
    """An edge list, plain or gzip.

    num_nodes    what a comment announces, or None;  undirected  whether a comment says so
    """

    fixed = False
    block = 1 << 21
    """Bytes of text that are parsed at a time."""
    base = 0
    """What the first vertex is called: 1 in Matrix Market."""

    def __init__(self, path: str | Path, extra: Sequence[str] | None = None, skip_bad: bool = False) -> None:
        self.path = existing_file(path)
        self.size = self.path.stat().st_size
        self.extra, self.skip_bad = extra, skip_bad
        self.packed = self._begin(2) == b"\x1f\x8b"
        head = self._head()
        comments = head[: len(head) - len(_after_comments(head))]
        said = _HEAD_NODES.search(comments)
        self.num_nodes = int(said[1]) if said else None
        self.undirected = bool(_HEAD_UNDIRECTED.search(comments))
        start = self._preamble(head)
        begin, mark, self.columns = self._first(head[start:])
        self._start = start + begin
        self._comma, self._mark = mark == ",", mark
        self.names = column_names(self.columns, extra)
        if len(self.names) != self.columns and len(head) > self._start:
            line = head[self._start :].split(b"\n", 1)[0]
            raise self._mistake(wrong_line(line, self.columns, extra), 1 + head.count(b"\n", 0, self._start))
        self._kinds = [native.SKIP if name == SKIP else native.WHOLE for name in self.names[2:]]
        if "weight" in self.names:
            self._kinds[self.names.index("weight") - 2] = native.REAL

    def _preamble(self, head: bytes) -> int:
        """Where lines begin, after what a format has before them."""
        return 0

    def _first(self, head: bytes) -> tuple[int, str, int]:
        """Where arcs begin, what separates columns, how many there are."""
        return first_arc(head, self.path)

    # What it is

    @property
    def whole(self) -> bool:
        return self.packed

    @property
    def weighted(self) -> bool:
        return "weight" in self.names

    @property
    def weight_bytes(self) -> int:
        return 4 * self.weighted

    @property
    def carried(self) -> dict[str, int]:
        """What its arcs carry beside weights: name → columns, 0 for a list."""
        return widths_of(self.extra or [])

    def stamp(self) -> list[Any]:
        """Its path, size and time of change."""
        return [str(self.path.resolve()), self.size, self.path.stat().st_mtime_ns]

    def expected(self) -> int:
        """About how many arcs there are, by the length of the first lines; gzip is taken to hold 4 times."""
        head = self._head()[self._start :]
        lines = head.count(b"\n")
        if not lines:
            return 1
        size = 4 * self.size if self.packed else self.size
        return max(lines, round((size - self._start) / (len(head) / lines)))

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        """Segments of about `size` bytes, without those that are done."""
        if self.packed:
            yield from self._unpacked(size, done)
            return
        for number in range(max(0, -(-(self.size - self._start) // size))):
            first = self._start + number * size
            if number not in done:
                bad = Bad()
                lines = partial(self._lines, first, first + size, bad)
                yield Segment(number, min(size, self.size - first), lines, bad)

    def check(self, given: int) -> None:
        """Nothing is announced that could be wrong."""

    # Plain files

    def _lines(self, first: int, last: int, bad: Bad) -> Iterator[Arcs]:
        """The arcs of the lines that begin at first..last-1."""
        with _reading(self.path), open(self.path, "rb", buffering=0) as file:
            at, end = self._aligned(file.fileno(), first), self._aligned(file.fileno(), last)
            size = self.block
            while at < end:
                block = os.pread(file.fileno(), min(size, end - at), at)
                if not block:
                    raise UserError(f"{self.path} became shorter while it was read. Convert it again.")
                cut = len(block) if at + len(block) == end else block.rfind(b"\n") + 1
                if not cut:
                    size = self._longer(size, at)
                    continue
                yield self.parse(block[:cut], partial(self._lines_before, at), bad)
                at, size = at + cut, self.block

    def _aligned(self, handle: int, at: int) -> int:
        """The first place from `at` on where a line begins."""
        if at <= self._start or at >= self.size:
            return max(self._start, min(at, self.size))
        at -= 1
        while at < self.size:
            part = os.pread(handle, 1 << 16, at)
            found = part.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += len(part)
            if not part:
                break
        return self.size

    def _lines_before(self, place: int) -> int:
        count = at = 0
        with open(self.path, "rb", buffering=0) as file:
            while at < place:
                part = os.pread(file.fileno(), min(1 << 24, place - at), at)
                count, at = count + native.count_lines(part), at + len(part)
                if not part:
                    break
        return count

    def _longer(self, size: int, at: int) -> int:
        if size >= _LINE:
            raise UserError(
                f"{self.path}: a line of more than {_LINE >> 20} MB, from byte {at} on. Give one arc a line."
            )
        return 2 * size

    # Packed files: one thread unpacks, the others parse

    def _unpacked(self, size: int, done: set[int]) -> Iterator[Segment]:
        limit = allowed_bytes(self.size)
        rest, lines, total, number, seen = b"", 0, 0, 0, 0
        with _reading(self.path), open(self.path, "rb") as plain, gzip.open(plain) as stream:
            stream.read(self._start)
            lines = self._head()[: self._start].count(b"\n")
            while True:
                blocks: list[tuple[bytes, int]] = []
                held = 0
                while held < size:
                    part = stream.read(self.block)
                    total += len(part)
                    if total > limit:
                        raise UserError(
                            f"{self.path} unpacks to more than {limit / 1e9:.1f} GB. Unpack it first, "
                            "if it is sound and there is room."
                        )
                    text = rest + part
                    cut = text.rfind(b"\n") + 1 if part else len(text)
                    if not cut and len(text) > _LINE:
                        self._longer(_LINE, total)
                    block, rest = text[:cut], text[cut:]
                    if block:
                        blocks.append((block, lines))
                        lines += native.count_lines(block)
                        held += len(block)
                    if not part:
                        break
                if not blocks:
                    return
                at = plain.tell()
                if number not in done:
                    bad = Bad()
                    yield Segment(number, at - seen, partial(self._parsed, blocks, bad), bad)
                seen, number = at, number + 1

    def _parsed(self, blocks: list[tuple[bytes, int]], bad: Bad) -> Iterator[Arcs]:
        for block, before in blocks:
            yield self.parse(block, partial(int, before), bad)

    # Lines to arcs

    def parse(self, block: bytes, lines_before: Callable[[], int], bad: Bad) -> Arcs:
        """The arcs of whole lines out of the file."""
        found = self._quick(block)
        if found is None:
            found = self._slow(block, lines_before, bad)
        source, target = found["source"] - self.base, found["target"] - self.base
        weights = self._finite(found.get("weight"))
        data = {name: found[name] for name in self.names[2:] if name not in (SKIP, "weight")}
        return Arcs(source, target, weights, stacked(data))

    def _finite(self, weights: np.ndarray | None) -> np.ndarray | None:
        if weights is None:
            return None
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        if not np.isfinite(weights).all():
            wild = float(weights[~np.isfinite(weights)][0])
            raise UserError(f"{self.path}: a weight is {wild}. Replace it by a finite number.")
        return weights

    def _quick(self, block: bytes) -> dict[str, np.ndarray] | None:
        """By the C++; None where some line is not plain, or there is none."""
        if native.extension is None:
            return None
        while True:
            kinds = list(self._kinds)
            found = native.parse(block, self._comma, kinds)
            if len(found.odd):
                return None
            if not found.not_whole:
                named = zip(self.names[2:], found.columns, strict=True)
                return {"source": found.source, "target": found.target} | {
                    name: column for name, column in named if column is not None
                }
            for column in found.not_whole:
                self._kinds[column] = native.REAL  # for all blocks that follow, too

    def _slow(self, block: bytes, lines_before: Callable[[], int], bad: Bad) -> dict[str, np.ndarray]:
        """By pyarrow, which knows more ways to write a number; lines that are no arcs are found here."""
        keep = []
        at = 0
        while at < len(block):
            odd = self._odd(block[at:])
            if not len(odd):
                keep.append(block[at:])
                break
            last = at
            for offset in odd.tolist():
                end = block.find(b"\n", at + offset) + 1 or len(block)
                line = block[at + offset : end]
                if wrong := wrong_line(line, self.columns, self.extra):
                    number = lines_before() + block.count(b"\n", 0, at + offset) + 1
                    mistake = self._mistake(wrong, number)
                    if not self.skip_bad:
                        raise mistake
                    keep.append(block[last : at + offset])
                    last = end
                    bad.add(Bad(1, number, str(mistake)))
            keep.append(block[last:end])
            at = end
        rest = b"".join(keep)
        try:
            return parse_lines(rest, self._mark, self.columns, self.extra)
        except ValueError as error:
            detail = " ".join(str(error).split())[:120]
            raise UserError(
                f"{self.path} is not an edge list ({detail}). Give source and target, one arc a line."
            ) from None

    def _odd(self, block: bytes) -> np.ndarray:
        """Where lines begin that are not plain, some thousands at most; all of them without the C++."""
        if native.extension is not None:
            return native.parse(block, self._comma, self._kinds).odd
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        return np.concatenate([[0], ends[ends < len(block)]])

    def _mistake(self, wrong: str, number: int) -> UserError:
        skip = "" if self.skip_bad else " Or leave such lines out: --skip-bad."
        return UserError(f"{self.path}, line {number}: {wrong}{skip}")

    # The beginning

    def _begin(self, count: int) -> bytes:
        with _reading(self.path), open(self.path, "rb") as file:
            return file.read(count)

    def _head(self) -> bytes:
        """The first lines, whole ones; more of them while they are all comments."""
        size = _HEAD
        while True:
            with _reading(self.path), open(self.path, "rb") as plain:
                head = gzip.GzipFile(fileobj=plain).read(size) if self.packed else plain.read(size)
            if len(head) < size:
                return head
            cut = head.rfind(b"\n") + 1
            if _after_comments(head[:cut]).strip() or size >= 1 << 28:
                return head[:cut] if cut else head
            size *= 4


def _after_comments(data: bytes) -> bytes:
    return data[len(leading_comments(data)) :]


class _reading:
    """One line where a file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EOFError):
            raise UserError(f"{self.path} is a truncated gzip file. Fetch it again.") from None
        if isinstance(error, (gzip.BadGzipFile, zlib.error)):
            raise UserError(f"{self.path} is a damaged gzip file ({error}). Fetch it again.") from None
        if isinstance(error, OSError):
            why = error.strerror or error
            raise UserError(f"cannot read {self.path}: {why}. Check the file.") from None

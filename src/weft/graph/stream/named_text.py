"""Edge lists whose ids are names: words, or anything between two tabs or commas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from weft.errors import UserError, printable
from weft.graph.readers.columns import SKIP, even, stacked, without_comments
from weft.graph.stream.pieces import Arcs, Bad
from weft.graph.stream.text import Text

LONGEST = 255
"""Bytes of a name."""


class NamedText(Text):
    """An edge list with names for ids. Its first line is an arc, or with `header` it is passed over."""

    block = 1 << 18
    """Of fewer bytes at a time: names become bytes of the longest one's width."""

    def __init__(
        self, path: str | Path, extra: Sequence[str] | None = None, skip_bad: bool = False,
        header: bool = False,
    ) -> None:  # fmt: skip
        self._header = header
        super().__init__(path, extra, skip_bad)

    def _first(self, head: bytes) -> tuple[int, str, int]:
        at, header = 0, self._header
        while at < len(head):
            end = head.find(b"\n", at) + 1 or len(head)
            line = head[at:end].strip(b"\r\n")
            if line.strip() and line.lstrip()[:1] not in b"#%":
                if not header:
                    mark = "\t" if b"\t" in line.strip() else "," if b"," in line else " "
                    return at, mark, len(line.split() if mark == " " else line.split(mark.encode()))
                header = False
            at = end
        return at, " ", 2

    def parse(self, block: bytes, lines_before: Callable[[], int], bad: Bad) -> Arcs:
        """The arcs of whole lines out of the file."""
        names = [f"{SKIP}{k}" if name == SKIP else name for k, name in enumerate(self.names)]
        wanted = [name for name in names if not name.startswith(SKIP)]
        try:
            table = self._table(block, names, wanted)
        except pa.ArrowInvalid as error:
            left = self._without_wrong(block, lines_before, bad)
            if left == block:
                raise self._refused(error, lines_before) from None
            try:
                table = self._table(left, names, wanted)
            except pa.ArrowInvalid as other:
                raise self._refused(other, lines_before) from None

        def where() -> str:
            return f"{self.path}, from line {lines_before() + 1} on"

        source, target = (names_of(table[side], where) for side in ("source", "target"))
        data = {name: table[name].to_numpy() for name in wanted[2:]}
        weights = data.pop("weight", None)
        return Arcs(source, target, self._finite(weights), stacked(data))

    def _table(self, block: bytes, names: list[str], wanted: list[str]) -> pa.Table:
        kinds = dict.fromkeys(wanted, pa.float64()) | {"source": pa.binary(), "target": pa.binary()}
        body = without_comments(block)
        if self._mark == " ":
            body, _ = even(body, " ")
        if not body.strip():
            return pa.table({name: pa.array([], kinds[name]) for name in wanted})
        return pacsv.read_csv(
            pa.py_buffer(body),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pacsv.ParseOptions(delimiter=self._mark, quote_char=False),
            convert_options=pacsv.ConvertOptions(
                column_types=kinds, include_columns=wanted, null_values=[], strings_can_be_null=False
            ),
        )

    def _without_wrong(self, block: bytes, lines_before: Callable[[], int], bad: Bad) -> bytes:
        """The lines that have the right number of columns; the others count as bad, or are a mistake.

        Not by a handler of pyarrow's: that one prints a traceback where a line is not UTF-8.
        """
        kept: list[bytes] = []
        mark = None if self._mark == " " else self._mark.encode()
        for number, line in enumerate(block.splitlines(keepends=True), 1):
            text = line.strip(b"\r\n")
            if text.strip() and text.lstrip()[:1] not in b"#%":
                count = len(text.split(mark))
                if count != self.columns:
                    number += lines_before()
                    if not self.skip_bad:
                        raise self._mistake(f"{count} columns, not {self.columns}. Correct it.", number)
                    bad.add(Bad(1, number, f"{self.path}, line {number}: {count} columns"))
                    continue
            kept.append(line)
        return b"".join(kept)

    def _refused(self, error: Exception, lines_before: Callable[[], int]) -> UserError:
        detail = " ".join(printable(str(error)).split())[:120]
        return UserError(f"{self.path}, from line {lines_before() + 1} on: {detail}. Correct it.")


def names_of(column: pa.ChunkedArray | pa.Array, where: Callable[[], str]) -> np.ndarray:
    """[m] names as bytes of one width; `where` says where they stand.

    >>> names_of(pa.array([b"ab", b" c", b"ab"]), str).tolist()
    [b'ab', b'c', b'ab']
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = whole.dictionary_encode()
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    words = [word.strip() for word in found.dictionary.to_pylist()]
    for word in words:
        if not word or len(word) > LONGEST or b"\0" in word:
            shown = word[:40].decode("utf-8", "replace")
            raise UserError(
                f"{where()}: {shown!r} is no name. Names have 1 to {LONGEST} bytes, none of them 0."
            )
    return np.array(words, dtype="S")[found.indices.to_numpy()]

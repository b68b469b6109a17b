"""Edge lists whose ids are names: words, or anything between two tabs or commas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from weft.errors import UserError
from weft.graph.readers.columns import SKIP, even, without_comments
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
        body = without_comments(block)
        if self._mark == " ":
            body, _ = even(body, " ")
        names = [f"{SKIP}{k}" if name == SKIP else name for k, name in enumerate(self.names)]
        wanted = [name for name in names if not name.startswith(SKIP)]
        kinds = dict.fromkeys(wanted, pa.float64()) | {"source": pa.binary(), "target": pa.binary()}
        if not body.strip():
            none, empty = np.zeros(0, "S1"), np.zeros(0, np.float64)
            weights = empty.astype(np.float32) if self.weighted else None
            return Arcs(none, none, weights, dict.fromkeys(self.carried, empty))
        try:
            table = pacsv.read_csv(
                pa.py_buffer(body),
                read_options=pacsv.ReadOptions(column_names=names, use_threads=False),
                parse_options=pacsv.ParseOptions(
                    delimiter=self._mark, quote_char=False,
                    invalid_row_handler=partial(self._row, lines_before, bad),
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=kinds, include_columns=wanted, null_values=[], strings_can_be_null=False
                ),
            )  # fmt: skip
        except pa.ArrowInvalid as error:
            detail = " ".join(str(error).split())[:120]
            number = lines_before() + 1
            raise UserError(f"{self.path}, from line {number} on: {detail}. Correct it.") from None
        source, target = (self._bytes(table[side], lines_before) for side in ("source", "target"))
        data = {name: table[name].to_numpy() for name in wanted[2:]}
        weights = data.pop("weight", None)
        return Arcs(source, target, self._finite(weights), data)

    def _row(self, lines_before: Callable[[], int], bad: Bad, row: pacsv.InvalidRow) -> str:
        if not self.skip_bad:
            return "error"
        number = lines_before() + (row.number or 1)
        bad.add(Bad(1, number, f"{self.path}, line {number}: {row.actual_columns} columns"))
        return "skip"

    def _bytes(self, column: pa.ChunkedArray, lines_before: Callable[[], int]) -> np.ndarray:
        """[m] names as bytes of one width."""
        found = column.combine_chunks().dictionary_encode()
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        words = [word.strip() for word in found.dictionary.to_pylist()]
        for word in words:
            if not word or len(word) > LONGEST or b"\0" in word:
                shown = word[:40].decode("utf-8", "replace")
                raise UserError(
                    f"{self.path}, from line {lines_before() + 1} on: {shown!r} is no name. "
                    f"Names have 1 to {LONGEST} bytes, none of them 0."
                )
        return np.array(words, dtype="S")[found.indices.to_numpy()]

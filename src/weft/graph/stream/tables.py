"""Parquet tables and npz archives of arcs as segments: columns of numbers, read some rows at a time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.readers.files import existing_file
from weft.graph.stream.members import Member, heads
from weft.graph.stream.named_text import names_of
from weft.graph.stream.pieces import Arcs, Segment

ROWS = 1 << 18
"""Rows that are read at a time."""
_BUFFER = 1 << 20
"""Bytes of a column of a parquet file that are read at a time."""
ENDS = (("source", "target"), ("src", "dst"), ("row", "col"), ("from", "to"), ("u", "v"))
"""What the two columns of ids may be called."""


class Table:
    """Arcs in named columns. `weight` is the weight, of what else is there `extra` names what to keep."""

    fixed = False
    whole = False
    num_nodes: int | None = None
    undirected = False

    text = False
    """Whether ids are names."""

    def __init__(self, path: str | Path, extra: Sequence[str] | None) -> None:
        self.path = existing_file(path)
        self.size = self.path.stat().st_size
        self._widths: dict[str, int] = {}
        """Numbers an arc of the columns that hold a row of them."""
        found = self._open()
        self._ends = next((pair for pair in ENDS if set(pair) <= found.keys()), None)
        if self._ends is None:
            known = ", ".join(found) or "nothing"
            raise UserError(
                f"{self.path} has columns {known[:120]}. Name those of the arcs source and target."
            )
        wanted = [name for name in ("weight", "data") if name in found][:1] if extra is None else extra
        for name in wanted:
            if name not in found:
                known = ", ".join(found)[:120]
                raise UserError(f"{self.path} has no column {name!r}, only {known}. Correct --arc-columns.")
        twice = next((name for name in wanted if list(wanted).count(name) > 1), None)
        if twice is not None:
            raise UserError(
                f"{self.path} has one column {twice!r}, which is named twice. Name it once; parquet may have "
                "columns of fixed-size lists."
            )
        self._weight = next((name for name in wanted if name in ("weight", "data")), None)
        self.carried = {name: self._widths.get(name, 0) for name in wanted if name != self._weight}
        for name in (*self._ends, *wanted):
            if name in self._widths and name not in self.carried:
                raise UserError(f"{self.path}: column {name} holds more than one number an arc. Give it one.")
            if self.text and name in self._ends:
                if found[name] != "S":
                    raise UserError(f"{self.path}: column {name} does not hold names. Leave out --text-ids.")
            elif found[name] == "S" and name in self._ends:
                raise UserError(f"{self.path}: column {name} holds names. Add --text-ids.")
            elif found[name] not in "iu" and (name in self._ends or found[name] != "f"):
                raise UserError(
                    f"{self.path}: column {name} does not hold numbers that suit it. Convert it first."
                )

    @property
    def weighted(self) -> bool:
        return self._weight is not None

    @property
    def weight_bytes(self) -> int:
        return 4 * self.weighted

    def stamp(self) -> list[Any]:
        return [str(self.path.resolve()), self.size, self.path.stat().st_mtime_ns]

    def expected(self) -> int:
        return self._rows

    def check(self, given: int) -> None:
        if given != self._rows:
            raise UserError(f"{self.path} announces {self._rows} rows but has {given}. Fetch it again.")

    _rows = 0

    def _open(self) -> dict[str, str]:
        """Column → kind of number, as numpy's letters; sets `_rows`."""
        raise NotImplementedError

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        raise NotImplementedError

    def _arcs(self, columns: dict[str, np.ndarray]) -> Arcs:
        assert self._ends is not None
        ends = []
        for name in self._ends:
            ids = columns[name]
            if self.text:
                ends.append(ids)
                continue
            if len(ids) and (ids.min() < 0 or ids.max() >= 2**63):
                wild = int(ids.min() if ids.min() < 0 else ids.max())
                raise UserError(f"{self.path}: id {wild} of column {name} is not in 0 to 2^63-1. Correct it.")
            ends.append(ids.astype(np.int64))
        weights = None
        if self._weight is not None:
            weights = columns[self._weight].astype(np.float32)
        data = {}
        for name in self.carried:
            x = columns[name]
            data[name] = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        floating = data if weights is None else {"weight": weights} | data
        for name, x in floating.items():
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                wild_number = float(x[~np.isfinite(x)][0])
                raise UserError(
                    f"{self.path}: {name} is {wild_number} in a row. Replace it by a finite number."
                )
        return Arcs(ends[0], ends[1], weights, data)


class Parquet(Table):
    """A parquet file; a row group is a segment. With `text` ids are names: columns of strings or bytes."""

    def __init__(self, path: str | Path, extra: Sequence[str] | None, text: bool = False) -> None:
        self.text = text
        super().__init__(path, extra)

    def _open(self) -> dict[str, str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:
                schema, self._rows = file.schema_arrow, file.metadata.num_rows
                self._groups = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{self.path} is not a sound parquet file ({reason}). Fetch it again.") from None
        kinds = {}
        for column in schema:
            one = column.type
            if pa.types.is_fixed_size_list(one) and one.list_size:
                self._widths[column.name], one = one.list_size, one.value_type
            if pa.types.is_integer(one):
                kinds[column.name] = "i"
            elif pa.types.is_floating(one):
                kinds[column.name] = "f"
            elif _holds_names(column.type):
                kinds[column.name] = "S"
            else:
                kinds[column.name] = "O"
        return kinds

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        for number, rows in enumerate(self._groups):
            if number not in done:
                share = self.size * rows // max(1, self._rows)
                yield Segment(number, share, partial(self._read, number))

    def _read(self, group: int) -> Iterator[Arcs]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self._ends is not None
        wanted = [*self._ends, *filter(None, [self._weight]), *self.carried]
        try:
            # Without a buffer's size each column of a row group is read whole, however few rows are wanted.
            with pq.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False) as file:
                batches = file.iter_batches(ROWS, row_groups=[group], columns=wanted, use_threads=False)
                for batch in batches:
                    columns = [
                        *batch.columns,
                        *(batch[name].flatten() for name in wanted if name in self._widths),
                    ]
                    if any(column.null_count for column in columns):
                        raise UserError(
                            f"{self.path}: a row has no value in a column. Fill it, or drop the row."
                        )
                    yield self._arcs({name: self._values(name, batch[name]) for name in wanted})
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{self.path} is not a sound parquet file ({reason}). Fetch it again.") from None

    def _values(self, name: str, column: Any) -> np.ndarray:
        if self.text and name in (self._ends or ()):
            import pyarrow as pa

            return names_of(column.cast(pa.binary()), lambda: f"{self.path}, column {name}")
        if name in self._widths:
            rows: np.ndarray = column.flatten().to_numpy(zero_copy_only=False)
            return rows.reshape(-1, self._widths[name])
        values: np.ndarray = column.to_numpy(zero_copy_only=False)
        return values


def _holds_names(kind: Any) -> bool:
    import pyarrow.types as kinds

    plain = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind)
    if kinds.is_dictionary(kind):
        return _holds_names(kind.value_type)
    return bool(plain or kinds.is_large_binary(kind))


class Coordinates(Table):
    """An npz archive of lists: source and target (or row and col), perhaps weight (or data) and others."""

    whole = True

    def _open(self) -> dict[str, str]:
        kinds: dict[str, str] = {}
        lengths = set()
        for name, head in heads(self.path).items():
            if len(head.shape) == 1 and name != "shape":
                kinds[name] = head.dtype.kind
                lengths.add(head.shape[0])
        if len(lengths) > 1:
            raise UserError(f"{self.path} holds lists of different lengths. Give one entry an arc in each.")
        self._rows = lengths.pop() if lengths else 0
        return kinds

    def segments(self, size: int, done: set[int]) -> Iterator[Segment]:
        """Members of an archive are streams: one thread reads them, the others sort."""
        assert self._ends is not None
        wanted = [*self._ends, *filter(None, [self._weight]), *self.carried]
        with zipfile.ZipFile(self.path) as archive:
            streams = {name: Member(archive, name, self.path) for name in wanted}
            try:
                rows = max(ROWS, size // 16)
                for number in range(-(-self._rows // rows)):
                    count = min(rows, self._rows - number * rows)
                    read = {name: stream.read(count) for name, stream in streams.items()}
                    if number not in done:
                        share = self.size * count // max(1, self._rows)
                        yield Segment(number, share, partial(self._pieces, read, count))
            finally:
                for stream in streams.values():
                    stream.close()

    def _pieces(self, read: dict[str, np.ndarray], count: int) -> Iterator[Arcs]:
        for first in range(0, count, ROWS):
            yield self._arcs({name: x[first : first + ROWS] for name, x in read.items()})


def holds_arcs(path: Path) -> bool:
    """Whether an npz archive holds arcs one by one; not rows of a matrix, nor what `read_npz` names."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return False
    whole = any(name.endswith("indptr") or name.startswith(("arc_", "vertex_")) for name in names)
    return any(set(pair) <= names for pair in ENDS) and not whole

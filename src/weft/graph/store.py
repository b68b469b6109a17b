"""The `.weft` store: a graph in one file, memory-mapped, checked.

    0       magic, version, checksum of the header, place and length of the header; padded to 64 bytes
    64      sections, one a tensor, each at a multiple of 64 bytes, little-endian, row by row
    ...     header, JSON: name, classes, and for each section its name, type, shape, place and checksum

Named arrays (`Graph.arc_data`, `Graph.vertex_data`) are sections `arc_NAME` and `vertex_NAME`, in stores of
version 2; one without them is written as version 1.

The header is checked whenever a store is opened; the sections' checksums with `verify=True`, which reads the
whole file once and is what `load` does. A rank that wants only its rows opens with `verify=False`, which
reads the header alone. Each chunk of 1 MB that it reads later is compared with a checksum of its own, once;
stores that were written before there were such checksums have none. Rows are also checked for ids in range
and finite numbers, so a damaged file cannot lead a kernel astray.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError, printable
from weft.graph.arrays import check_array, key_of, named
from weft.graph.checks import ChunkChecks
from weft.graph.graph import NAMED, PAIRS, Graph, check_pairs
from weft.graph.guard import about, check_fits, name_bus_errors
from weft.graph.header import TYPES, read_header, truncated
from weft.graph.rows import arc_pieces, copy_stretches
from weft.graph.writer import Section, Writer, replacing

_CHUNK = 1 << 24
_ARCS: tuple[str, ...] = ("indices", "weights")
_WINDOW = 16 << 20  # bytes of the file that are mapped at a time where scattered rows are read
_LONG = 1 << 12  # from so many arcs on a row's part of a block is searched for, not read through


def write_store(
    graph: Graph, path: str | Path, overwrite: bool = False, parts: Sequence[int] | None = None
) -> Path:
    """Write the graph to `path`. An existing path is an error; an interrupted write leaves nothing there.

    `parts` are the sizes of parts that the vertices lie in, one after the other: `Store.parts`.

    >>> import tempfile
    >>> from weft.graph.generators import karate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_store(karate(), Path(folder) / "club.weft")
    ...     open_store(path).graph()
    Graph(karate: 34 vertices, 156 arcs, 34 features, 2 classes)
    """
    path = Path(path)
    with replacing(path, overwrite) as file:
        _write(graph, file, parts)
    return path


def open_store(path: str | Path, verify: bool = True) -> Store:
    """Open a store for reading: the header is always checked, all sections' checksums with `verify`.

    >>> open_store("no/such.weft")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such.weft. Check the path.
    """
    store = Store(path)
    if verify:
        store.verify()
    return store


def checksum(source: Graph | Store) -> str:
    """A number of all that a graph holds but its name: the same in memory and in a store.

    >>> import tempfile
    >>> from weft.graph.generators import karate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(write_store(karate(), Path(folder) / "club.weft"))
    ...     checksum(store) == checksum(karate())
    True
    """
    sections = source._sections.values() if isinstance(source, Store) else _write(source, _Nowhere())
    facts = sorted((s.name, s.dtype, list(s.shape), s.crc32) for s in sections)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


class _Nowhere:
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self._at = 0

    def write(self, data: Any) -> None:
        self._at += len(data)

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> None:
        self._at = place


Columns = tuple[int, int] | Tensor | Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a graph, in the order asked for, with what their vertices carry.

    rows      [r] int64          which vertices
    indptr    [r+1] int64        row k is indices[indptr[k] : indptr[k+1]]
    indices   [nnz_r]            in-neighbours, numbered as in the whole graph of `num_nodes` vertices; empty
                                 where they were not asked for: indptr then tells how many there are
    weights   [nnz_r], features [r, f], labels [r] or [r, c], ids [r]; None where there are none
    train_mask, val_mask, test_mask   [r] bool, or None
    num_classes             of the whole graph
    arc_data, vertex_data   name → [nnz_r, …] and [r, …]
    """

    rows: Tensor
    indptr: Tensor
    indices: Tensor
    num_nodes: int
    num_classes: int
    weights: Tensor | None = None
    features: Tensor | None = None
    labels: Tensor | None = None
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None
    ids: Tensor | None = None
    arc_data: dict[str, Tensor] = field(default_factory=dict)
    vertex_data: dict[str, Tensor] = field(default_factory=dict)


class Store:
    """A store opened for reading. Nothing is loaded until it is asked for.

    >>> import tempfile
    >>> from weft.graph.generators import karate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(write_store(karate(), Path(folder) / "club.weft"))
    ...     store.num_nodes, store.num_arcs, store.rows(4, 6).indices.tolist()
    (34, 156, [0, 6, 10, 0, 6, 10, 16])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        header = read_header(self.path)
        self.name = printable(str(header["name"]))
        self.num_classes = int(header["num_classes"])
        self._sections: dict[str, Section] = header["sections"]
        self._checks: ChunkChecks | None = header["checks"]
        self.parts: list[int] | None = header["parts"]
        """The sizes of parts that the vertices lie in, one after the other; None where there are none."""
        self.beside: Path | None = None
        """Another file that some sections lie in (`weft.graph.beside`); None: all are in this one."""
        self._there: frozenset[str] = frozenset()

    def _put_beside(self, path: Path, sections: Mapping[str, Section]) -> None:
        """Sections of another file, in place of those of the same names."""
        self.beside, self._there = path, frozenset(sections)
        self._sections = self._sections | dict(sections)

    @property
    def num_nodes(self) -> int:
        """n, the number of vertices."""
        return self._sections["indptr"].shape[0] - 1

    @property
    def num_arcs(self) -> int:
        """nnz, the number of stored arcs."""
        return self._sections["indices"].shape[0]

    @property
    def num_features(self) -> int:
        """f, the width of the features; 0 without."""
        return self._sections["features"].shape[1] if "features" in self._sections else 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is stored, but for the header."""
        return sum(section.bytes for section in self._sections.values())

    def has(self, key: str) -> bool:
        """Whether the store holds features, labels, a mask and so on."""
        return key in self._sections

    @property
    def checks_itself(self) -> bool:
        """Whether chunks have checksums, which are compared as they are read."""
        return self._checks is not None

    @property
    def schema(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Field → (type, shape) of all that is stored; of named arrays under `arc_NAME` and `vertex_NAME`."""
        kinds = {key: torch.from_numpy(np.zeros(0, part.dtype)).dtype for key, part in self._sections.items()}
        return {key: (kinds[key], part.shape) for key, part in self._sections.items()}

    @property
    def arc_names(self) -> list[str]:
        """The names of what arcs carry; `rows(…, only=("arc_NAME",))` reads it."""
        return named(self._sections, "arc")

    def verify(self) -> None:
        """Compare every section with its checksum: one pass over the file."""
        with open(self.path, "rb") as file:
            for section in self._sections.values():
                if section.name in self._there:
                    continue
                file.seek(section.offset)
                left, crc = section.bytes, 0
                while left:
                    part = file.read(min(left, _CHUNK))
                    if not part:
                        raise truncated(self.path)
                    crc, left = zlib.crc32(part, crc), left - len(part)
                if crc != section.crc32:
                    raise UserError(
                        f"{self.path}: wrong checksum in section '{section.name}'. Write the store again."
                    )
        if self._checks is not None:
            self._checks.trust()

    def graph(self) -> Graph:
        """The whole graph over memory-mapped tensors; its values are validated as everywhere."""
        with about(self.path):
            tensors = {key: torch.from_numpy(self._map(key)) for key in self._sections}
            for key, tensor in tensors.items():
                self._check_bool(key, tensor)
            return Graph(**_gathered(tensors), name=self.name, num_classes=self.num_classes)

    def pairs(self, key: str, first: int = 0, last: int | None = None) -> Tensor:
        """Pairs first..last-1 of `val_pairs` and the like; nothing else is read. [m, 2] int64."""
        with about(self.path):
            self._look(key, first, self._sections[key].shape[0] if last is None else last)
            found = torch.from_numpy(np.array(self._map(key, first, last)))
            check_pairs(found, self.num_nodes, key)
            return found

    def labels(self, lo: int, hi: int) -> Tensor:
        """The labels of vertices lo..hi-1, [hi-lo] or [hi-lo, c]; `rows` would read the pointers, too."""
        with about(self.path):
            lo, hi = self._range(lo, hi)
            self._look("labels", lo, hi)
            found = torch.from_numpy(np.array(self._map("labels", lo, hi)))
            self._check_bool("labels", found)
            return found

    def num_pairs(self, key: str) -> int:
        """How many pairs there are under this name; 0 without."""
        return self._sections[key].shape[0] if key in self._sections else 0

    def rows(
        self, lo: int | Tensor | Any, hi: int | None = None, only: Collection[str] | None = None
    ) -> Rows:
        """Rows lo..hi-1, or those that a list of vertices names; nothing else is read from the file.

        `only` names the fields that are wanted, such as ("features", "labels", "arc_time"); the others are
        None, or empty where arcs are left out.
        """
        with about(self.path):
            if hi is not None:
                return self._slice(*self._range(lo, hi), only)
            wanted = self._vertices(lo)
            first, count = (int(wanted[0]) if len(wanted) else 0), len(wanted)
            if count and int(wanted[-1]) - first == count - 1 and bool((wanted.diff() == 1).all()):
                return self._slice(first, first + count, only)  # a range, though it came as a list
            return self._pick(wanted, only)

    def count_arcs(self, lo: int, hi: int) -> int:
        """How many arcs go into vertices lo..hi-1; two numbers are read."""
        with about(self.path):
            ends = self._take("indptr", np.array(self._range(lo, hi)))
            self._check_pointers(ends[:1], ends[1:])
            return int(ends[1] - ends[0])

    def first_arcs(self, vertices: Tensor) -> Tensor:
        """The number of the first arc into each of these vertices; a number each is read. [m] int64"""
        with about(self.path):
            starts = self._take("indptr", self._vertices(vertices).numpy())
            self._check_pointers(starts, starts)
            return torch.from_numpy(starts)

    def _range(self, lo: Any, hi: int) -> tuple[int, int]:
        if not 0 <= lo <= hi <= self.num_nodes:
            raise UserError(
                f"rows {lo} to {hi} are out of range for {self.num_nodes} vertices. Correct them."
            )
        return int(lo), int(hi)

    def _vertices(self, which: Any) -> Tensor:
        wanted = torch.as_tensor(which, dtype=torch.int64, device="cpu").reshape(-1)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < self.num_nodes:
            wild = int(wanted.min()) if int(wanted.min()) < 0 else int(wanted.max())
            raise UserError(f"row {wild} is out of range for {self.num_nodes} vertices. Correct it.")
        return wanted

    def block(
        self, rows: tuple[int, int] | Tensor, columns: Columns, only: Collection[str] | None = None
    ) -> Rows:
        """The entries of a block: of these rows what stands in these columns, and nothing else.

            rows      (lo, hi), or a list of vertices
            columns   (lo, hi), a list of vertices, or a function [m] → [m] bool: which of these are wanted

        Rows ascend, so of a long one the ends of lo..hi-1 are searched for and what lies between is read.
        Some arcs are looked at together, so memory is that of the block; each MB is compared with its
        checksum as it is read. Arcs carry weights and data, of which `only` may name some; what vertices
        carry is left to `rows`.

        >>> import tempfile
        >>> from weft.graph.generators import karate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = open_store(write_store(karate(), Path(folder) / "club.weft"))
        ...     found = store.block((4, 6), (6, 12))
        >>> found.indptr.tolist(), found.indices.tolist()
        ([0, 2, 4], [6, 10, 6, 10])
        """
        with about(self.path):
            which = rows if isinstance(rows, Tensor) else torch.arange(*self._range(*rows), device="cpu")
            wanted = self._vertices(which).numpy()
            starts, ends = self._take("indptr", wanted), self._take("indptr", wanted + 1)
            self._check_pointers(starts, ends)
            lo, hi, keep = self._columns(columns)
            self._narrow(starts, ends, lo, hi)
            counts = np.zeros(len(wanted), dtype=np.int64)
            parts: dict[str, list[np.ndarray]] = {key: [] for key in self._wanted(self._per_arc, only)}
            for row, places in arc_pieces(starts, ends):
                found = self._take("indices", places)
                inside = (found >= lo) & (found < hi)
                if keep is not None:
                    inside[inside] = keep(found[inside])
                counts[row[0] : row[-1] + 1] += np.bincount(
                    row[inside] - row[0], minlength=row[-1] + 1 - row[0]
                )
                for key, taken in parts.items():
                    taken.append(found[inside] if key == "indices" else self._take(key, places[inside]))
            indptr = np.concatenate([[0], np.cumsum(counts)])
            empty = np.zeros(0, dtype=np.int64)
            arcs = {key: np.concatenate([self._take(key, empty), *taken]) for key, taken in parts.items()}
            return self._rows(wanted, indptr, arcs, wanted, [*parts, "indptr"])

    def _columns(self, columns: Columns) -> tuple[int, int, Callable[[np.ndarray], np.ndarray] | None]:
        """(lo, hi, which of lo..hi-1)."""
        if isinstance(columns, tuple):
            return *self._range(*columns), None
        if not isinstance(columns, Tensor):
            return 0, self.num_nodes, columns
        if not columns.numel():
            return 0, 0, None
        among = self._vertices(columns).sort().values.numpy()

        def keep(found: np.ndarray) -> np.ndarray:
            return among[np.searchsorted(among, found)] == found  # none is above the last

        return int(among[0]), int(among[-1]) + 1, keep

    def _narrow(self, starts: np.ndarray, ends: np.ndarray, lo: int, hi: int) -> None:
        """Of long rows the stretch of columns lo..hi-1, by binary search in the file; in place."""
        (long,) = np.nonzero(ends - starts >= _LONG)
        if not len(long) or (lo <= 0 and hi >= self.num_nodes):
            return
        for side, bound in ((starts, lo), (ends, hi)):
            first, last = starts[long], ends[long]
            while (open_ := first < last).any():
                middle = (first + last) // 2
                below = np.zeros(len(long), dtype=bool)
                below[open_] = self._take("indices", middle[open_]) < bound
                first = np.where(open_ & below, middle + 1, first)
                last = np.where(open_ & ~below, middle, last)
            side[long] = first
        np.maximum(starts, ends, out=ends)

    @property
    def _per_arc(self) -> list[str]:
        return [*_ARCS, *(key_of("arc", name) for name in self.arc_names)]

    def _wanted(self, keys: Iterable[str], only: Collection[str] | None) -> list[str]:
        return [key for key in keys if key in self._sections and (only is None or key in only)]

    def _slice(self, lo: int, hi: int, only: Collection[str] | None) -> Rows:
        self._look("indptr", lo, hi + 1)
        pointers = np.array(self._map("indptr", lo, hi + 1))
        self._check_pointers(pointers[:-1], pointers[1:])
        first, last = int(pointers[0]), int(pointers[-1])
        per_arc = self._wanted(self._per_arc, only)
        for key in per_arc:
            self._look(key, first, last)
        arcs = {key: np.array(self._map(key, first, last)) for key in per_arc}
        return self._rows(np.arange(lo, hi), pointers - first, arcs, slice(lo, hi), only)

    def _pick(self, wanted: Tensor, only: Collection[str] | None) -> Rows:
        rows = wanted.numpy()
        starts, ends = self._take("indptr", rows), self._take("indptr", rows + 1)
        self._check_pointers(starts, ends)
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(ends - starts, out=indptr[1:])
        per_arc = self._wanted(self._per_arc, only)
        if not per_arc:
            return self._rows(rows, indptr, {}, rows, only)
        needed = sum(self._sections[key].bytes // max(1, self.num_arcs) for key in per_arc)
        check_fits(needed * int(indptr[-1]), f"{len(rows)} rows of {self.path}")
        sections = {key: self._sections[key] for key in per_arc}
        arcs = {key: np.empty((indptr[-1], *s.shape[1:]), s.dtype) for key, s in sections.items()}
        for key, x in arcs.items():
            self._stretches(key, starts, ends, indptr, x)
        return self._rows(rows, indptr, arcs, rows, only)

    def _stretches(
        self, key: str, starts: np.ndarray, ends: np.ndarray, into: np.ndarray, out: np.ndarray
    ) -> None:
        """Entries starts[k]..ends[k]-1 into out[into[k]:into[k + 1]], by windows that slide over the file."""
        section = self._sections[key]
        if self._checks is not None:
            self._checks.look_along(key, starts, ends)
        if (starts[1:] < ends[:-1]).any():  # some go back in the file
            at = 0
            for _, places in arc_pieces(starts, ends):
                out[at : at + len(places)] = self._take(key, places)
                at += len(places)
            return
        span, begin = max(1, _WINDOW // max(1, section.bytes // max(1, section.shape[0]))), 0
        while begin < len(starts):
            first = int(starts[begin])
            end = begin + max(1, int(np.searchsorted(ends[begin:], first + span, side="right")))
            window = self._map(key, first, int(ends[end - 1]))
            target = out[into[begin] : into[end]]
            copy_stretches(window, starts[begin:end] - first, ends[begin:end] - first, target)
            begin = end

    def _rows(
        self,
        rows: np.ndarray,
        indptr: np.ndarray,
        arcs: dict[str, np.ndarray],
        which: slice | np.ndarray,
        only: Collection[str] | None,
    ) -> Rows:
        arcs.setdefault("indices", np.zeros(0, dtype=self._sections["indices"].dtype))
        apart = {"indptr", *self._per_arc, *PAIRS}
        others = [key for key in self._wanted(self._sections, only) if key not in apart]
        arrays = dict(arcs)
        for key in others:
            if isinstance(which, slice):
                self._look(key, which.start, which.stop)
                arrays[key] = np.array(self._map(key, which.start, which.stop))
            else:
                arrays[key] = self._take(key, which)
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        for key, tensor in tensors.items():
            self._check_bool(key, tensor)
            if key in TYPES and tensor.is_floating_point() and tensor.numel():
                ends = torch.stack(torch.aminmax(tensor))
                if not bool(torch.isfinite(ends).all()):
                    raise UserError(f"{key} hold a number that is not finite. Write the store again.")
        fields = _gathered(tensors)
        for (of, key), count in zip(NAMED.items(), (int(indptr[-1]), len(rows)), strict=True):
            for name, x in fields[key].items():
                check_array(name, x, count, of)
        indices = tensors["indices"]
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.num_nodes:
            raise UserError(
                f"a vertex id is out of range for {self.num_nodes} vertices. Write the store again."
            )
        return Rows(
            rows=torch.from_numpy(rows),
            indptr=torch.from_numpy(indptr),
            num_nodes=self.num_nodes,
            num_classes=self.num_classes,
            **fields,
        )

    def _check_pointers(self, starts: np.ndarray, ends: np.ndarray) -> None:
        if len(starts) and not (starts.min() >= 0 and (starts <= ends).all() and ends.max() <= self.num_arcs):
            raise UserError("indptr is damaged. Write the store again.")

    def _check_bool(self, key: str, tensor: Tensor) -> None:
        if tensor.dtype == torch.bool and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
            raise UserError(f"{key} hold a byte that is neither 0 nor 1. Write the store again.")

    def _look(self, key: str, first: int, last: int) -> None:
        if self._checks is not None and key not in self._there:
            self._checks.look(key, first, last)

    def _map(self, key: str, first: int = 0, last: int | None = None) -> np.ndarray:
        """Entries first..last-1 along dim 0, over the file's own pages."""
        section = self._sections[key]
        last = section.shape[0] if last is None else last
        shape = (last - first, *section.shape[1:])
        if not math.prod(shape):
            return np.zeros(shape, dtype=section.dtype)
        skip = first * (section.bytes // section.shape[0])
        name_bus_errors()
        path = self.beside if key in self._there and self.beside is not None else self.path
        try:
            # Mode "c": pages come from the file, a stray write would stay private to this process.
            return np.memmap(path, section.dtype, "c", section.offset + skip, shape)
        except ValueError:  # it was whole when it was opened
            raise truncated(path) from None

    def _take(self, key: str, places: np.ndarray) -> np.ndarray:
        """The entries at these places, through a window that slides over the file.

        Scattered rows touch nearly every page; with one map of the whole section all of it would count as
        this process's memory for a moment.
        """
        section = self._sections[key]
        if self._checks is not None and key not in self._there:
            self._checks.look_at(key, places)
        steps = np.diff(places)
        stretch = bool((steps == 1).all())
        out = np.empty((len(places), *section.shape[1:]), dtype=section.dtype)
        ascending = bool((steps >= 0).all())
        order = np.arange(0) if ascending else np.argsort(places, kind="stable")
        sorted_places = places if ascending else places[order]
        span = max(1, _WINDOW // max(1, section.bytes // max(1, section.shape[0])))
        at = 0
        while at < len(places):
            first = int(sorted_places[at])
            end = int(np.searchsorted(sorted_places, first + span))
            last = min(first + span, section.shape[0])
            window = self._map(key, first, last)
            found = window[: end - at] if stretch else window[sorted_places[at:end] - first]
            out[slice(at, end) if ascending else order[at:end]] = found
            del window
            at = end
        return out


# Writing


def _write(graph: Graph, file: Any, parts: Sequence[int] | None = None) -> list[Section]:
    writer = Writer(file)
    tensors = {key: tensor for key in TYPES if (tensor := getattr(graph, key)) is not None}
    for of, of_kind in NAMED.items():
        tensors |= {key_of(of, name): x for name, x in getattr(graph, of_kind).items()}
    for key, tensor in tensors.items():
        writer.add(key, tensor.detach().cpu().contiguous().numpy())
    return writer.finish(graph.name, graph.num_classes, parts)


def _gathered(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A graph's fields from a file's sections: the named arrays in their two dicts."""
    fields: dict[str, Any] = {key: x for key, x in tensors.items() if key in TYPES}
    for of, key in NAMED.items():
        fields[key] = {name: tensors[key_of(of, name)] for name in named(tensors, of)}
    return fields

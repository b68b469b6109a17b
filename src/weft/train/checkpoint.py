"""A checkpoint on disk: plain arrays, and a manifest with a checksum a file.

    RUN/checkpoints/000012.000031/     epoch 12, 31 updates of it done
        manifest.json                  facts of the loop; every array, and the blocks it was written in
        000.weights.layers.0.weight.r0.npy …

Each file is a block of a global array, x[rows, columns]: rank 0 has what is replicated, and every rank what
it alone has, with the vertices of its rows beside it. Whoever reads asks by global index, so the number of
ranks, the grid and the partition may be others. Files are written to a folder with another name, synced, and
the folder is renamed last: one that is there was complete. What happens to it later, the checksums find.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..comm import Communicator
from ..errors import UserError
from ..graph.guard import check_fits
from ..graph.readers.files import map_array

FORMAT = 1
_CHUNK = 1 << 24
_MAX_MANIFEST = 1 << 28
_NAME = re.compile(r"\d{6,}\.\d{6,}")
_FILE = re.compile(r"[\w.\-]{1,200}\.npy", re.ASCII)
_KINDS = "fiub"


class Torn(UserError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A rank's block of a global array, x[rows, columns].

        rows      vertices, [m] int64; (first, last) for a range; None: all of them
        columns   (first, last); None: all of them
        live      whether the next update writes to its memory: then it is copied before

    >>> Piece("learned", np.zeros((2, 3)), (9, 3), np.array([4, 7])).shape
    (9, 3)
    """

    name: str
    array: np.ndarray
    shape: tuple[int, ...]
    rows: np.ndarray | tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    live: bool = False

    @classmethod
    def whole(cls, name: str, array: np.ndarray, live: bool = False) -> Piece:
        """All of an array."""
        return cls(name, array, array.shape, live=live)


@dataclass(frozen=True)
class _Block:
    """A piece as the manifest tells of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: str
    rows: str | tuple[int, int] | None
    columns: tuple[int, int] | None

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Whether a file with this shape can be the block."""
        wanted = list(self.shape)
        if isinstance(self.rows, tuple):
            wanted[0] = self.rows[1] - self.rows[0]
        elif self.rows is not None:
            wanted[0] = shape[0] if shape else -1  # as many as the file of vertices has
        if self.columns is not None:
            wanted[1] = self.columns[1] - self.columns[0]
        return shape == tuple(wanted)


# Writing


def folder_name(epoch: int, step: int) -> str:
    """
    >>> folder_name(12, 31)
    '000012.000031'
    """
    return f"{epoch:06d}.{step:06d}"


def part_of(folder: Path) -> Path:
    """Where a checkpoint is written before it gets its name."""
    return folder.with_name(f".{folder.name}.part")


def write_shard(folder: Path, rank: int, pieces: Iterable[Piece]) -> None:
    """One rank's files of a checkpoint; `shard.RANK.json` comes last and says that they are there."""
    part = part_of(folder)
    part.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[int]] = {}
    blocks: list[dict[str, Any]] = []
    written: dict[int, str] = {}

    def save(label: str, array: np.ndarray) -> str:
        safe = re.sub(r"[^\w.\-]", "_", label, flags=re.ASCII)[:120]
        file = f"{len(files):03d}.{safe}.r{rank}.npy"
        files[file] = list(_save(part / file, array))
        return file

    for piece in pieces:
        rows: Any = piece.rows
        if isinstance(rows, np.ndarray):
            if id(rows) not in written:  # the same vertices stand behind several arrays
                written[id(rows)] = save("vertices", rows)
            rows = written[id(rows)]
        blocks.append({
            "name": piece.name, "shape": piece.shape, "dtype": piece.array.dtype.str,
            "file": save(piece.name, piece.array), "rows": rows, "columns": piece.columns,
        })  # fmt: skip
    for file in files:  # after all are written: the disk then takes them in one go
        _sync(part / file)
    _write_text(part / f"shard.{rank}.json", json.dumps({"files": files, "blocks": blocks}))


def missing_shards(folder: Path, ranks: int) -> list[int]:
    """The ranks that have not written all of theirs yet."""
    return [rank for rank in range(ranks) if not (part_of(folder) / f"shard.{rank}.json").exists()]


def complete(folder: Path, ranks: int, facts: dict[str, Any]) -> None:
    """Put the shards together: the manifest, and the checkpoint's own name last."""
    part = part_of(folder)
    files: dict[str, list[int]] = {}
    blocks: list[dict[str, Any]] = []
    for rank in range(ranks):
        shard = json.loads((part / f"shard.{rank}.json").read_text())
        files |= shard["files"]
        blocks += shard["blocks"]
    body = {"format": FORMAT, "ranks": ranks, "facts": _spelled(facts), "files": files, "blocks": blocks}
    _write_text(part / "manifest.json", _sealed(body))
    for rank in range(ranks):
        (part / f"shard.{rank}.json").unlink()
    _sync(part)
    os.rename(part, folder)
    _sync(folder.parent)


def _sealed(body: dict[str, Any]) -> str:
    text = json.dumps(body, indent=1)
    return json.dumps(body | {"checksum": zlib.crc32(text.encode())}, indent=1)


def _save(path: Path, array: np.ndarray) -> tuple[int, int]:
    """Write a .npy file; (bytes, checksum)."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    raw = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    crc, size = zlib.crc32(head.getvalue()), len(head.getvalue()) + len(raw)
    with open(path, "wb") as file:
        file.write(head.getvalue())
        for at in range(0, len(raw), _CHUNK):
            crc = zlib.crc32(raw[at : at + _CHUNK], crc)
            file.write(raw[at : at + _CHUNK])
    return size, crc


def _write_text(path: Path, text: str) -> None:
    """A text file that is whole or not there."""
    scratch = path.with_name(path.name + ".tmp")
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _sync(path: Path) -> None:
    """Until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _spelled(value: Any) -> Any:
    """Facts as JSON has them: it knows neither NaN nor infinity.

    >>> _spelled({"best": (1.0, float("-inf"))})
    {'best': [1.0, {'float': '-inf'}]}
    """
    if isinstance(value, dict):
        return {str(k): _spelled(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _read_back(value: Any) -> Any:
    """The inverse of `_spelled`; tuples come back as lists."""
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {k: _read_back(v) for k, v in value.items()}
    return [_read_back(v) for v in value] if isinstance(value, list) else value


# Reading


class Checkpoint:
    """A checkpoint opened for reading: its manifest is checked now, its files by `verify`.

    facts    what the loop knew
    read     an array, or some rows and columns of it, whoever wrote them
    """

    def __init__(self, path: Path):
        self.path = path
        body = _manifest(path)
        self.facts: dict[str, Any] = body["facts"]
        self.files: dict[str, tuple[int, int]] = body["files"]
        self._blocks: dict[str, list[_Block]] = {}
        for block in body["blocks"]:
            self._blocks.setdefault(block.name, []).append(block)

    @property
    def bytes(self) -> int:
        """What it takes on disk, but for the manifest."""
        return sum(size for size, _ in self.files.values())

    def names(self, prefix: str = "") -> list[str]:
        """The arrays whose names begin so."""
        return [name for name in self._blocks if name.startswith(prefix)]

    def verify(self, part: int = 0, parts: int = 1) -> None:
        """Compare files with their checksums: all, or one of `parts` shares of them. Torn: one differs."""
        for file in sorted(self.files)[part::parts]:
            size, crc = self.files[file]
            if _checksum(self.path / file) != (size, crc):
                raise Torn(f"{self.path / file} is not what was written.")

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array."""
        return self._of(name)[0].shape

    def read(
        self, name: str, rows: np.ndarray | None = None, columns: tuple[int, int] | None = None
    ) -> np.ndarray:
        """x[rows, columns] of a global array: by vertex number, from whichever files hold them."""
        blocks = self._of(name)
        shape = blocks[0].shape
        if not shape or (rows is None and columns is None and len(blocks) == 1 and blocks[0].rows is None):
            return np.array(self._array(blocks[0]))
        rows = np.arange(shape[0]) if rows is None else rows
        first, last = columns or (0, shape[1] if len(shape) > 1 else 1)
        wide = (last - first, *shape[2:]) if len(shape) > 1 else ()
        check_fits(len(rows) * math.prod(wide) * np.dtype(blocks[0].dtype).itemsize, f"{name} of {self.path}")
        out = np.empty((len(rows), *wide), dtype=blocks[0].dtype)
        filled = np.zeros(len(rows), dtype=np.int64)
        for block in blocks:
            here, there = self._where(block, rows)
            begin, end = block.columns or (0, shape[1] if len(shape) > 1 else 1)
            low, high = max(first, begin), min(last, end)
            if low >= high or not len(here):
                continue
            array = self._array(block)
            if wide:
                out[here, low - first : high - first] = array[there, low - begin : high - begin]
            else:
                out[here] = array[there]
            filled[here] += high - low
        if (filled != last - first).any():
            raise Torn(f"{self.path} does not hold all of {name}.")
        return out

    def _of(self, name: str) -> list[_Block]:
        if name not in self._blocks:
            raise UserError(f"{self.path} does not hold {name}: it is of another run. Use the run's own.")
        return self._blocks[name]

    def _array(self, block: _Block) -> np.ndarray:
        array = map_array(self.path / block.file, damaged="Use an older checkpoint.")
        if array.dtype.str != block.dtype or not block.holds(array.shape):
            raise Torn(f"{self.path / block.file} is another array than the manifest says.")
        return array

    def _where(self, block: _Block, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which of `rows` the block has, where they stand in it)."""
        if block.rows is None:
            return np.arange(len(rows)), rows
        if isinstance(block.rows, tuple):
            first, last = block.rows
            here = ((rows >= first) & (rows < last)).nonzero()[0]
            return here, rows[here] - first
        ids = np.array(map_array(self.path / block.rows, damaged="Use an older checkpoint."))
        if not len(ids):
            return ids, ids
        order = np.argsort(ids, kind="stable")
        place = np.searchsorted(ids, rows, sorter=order).clip(max=len(ids) - 1)
        here = (ids[order[place]] == rows).nonzero()[0]
        return here, order[place[here]]


def _checksum(path: Path) -> tuple[int, int]:
    size = crc = 0
    try:
        with open(path, "rb") as file:
            while part := file.read(_CHUNK):
                size, crc = size + len(part), zlib.crc32(part, crc)
    except OSError as error:
        raise Torn(f"cannot read {path}: {error.strerror}.") from None
    return size, crc


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        if file.stat().st_size > _MAX_MANIFEST:
            raise Torn(f"{file} is too long.")
        text = file.read_text(encoding="utf-8")
        body = json.loads(text)
        seal = body.pop("checksum")
        if seal != zlib.crc32(json.dumps(body, indent=1).encode()) or _sealed(body) != text:
            raise Torn(f"{file} is not what was written.")
        if body["format"] > FORMAT:
            raise UserError(
                f"{path} has format {body['format']}; this weft reads up to {FORMAT}. Upgrade weft."
            )
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in body["files"].items()}
        if not all(_FILE.fullmatch(name) for name in files):
            raise Torn(f"{file} names a file that no checkpoint has.")
        blocks = [_block(entry, files) for entry in body["blocks"]]
        return {"facts": dict(_read_back(body["facts"])), "files": files, "blocks": blocks}
    except OSError as error:
        raise Torn(f"cannot read {file}: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise Torn(f"{file} makes no sense.") from None


def _block(entry: dict[str, Any], files: dict[str, tuple[int, int]]) -> _Block:
    """An entry of the manifest, every part of it checked; ValueError and the like else."""

    def span(value: Any, most: int) -> tuple[int, int] | None:
        if value is None:
            return None
        first, last = value
        if not (type(first) is int and type(last) is int and 0 <= first <= last <= most):
            raise ValueError("span")
        return first, last

    shape = tuple(entry["shape"])
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("shape")
    rows = entry["rows"]
    rows = rows if isinstance(rows, str) else span(rows, shape[0] if shape else 0)
    columns = span(entry["columns"], shape[1] if len(shape) > 1 else 1)
    if entry["file"] not in files or (isinstance(rows, str) and rows not in files):
        raise ValueError("file")
    if np.dtype(entry["dtype"]).kind not in _KINDS:
        raise ValueError("dtype")
    return _Block(str(entry["name"]), shape, str(entry["dtype"]), str(entry["file"]), rows, columns)


# The checkpoints of a run


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, the newest first."""
    folder = run / "checkpoints"
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: [int(part) for part in path.name.split(".")], reverse=True)
    return []


def prune(run: Path, keep: int) -> None:
    """Remove the oldest, so that `keep` are left; 0 removes them all, and what was never completed."""
    for path in checkpoints(run)[keep:]:
        shutil.rmtree(path, ignore_errors=True)
    if not keep:
        shutil.rmtree(run / "checkpoints", ignore_errors=True)


def clear(run: Path, since: Sequence[Path] = ()) -> None:
    """Put away what must not be taken for good: folders that were never completed, and torn ones."""
    folder = run / "checkpoints"
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name.startswith(".") and path.name.endswith(".part"):
                shutil.rmtree(path, ignore_errors=True)
    for path in since:
        shutil.rmtree(path.with_name(path.name + ".torn"), ignore_errors=True)
        with contextlib.suppress(OSError):
            path.rename(path.with_name(path.name + ".torn"))


def newest(comm: Communicator, run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those that are newer; every rank calls it.

    Ranks share the work of comparing checksums.
    """
    names = comm.all_gather_json([path.name for path in checkpoints(run)] if comm.rank == 0 else [])[0]
    torn: list[str] = []
    for name in names:
        mistake = ""
        try:
            found = Checkpoint(run / "checkpoints" / name)
            found.verify(comm.rank, comm.size)
        except Torn as error:
            mistake = str(error)
        mistakes = [told for told in comm.all_gather_json(mistake) if told]
        if not mistakes:
            return found, torn
        torn.append(f"{name}: {mistakes[0]}")
    return None, torn

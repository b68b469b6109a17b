"""The header of a `.weft` store: read, and compared with the file, before anything else is."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import torch

from weft.errors import UserError
from weft.graph.arrays import Of, check_name, key_of, named
from weft.graph.checks import ChunkChecks
from weft.graph.graph import MASKS, NAMED, PAIRS
from weft.graph.rows import index_dtype
from weft.graph.writer import ALIGN, MAGIC, PREAMBLE, Section

VERSION = 2
_MAX_HEADER = 1 << 20
TYPES = (
    {
        "indptr": ("<i8",),
        "indices": ("<i4", "<i8"),
        "weights": ("<f4", "<f8"),
        "features": ("<f4", "<f8"),
        "labels": ("<i8", "|b1"),
        "ids": ("<i8",),
    }
    | dict.fromkeys(MASKS, ("|b1",))
    | dict.fromkeys(PAIRS, ("<i8",))
)
_NAMED_TYPES = ("<f4", "<f8", "|u1", "|i1", "<i2", "<i4", "<i8")


def read_header(path: Path) -> dict[str, Any]:
    if not path.is_file():  # a pipe would be waited for
        raise UserError(f"no file {path}. Check the path.")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(PREAMBLE.size)
            if len(start) < PREAMBLE.size or not start.startswith(MAGIC):
                raise UserError(f"{path} is not a weft store. Make one with: weft convert FILE OUT.weft")
            _, version, crc, offset, length = PREAMBLE.unpack(start)
            if version > VERSION:
                raise UserError(
                    f"{path} has store version {version}; this weft reads up to {VERSION}. Upgrade weft."
                )
            if offset + length > size:
                raise truncated(path)
            if length > _MAX_HEADER:
                raise UserError(f"{path}: a header of {length} bytes is too long. Write the store again.")
            file.seek(offset)
            raw = file.read(length)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}. Check the file.") from None
    if zlib.crc32(raw) != crc or version < 1:
        raise UserError(f"{path}: wrong checksum in the header. Write the store again.")
    try:
        header = json.loads(raw)
        sections = [Section(**{**entry, "shape": tuple(entry["shape"])}) for entry in header["sections"]]
        header["sections"] = {section.name: section for section in sections}
        _check_sections(header["sections"], int(header["num_classes"]), offset)
        facts = header.get("checks")
        header["parts"] = _sizes(header.get("parts"), header["sections"]["indptr"].shape[0] - 1)
        header["checks"] = None if facts is None else ChunkChecks(path, header["sections"], facts, offset)
        str(header["name"])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise UserError(f"{path}: the header makes no sense. Write the store again.") from None
    return header


def _sizes(parts: Any, n: int) -> list[int] | None:
    """The sizes of parts that a header names; ValueError where they are none."""
    if parts is None:
        return None
    if not isinstance(parts, list) or not all(type(x) is int and x >= 0 for x in parts) or sum(parts) != n:
        raise ValueError("parts")
    return parts


def _check_sections(sections: dict[str, Section], num_classes: int, end: int) -> None:
    """Names, types and shapes as `write_store` makes them, and nothing outside the file; ValueError else."""
    n, nnz = sections["indptr"].shape[0] - 1, sections["indices"].shape[0]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(TYPES, (n,))
    shapes |= {"indptr": (n + 1,), "indices": (nnz,), "weights": (nnz,)}
    types = dict(TYPES)
    for of, length in zip(NAMED, (nnz, n), strict=True):
        for name in named(sections, of):
            key = key_of(of, name)
            if len(sections[key].shape) not in (1, 2) or not _may_be_named(name, of):
                raise ValueError("name or shape")
            types[key], shapes[key] = _NAMED_TYPES, (length, *sections[key].shape[1:])
    for key, section in sections.items():
        shape = shapes[key]
        if key == "features" or (key == "labels" and section.dtype == "|b1"):
            shape = (n, section.shape[1])
        if key in PAIRS:
            shape = (section.shape[0], 2)
        sizes = (*section.shape, section.offset)
        if not all(type(size) is int and size >= 0 for size in sizes) or section.shape != shape:
            raise ValueError("shape")
        if section.dtype not in types[key] or section.offset % ALIGN or section.offset + section.bytes > end:
            raise ValueError("type or place")
    wanted = "<i4" if index_dtype(n) == torch.int32 else "<i8"
    if n < 0 or num_classes < 0 or sections["indices"].dtype != wanted:
        raise ValueError("sizes")


def _may_be_named(name: str, of: Of) -> bool:
    try:
        check_name(name, of)
    except UserError:
        return False
    return True


def truncated(path: Path) -> UserError:
    return UserError(f"{path} is truncated. Write or copy the store again.")

"""Arrays out of a file of torch.save, without torch's pickles being obeyed.

    zip      (torch 1.6 and later) data.pkl and data/KEY for the numbers of tensors
    stream   (before) pickles one after the other: a magic number, a version, the system, the object

What is read is a dict of names to numpy arrays or tensors of numbers; the pickle machine is the inert one of
`planetoid`, which makes records and nothing else.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.graph.guard import check_fits
from weft.graph.readers.files import existing_file
from weft.graph.readers.planetoid import ADMITTED, Record, Unpickler, plain_array

_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "BoolStorage": "?",
}  # fmt: skip


class _Tensor(Record): ...


def _bytes(text: Any, code: Any = "") -> bytes:
    """Bytes as protocol 2 writes them: a text in latin1."""
    if not isinstance(text, str) or code != "latin1":
        raise ValueError("no bytes")
    return text.encode("latin1")


class _Unpickler(Unpickler):
    """Admits tensors, too: a storage's name is what its numbers are."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if (module, name) == ("_codecs", "encode"):
            return _bytes
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return pid


def read_torch(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name; what is no array of numbers is left out.

    >>> read_torch("no/such/file.pt")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/file.pt. Check the path.
    """
    path = existing_file(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                top = next((name[: -len("data.pkl")] for name in names if name.endswith("/data.pkl")), None)
                if top is None:
                    raise UserError(f"{path} has no data.pkl. Fetch it again.")
                check_fits(
                    2 * sum(info.file_size for info in archive.infolist()),
                    str(path),
                    held=path.stat().st_size,
                )
                found = _Unpickler(io.BytesIO(archive.read(f"{top}data.pkl")), encoding="latin1").load()
                return _arrays(found, path, lambda key: archive.read(f"{top}data/{key}"))
        with open(path, "rb") as stream:
            if _Unpickler(stream, encoding="latin1").load() != _MAGIC:
                raise UserError(f"{path} is no file of torch.save. Fetch it again.")
            for _ in range(2):
                _Unpickler(stream, encoding="latin1").load()
            return _arrays(_Unpickler(stream, encoding="latin1").load(), path, None)
    except UserError as error:
        raise error if str(error).startswith(str(path)) else UserError(f"{path}: {error}") from None
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path} is not a sound file of torch.save ({reason}). Fetch it again.") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{path} is a damaged pickle ({type(error).__name__}). Fetch it again.") from None


def _arrays(found: Any, path: Path, numbers: Any) -> dict[str, np.ndarray]:
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no table of arrays. Fetch it again.")
    out = {}
    for name, value in found.items():
        if isinstance(value, _Tensor):
            out[str(name)] = _tensor(value, path, numbers)
        elif isinstance(value, ADMITTED["numpy", "ndarray"]):
            out[str(name)] = plain_array(value)
    return out


def _tensor(record: _Tensor, path: Path, numbers: Any) -> np.ndarray:
    """_rebuild_tensor_v2(storage, offset, size, stride, …), of tensors whose numbers lie in order."""
    (_, kind, key, *_), offset, size, stride, *_ = record.args
    if numbers is None:
        raise UserError(f"{path} is of a torch before 1.6 with tensors. Save its arrays with numpy.savez.")
    if kind not in _STORAGES.values() or not str(key).isalnum():
        raise UserError(f"{path} holds a tensor of an unknown type. Fetch it again.")
    expected = tuple(math.prod(size[k + 1 :]) for k in range(len(size)))
    if tuple(stride) != expected and math.prod(size):
        raise UserError(
            f"{path} holds a tensor that does not lie in order. Save its arrays with numpy.savez."
        )
    flat = np.frombuffer(numbers(key), dtype=kind)
    count = math.prod(size)
    if offset < 0 or offset + count > len(flat):
        raise UserError(f"{path}: a tensor of {count:,} numbers, {len(flat):,} are there. Fetch it again.")
    return flat[offset : offset + count].reshape(size).astype(np.dtype(kind).newbyteorder("="))

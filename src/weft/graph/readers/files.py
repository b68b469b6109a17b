"""Opening files: one line where that fails, gzip by content, a bound on what comes out."""

from __future__ import annotations

import gzip
import os
import threading
import tokenize
import warnings
import zlib
from pathlib import Path

import numpy as np

from weft.errors import UserError, printable
from weft.graph.guard import allowed_bytes, free_bytes, name_bus_errors

_CHUNK = 1 << 24

PARSING = threading.Lock()
"""Held by whoever calls `ast.parse`, as numpy does for the header of an array: in Python before 3.11.8 and
3.12.2 it fails at times where two threads are in it (gh-106905), and ranks may be threads."""

DAMAGED = (
    ValueError, TypeError, ArithmeticError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError,
    OSError, EOFError,
)  # fmt: skip
"""What numpy raises at a header that is none."""


def existing_file(path: str | Path) -> Path:
    """The path, if a file is there.

    >>> existing_file("no/such/file.txt")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/file.txt. Check the path.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file. Name a file inside.")
    if not path.is_file():
        raise UserError(f"no file {path}. Check the path.")
    return path


def map_array(
    path: str | Path, missing: str = "Check the path.", damaged: str = "Save one with numpy.save.",
    write: bool = False,
) -> np.ndarray:  # fmt: skip
    """The array of a .npy file, mapped: a damaged header cannot ask for more memory than the file has bytes.

        missing   what to do where there is no such file
        damaged   what to do where it is no such array
        write     whether what is assigned to the array goes to the file

    >>> map_array("no/such/file.npy")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such/file.npy. Check the path.
    """
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise UserError(f"{path} is no plain file. Name one that is.")  # a pipe would be waited for
    name_bus_errors()
    try:
        # The filter is the process's, the lock makes it ours: numpy warns of headers of Python 2.
        with PARSING, np.errstate(over="raise"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.lib.format.open_memmap(path, "r+" if write else "r")
    except FileNotFoundError:
        raise UserError(f"no file {path}. {missing}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a file. Name a file inside.") from None
    except DAMAGED as error:
        reason = " ".join(str(error).split()).rstrip(".")[:120]
        raise UserError(f"{path} is not a .npy array ({reason}). {damaged}") from None


def read_bytes(path: str | Path) -> bytes:
    """All bytes of a file, unpacked if it is gzip (by its first bytes, whatever its name).

    >>> read_bytes(__file__)[:3]
    b'\"\"\"'
    """
    path = existing_file(path)
    try:
        with open(path, "rb") as plain:
            limit = min(allowed_bytes(os.fstat(plain.fileno()).st_size), free_bytes() // 2)
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if not packed:
                return plain.read()
            parts: list[bytes] = []
            size = 0
            with gzip.open(plain) as stream:
                while part := stream.read(_CHUNK):
                    size += len(part)
                    if size > limit:
                        raise UserError(
                            f"{path} unpacks to more than {limit / 1e9:.1f} GB. Unpack it first, "
                            "if it is sound and there is room."
                        )
                    parts.append(part)
            return b"".join(parts)
    except EOFError:
        raise UserError(f"{path} is a truncated gzip file. Fetch it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}). Fetch it again.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}. Check the file.") from None


def stem(path: str | Path) -> str:
    """The file's name without the endings that tell its format.

    >>> stem("data/com-dblp.ungraph.txt.gz"), stem("cnr-2000.csr.npz"), stem("v1.2.weft")
    ('com-dblp', 'cnr-2000', 'v1.2')
    """
    name = Path(path).name
    for ending in (".gz", ".txt", ".tsv", ".csv", ".mtx", ".npz", ".weft", ".ungraph", ".csr"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
    return printable(name)

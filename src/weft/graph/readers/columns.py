"""Lines of two or three numbers, as edge lists and Matrix Market have them, by pyarrow's CSV parser."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from weft.errors import UserError

Columns = tuple[np.ndarray, np.ndarray, np.ndarray | None]
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%][^\n]*(?:\n|\Z)")


def read_columns(data: bytes, path: str | Path, start: int = 0) -> Columns:
    """The numbers of the lines `id id [weight]` in `data[start:]`: two int64 arrays and float32 or None.

    Separators are tab, spaces or comma; '#' and '%' begin comment lines; a first line without any number is a
    header. A line that does not fit is an error with its number in the whole of `data`; ids are not negative.

    >>> [column.tolist() for column in read_columns(b"# c\\n0 1 0.5\\n2 3 1\\n", "toy")]
    [[0, 2], [1, 3], [0.5, 1.0]]
    """
    body = _without_comments(data[start:])
    body, delimiter, columns = _prepare(body, path)
    first, second, weights = _parse(body, delimiter, columns, data, path, start)
    if len(first) and min(first.min(), second.min()) < 0:
        raise _fault(data, path, start)
    return first, second, weights


def leading_comments(data: bytes) -> bytes:
    """The comment lines at the top.

    >>> leading_comments(b"# a\\n% b\\n0 1\\n# c\\n")
    b'# a\\n% b\\n'
    """
    at = 0
    while match := _COMMENT.match(data, at):
        at = match.end()
    return data[:at]


def _without_comments(data: bytes) -> bytes:
    body = data[len(leading_comments(data)) :]
    if any(mark in body for mark in (b"#", b"%")):
        body = _COMMENT.sub(b"", body)
    return body


def _prepare(body: bytes, path: str | Path) -> tuple[bytes, str, int]:
    """Skip a header, find separator and number of columns, even out runs of blanks."""
    if b"\x00" in body[:4096]:
        raise UserError(f"{path} is not a text file. Give an edge list: source and target, one arc a line.")
    body = body.lstrip(b"\xef\xbb\xbf\r\n \t")
    line = body.split(b"\n", 1)[0]
    if line.strip() and not any(_is_number(word) for word in _words(line)):
        body = body[len(line) :].lstrip()
        line = body.split(b"\n", 1)[0]
    delimiter = "," if b"," in line else "\t" if b"\t" in line.strip() else " "
    if delimiter == ",":
        return body, delimiter, len(line.split(b","))
    ragged = (b"  ", b"\t ", b" \t", b"\t\t", b" \n", b"\t\n", b" \r", b"\t\r", b"\n ", b"\n\t")
    if any(run in body for run in ragged) or (b"\t" in body and b" " in body):
        body = re.sub(rb"[ \t]+", b" ", body)
        body = re.sub(rb"(?m)^ | (?=\r?$)", b"", body)
        delimiter = " "
    return body, delimiter, len(line.split())


def _parse(body: bytes, delimiter: str, columns: int, data: bytes, path: str | Path, start: int) -> Columns:
    if not body.strip():
        none = np.zeros(0, dtype=np.int64)
        return none, none, None
    if columns not in (2, 3):
        raise _fault(data, path, start)
    names = ["source", "target", "weight"][:columns]
    kinds = {"source": pa.int64(), "target": pa.int64(), "weight": pa.float64()}
    try:
        table = pacsv.read_csv(
            pa.py_buffer(body),
            read_options=pacsv.ReadOptions(column_names=names, block_size=1 << 23),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=pacsv.ConvertOptions(
                column_types={name: kinds[name] for name in names}, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise _fault(data, path, start, str(error)) from None
    arrays = [table[name].to_numpy() for name in names]
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which Graph refuses
        weights = arrays[2].astype(np.float32) if columns == 3 else None
    return arrays[0], arrays[1], weights


def _fault(data: bytes, path: str | Path, start: int, otherwise: str = "") -> UserError:
    """The error for the first line that is no arc. Slow and careful: it runs once, on the way out."""
    seen_arc = False
    expected = 0
    before = data.count(b"\n", 0, start)
    lines = data[start:].removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=before + 1):
        text = line.strip()
        if not text or text[:1] in b"#%":
            continue
        words = _words(text)
        if not seen_arc and not expected and not any(_is_number(word) for word in words):
            expected = -1  # the header line
            continue
        if not seen_arc:
            expected, seen_arc = len(words), True
        where = f"{path}, line {number}"
        if len(words) not in (2, 3) or len(words) != expected:
            need = (
                "source, target and perhaps a weight" if len(words) not in (2, 3) else f"{expected}, as above"
            )
            return UserError(f"{where}: {len(words)} columns in {_show(text)}. Give {need}.")
        for word in words[:2]:
            if not re.fullmatch(rb"-?\d+", word):
                return UserError(
                    f"{where}: id {_show(word)} is not a whole number. Number the vertices from 0."
                )
            if word.startswith(b"-"):
                return UserError(f"{where}: id {_show(word)} is negative. Number the vertices from 0.")
            if len(word) > 19 or int(word) >= 2**63:
                return UserError(f"{where}: id {_show(word)} does not fit into 63 bits. Use smaller ids.")
        if len(words) == 3 and not _is_number(words[2]):
            return UserError(f"{where}: weight {_show(words[2])} is not a number. Correct it.")
    detail = " ".join(otherwise.split())[:120]
    return UserError(f"{path} is not an edge list ({detail}). Give source and target, one arc a line.")


def _words(line: bytes) -> list[bytes]:
    if b"," in line:
        return [word.strip() for word in line.split(b",")]
    return line.split()


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _show(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))

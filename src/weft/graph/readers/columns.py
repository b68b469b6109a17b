"""Lines of numbers, as edge lists and Matrix Market have them, by pyarrow's CSV parser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.arrays import KIND

Columns = tuple[np.ndarray, np.ndarray, np.ndarray | None]
SKIP = "_"
"""The name of a column that nobody wants."""
_COLUMN = re.compile(r"CSV column #(\d+)")
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%][^\n]*(?:\n|\Z)")


def read_columns(data: bytes, path: str | Path, start: int = 0) -> Columns:
    """The numbers of the lines `id id [weight]` in `data[start:]`: two int64 arrays and float32 or None.

    Separators are tab, spaces or comma; '#' and '%' begin comment lines; a first line without any number is a
    header. A line that does not fit is an error with its number in the whole of `data`; ids are not negative.

    >>> [column.tolist() for column in read_columns(b"# c\\n0 1 0.5\\n2 3 1\\n", "toy")]
    [[0, 2], [1, 3], [0.5, 1.0]]
    """
    found = _read(data, path, start, None)
    return found["source"], found["target"], _weights(found)


def read_named_columns(
    data: bytes, path: str | Path, names: Sequence[str]
) -> tuple[Columns, dict[str, np.ndarray]]:
    """The same of lines with further columns, which have these names; `_` skips one, `weight` is the weight.

    Columns of whole numbers from 0 on come as int64, others as float64. Those of one name are one array.

    >>> ends, more = read_named_columns(b"0 1 9 x 0.5 4\\n2 3 7 y 1 5\\n", "toy", ["kind", "_", "f", "f"])
    >>> {name: column.tolist() for name, column in more.items()}
    {'kind': [9, 7], 'f': [[0.5, 4.0], [1.0, 5.0]]}
    """
    found = _read(data, path, 0, names)
    columns = found.pop("source"), found.pop("target"), _weights(found)
    found.pop("weight", None)
    more = stacked(found)
    for name, column in more.items():
        if column.dtype == np.int64 and column.min(initial=0) < 0 and name != KIND:
            more[name] = column.astype(np.float64)  # whole numbers below 0 are no types; "type" is refused
    return columns, more


def stacked(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns that `column_names` numbered as one array [m, d] each, the others as they are.

    >>> stacked({"f": np.array([1, 2]), "time": np.array([3, 4]), "f 1": np.array([0.5, 5])})["f"].tolist()
    [[1.0, 0.5], [2.0, 5.0]]
    """
    groups: dict[str, list[np.ndarray]] = {}
    for key, column in columns.items():
        groups.setdefault(key.partition(" ")[0], []).append(column)
    return {name: group[0] if len(group) == 1 else np.stack(group, 1) for name, group in groups.items()}


def widths_of(names: Sequence[str]) -> dict[str, int]:
    """Of these columns what arcs carry, and how wide: 0 is a list, that of one column.

    >>> widths_of(["weight", "f", "_", "time", "f"])
    {'f': 2, 'time': 0}
    """
    counts = Counter(name for name in names if name not in (SKIP, "weight"))
    return {name: count if count > 1 else 0 for name, count in counts.items()}


def _read(data: bytes, path: str | Path, start: int, extra: Sequence[str] | None) -> dict[str, np.ndarray]:
    body, delimiter, columns = _prepare(without_comments(data[start:]), path)
    found = _parse(body, delimiter, columns, extra, data, path, start)
    first, second = found["source"], found["target"]
    if len(first) and min(first.min(), second.min()) < 0:
        raise _fault(data, path, start, extra)
    return found


def _weights(found: dict[str, np.ndarray]) -> np.ndarray | None:
    if "weight" not in found:
        return None
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which Graph refuses
        return found["weight"].astype(np.float32)


def leading_comments(data: bytes) -> bytes:
    """The comment lines at the top.

    >>> leading_comments(b"# a\\n% b\\n0 1\\n# c\\n")
    b'# a\\n% b\\n'
    """
    at = 0
    while match := _COMMENT.match(data, at):
        at = match.end()
    return data[:at]


def without_comments(data: bytes) -> bytes:
    """The other lines.

    >>> without_comments(b"# a\\n0 1\\n % b\\n")
    b'0 1\\n'
    """
    body = data[len(leading_comments(data)) :]
    if any(mark in body for mark in (b"#", b"%")):
        body = _COMMENT.sub(b"", body)
    return body


def first_arc(head: bytes, path: str | Path) -> tuple[int, str, int]:
    """Where the arcs of a text begin, after a header and comments; what separates columns; how many.

    >>> first_arc(b"# c\\nfrom,to\\n0,1\\n", "toy.csv")
    (12, ',', 2)
    """
    if b"\x00" in head[:4096]:
        raise UserError(f"{path} is not a text file. Give an edge list: source and target, one arc a line.")
    at = len(head) - len(head.lstrip(b"\xef\xbb\xbf\r\n \t"))
    header = True
    while at < len(head):
        end = head.find(b"\n", at)
        end = len(head) if end < 0 else end + 1
        line = head[at:end].strip()
        if line and line[:1] not in b"#%":
            if not header or any(_is_number(word) for word in _words(line)):
                mark = "," if b"," in line else "\t" if b"\t" in line else " "
                return at, mark, len(_words(line))
            header = False
        at = end
    return at, " ", 2


def _prepare(body: bytes, path: str | Path) -> tuple[bytes, str, int]:
    """Skip a header, find separator and number of columns, even out runs of blanks."""
    start, delimiter, columns = first_arc(body, path)
    return *even(body[start:], delimiter), columns


def even(body: bytes, delimiter: str) -> tuple[bytes, str]:
    """One blank between columns, none around lines; what separates columns then.

    >>> even(b" 0\\t 1 \\n", "\\t")
    (b'0 1\\n', ' ')
    """
    ragged = (b"  ", b"\t ", b" \t", b"\t\t", b" \n", b"\t\n", b" \r", b"\t\r", b"\n ", b"\n\t")
    if delimiter == "," or not (any(run in body for run in ragged) or (b"\t" in body and b" " in body)):
        return body, delimiter
    body = re.sub(rb"[ \t]+", b" ", body)
    return re.sub(rb"(?m)^ | (?=\r?$)", b"", body), " "


def parse_lines(
    block: bytes, delimiter: str, columns: int, extra: Sequence[str] | None
) -> dict[str, np.ndarray]:
    """The columns, by name, of some lines out of the middle of a file; `ValueError` where one does not fit.

    >>> parse_lines(b"0 1\\n# c\\n2  3\\n", " ", 2, None)["target"].tolist()
    [1, 3]
    """
    return _arrow(*even(without_comments(block), delimiter), columns, extra)


def wrong_line(line: bytes, columns: int, extra: Sequence[str] | None) -> str:
    """What is wrong with a line that should have so many columns; empty where nothing is.

    >>> wrong_line(b"0 x", 2, None)
    "id 'x' is not a whole number. Number the vertices from 0."
    """
    text = line.strip()
    if not text or text[:1] in b"#%":
        return ""
    words = _words(text)
    if remedy := _wrong_count(len(words), columns, extra):
        return f"{len(words)} columns in {_show(text)}. {remedy}"
    return _wrong_word(words, ["weight"] if extra is None else extra)


def column_names(columns: int, extra: Sequence[str] | None) -> list[str]:
    """The names of all columns, the two ids first; those of one name are told apart by a number.

    >>> column_names(3, None), column_names(5, ["_", "f", "f"])
    (['source', 'target', 'weight'], ['source', 'target', '_', 'f', 'f 1'])
    """
    names, seen = ["source", "target"], Counter[str]()
    for name in ["weight"][: columns - 2] if extra is None else extra:
        names.append(f"{name} {seen[name]}" if seen[name] and name != SKIP else name)
        seen[name] += 1
    return names


def _parse(
    body: bytes, delimiter: str, columns: int, extra: Sequence[str] | None, data: bytes, path: str | Path,
    start: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The columns by name; those that nobody named are not converted."""
    try:
        return _arrow(body, delimiter, columns, extra)
    except ValueError as error:
        raise _fault(data, path, start, extra, str(error)) from None


def _arrow(body: bytes, delimiter: str, columns: int, extra: Sequence[str] | None) -> dict[str, np.ndarray]:
    import pyarrow as pa  # here: a rank that reads a store does not wait for it
    import pyarrow.csv as pacsv

    names = column_names(columns, extra)
    if not body.strip():
        return {name: np.zeros(0, dtype=np.int64) for name in names if name != SKIP}
    if columns != len(names):
        raise ValueError(f"{columns} columns")
    wanted = [name for name in names if name != SKIP]
    kinds = dict.fromkeys(wanted, pa.int64()) | {"weight": pa.float64()}
    unique = [f"{SKIP}{at}" if name == SKIP else name for at, name in enumerate(names)]
    while True:
        try:
            table = pacsv.read_csv(
                pa.py_buffer(body),
                read_options=pacsv.ReadOptions(column_names=unique, block_size=1 << 23),
                parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
                convert_options=pacsv.ConvertOptions(
                    column_types=kinds, include_columns=wanted, null_values=[], strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            odd = _COLUMN.search(str(error))
            name = unique[int(odd[1])] if odd and int(odd[1]) < len(unique) else ""
            if kinds.get(name) != pa.int64() or name in ("source", "target"):
                raise
            kinds[name] = pa.float64()  # not all of it is whole
            continue
        return {name: table[name].to_numpy() for name in wanted}


def _fault(
    data: bytes, path: str | Path, start: int, extra: Sequence[str] | None, otherwise: str = ""
) -> UserError:
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
        if remedy := _wrong_count(len(words), expected, extra):
            return UserError(f"{where}: {len(words)} columns in {_show(text)}. {remedy}")
        if wrong := _wrong_word(words, ["weight"] if extra is None else extra):
            return UserError(f"{where}: {wrong}")
    detail = " ".join(otherwise.split())[:120]
    return UserError(f"{path} is not an edge list ({detail}). Give source and target, one arc a line.")


def _wrong_count(count: int, expected: int, extra: Sequence[str] | None) -> str:
    """What to do where a line has another number of columns than it should; empty where it has not."""
    if extra is not None:
        told = ", ".join(["source", "target", *extra])
        return "" if count == 2 + len(extra) else f"Give {2 + len(extra)}: {told}."
    if count not in (2, 3):
        more = ", or name the others: --arc-columns weight,time" if count > 3 else ""
        return f"Give source, target and perhaps a weight{more}."
    return "" if count == expected else f"Give {expected}, as above."


def _wrong_word(words: list[bytes], extra: Sequence[str]) -> str:
    """What is wrong with an arc's columns; empty where nothing is."""
    for word in words[:2]:
        if not re.fullmatch(rb"-?\d+", word):
            return f"id {_show(word)} is not a whole number. Number the vertices from 0."
        if word.startswith(b"-"):
            return f"id {_show(word)} is negative. Number the vertices from 0."
        if len(word) > 19 or int(word) >= 2**63:
            return f"id {_show(word)} does not fit into 63 bits. Use smaller ids."
    for name, word in zip(extra, words[2:], strict=False):
        if name != SKIP and not _is_number(word):
            return f"{name} {_show(word)} is not a number. Correct it."
    return ""


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

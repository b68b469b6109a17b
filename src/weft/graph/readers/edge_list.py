"""Edge lists: one arc a line, `source target [weight]`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import torch

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import read_bytes, stem

_COMMENT = re.compile(rb"(?m)^[ \t]*[#%][^\n]*(?:\n|\Z)")
_HEAD_NODES = re.compile(rb"(?mi)^[#%].*?\bNodes:\s*(\d{1,18})\b")
_HEAD_UNDIRECTED = re.compile(rb"(?mi)^[#%]\s*undirected graph\b")


def read_edge_list(path: str | Path, undirected: bool | None = None, num_nodes: int | None = None) -> Graph:
    """The graph of an edge list: .txt, .tsv or .csv, perhaps gzip.

        source<sep>target[<sep>weight]      sep: tab, spaces or comma; '#' and '%' begin a comment line

    A first line without any number is a header and skipped. Each arc goes source → target. With
    `undirected` both directions are stored; None asks the comments, as SNAP writes "# Undirected graph".
    Ids that do not fill 0..n-1 are compacted in ascending order and kept in `Graph.ids`; where `num_nodes` or
    a comment "# Nodes: n" says that n is larger than every id, ids stay, and vertices without arcs count.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.txt"
    ...     _ = path.write_text("# a comment\\n10 20\\n20 70\\n")
    ...     g = read_edge_list(path)
    >>> g, g.ids.tolist(), g.indices.tolist()
    (Graph(toy: 3 vertices, 2 arcs), [10, 20, 70], [0, 1])
    """
    data = read_bytes(path)
    body, head = _strip_comments(data)
    if undirected is None:
        undirected = bool(_HEAD_UNDIRECTED.search(head))
    body, delimiter, columns = _prepare(body, path)
    source, target, weights = _parse(body, delimiter, columns, data, path)
    if len(source) and min(source.min(), target.min()) < 0:
        raise _fault(data, path)

    said = _HEAD_NODES.search(head)
    top = int(max(source.max(initial=-1), target.max(initial=-1)))
    if num_nodes is not None and top >= num_nodes:
        raise UserError(f"{path}: vertex id {top} is out of range for {num_nodes} vertices. Correct the id.")
    ids: np.ndarray | None = None
    n = num_nodes
    if n is None and said and top < int(said[1]):
        n = int(said[1])
    if n is None:
        ids, source, target = _compact(source, target, top)
        n = top + 1 if ids is None else len(ids)
    check_fits(8 * (n + 1), f"{path}: {n} vertices")
    kept = None if ids is None else torch.from_numpy(ids)
    with about(path):
        graph = Graph.from_arcs(source, target, n, weights, ids=kept, name=stem(path))
    return graph.symmetrised() if undirected else graph


def _strip_comments(data: bytes) -> tuple[bytes, bytes]:
    """The lines with arcs, and the comments at the top."""
    at = 0
    while match := _COMMENT.match(data, at):
        at = match.end()
    head, body = data[:at], data[at:]
    if any(mark in body for mark in (b"#", b"%")):
        body = _COMMENT.sub(b"", body)
    return body, head


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


def _parse(
    body: bytes, delimiter: str, columns: int, data: bytes, path: str | Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    if not body.strip():
        none = np.zeros(0, dtype=np.int64)
        return none, none, None
    if columns not in (2, 3):
        raise _fault(data, path)
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
        raise _fault(data, path, str(error)) from None
    arrays = [table[name].to_numpy() for name in names]
    weights = arrays[2].astype(np.float32) if columns == 3 else None
    return arrays[0], arrays[1], weights


def _compact(
    source: np.ndarray, target: np.ndarray, top: int
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The ids that occur, ascending, and the arcs renumbered; None for the ids 0, 1, …, n-1."""
    if top < 8 * len(source) + 1024:
        present = np.zeros(top + 1, dtype=bool)
        present[source] = True
        present[target] = True
        if present.all():
            return None, source, target
        rank = np.cumsum(present) - 1
        return np.nonzero(present)[0], rank[source], rank[target]
    ids, rank = np.unique(np.concatenate([source, target]), return_inverse=True)
    return ids, rank[: len(source)], rank[len(source) :]


def _fault(data: bytes, path: str | Path, otherwise: str = "") -> UserError:
    """The error for the first line that is no arc. Slow and careful: it runs once, on the way out."""
    seen_arc = False
    expected = 0
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
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

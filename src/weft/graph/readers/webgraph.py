"""WebGraph's BV format (Boldi and Vigna, 2004): NAME.graph, a stream of bits, and NAME.properties beside it.

Vertex x after vertex x, in the codes that the properties name (by default γ, of residuals ζ_k, of references
unary):

    outdegree d;  where d > 0:
    reference r           the list of vertex x − r, of the last `windowsize`, is copied in blocks (r = 0: not)
    block count, blocks   alternately copied and skipped; an even count copies the rest
    interval count, (first, length)…    runs of consecutive vertices, of at least `minintervallength`
    residuals             what is left, ascending, as differences

It is decoded by Python, about a million arcs in some seconds: convert a large graph once (`weft convert`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.readers.files import existing_file, read_bytes, stem

_CLASS = "BVGraph"
_FIELDS = ("OUTDEGREES", "BLOCKS", "RESIDUALS", "REFERENCES", "BLOCK_COUNT", "OFFSETS")
_CODES = ("GAMMA", "DELTA", "UNARY", "ZETA")
_MOST_WINDOW = 1 << 16


@dataclass(frozen=True)
class Properties:
    """What NAME.properties says."""

    nodes: int
    arcs: int
    window: int
    least_interval: int
    zeta: int
    codes: dict[str, str]


def is_webgraph(path: Path) -> bool:
    """Whether this is a .graph with its .properties beside it, or the latter.

    >>> is_webgraph(Path("no/such.graph"))
    False
    """
    return (
        path.suffix in (".graph", ".properties")
        and path.with_suffix(".graph").is_file()
        and path.with_suffix(".properties").is_file()
    )


def read_webgraph(path: str | Path) -> Graph:
    """The graph of NAME.graph and NAME.properties; either may be named.

    Successors of x are the arcs x → successor.

    >>> read_webgraph("no/such.graph")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: no file no/such.properties. Check the path.
    """
    path = Path(path)
    told = read_properties(path.with_suffix(".properties"))
    data_path = existing_file(path.with_suffix(".graph"))
    held = data_path.stat().st_size
    if told.nodes > 8 * held + 8:
        raise UserError(f"{data_path}: {held:,} bytes cannot hold {told.nodes:,} vertices. Fetch it again.")
    check_fits(24 * told.arcs + 24 * told.nodes, f"{data_path}: {told.arcs:,} arcs", held=held)
    degrees, successors = decode(data_path.read_bytes(), told, data_path)
    with about(data_path):
        source = np.repeat(np.arange(told.nodes), degrees)
        return Graph.from_arcs(source, successors, told.nodes, name=stem(path.with_suffix("")))


def read_properties(path: Path) -> Properties:
    """The numbers and codes of a properties file, checked."""
    try:
        text = read_bytes(path).decode("latin-1")
    except UnicodeDecodeError:  # pragma: no cover - latin-1 takes every byte
        raise UserError(f"{path} is no text. Fetch it again.") from None
    found = dict(re.findall(r"(?m)^[ \t]*([^#!\s=:][^=:\s]*)[ \t]*[=:][ \t]*(.*?)[ \t\r]*$", text))
    kind = found.get("graphclass", _CLASS)
    if not kind.split(".")[-1].endswith(_CLASS):
        raise UserError(f"{path}: graphclass {kind[:60]} is not {_CLASS}. Export it as an edge list.")

    def number(key: str, default: int | None = None, most: int = 1 << 48) -> int:
        given = found.get(key)
        if given is None and default is not None:
            return default
        if given is None or not (given.isdecimal() and given.isascii()) or int(given[:18]) > most:
            raise UserError(
                f"{path}: {key} is {(given or 'missing')[:40]!r}, no number it may be. Fetch it again."
            )
        return int(given)

    codes = dict.fromkeys(_FIELDS, "GAMMA") | {"RESIDUALS": "ZETA", "REFERENCES": "UNARY"}
    for flag in filter(None, (part.strip() for part in found.get("compressionflags", "").split("|"))):
        field, _, code = flag.rpartition("_")
        if field not in codes or code not in _CODES:
            raise UserError(f"{path}: compression flag {flag[:40]} is not known. Export it as an edge list.")
        codes[field] = code
    return Properties(
        number("nodes", most=1 << 40), number("arcs"), number("windowsize", 7, _MOST_WINDOW),
        number("minintervallength", 4), number("zetak", 3, 16), codes,
    )  # fmt: skip


class Bits:
    """Whole numbers out of a stream of bits, the highest bit of a byte first.

    >>> bits = Bits(bytes([0b1_010_0110, 0b0_0000000]), "toy")
    >>> bits.gamma(), bits.gamma(), bits.gamma()     # 1, 010, 011
    (0, 1, 2)
    """

    def __init__(self, data: bytes, name: str | Path):
        self.data, self.name = data, name
        self.at = self.have = self.held = 0

    def _more(self) -> None:
        piece = self.data[self.at : self.at + 64]
        if not piece:
            raise UserError(f"{self.name}: the stream ends at byte {self.at:,}, too early. Fetch it again.")
        self.held = self.held << 8 * len(piece) | int.from_bytes(piece)
        self.have += 8 * len(piece)
        self.at += len(piece)

    def unary(self) -> int:
        """Zeros before a one."""
        while not self.held:
            self._more()
        zeros = self.have - self.held.bit_length()
        self.have -= zeros + 1
        self.held &= (1 << self.have) - 1
        return zeros

    def take(self, count: int) -> int:
        """The next `count` bits as a number."""
        while self.have < count:
            self._more()
        self.have -= count
        found = self.held >> self.have
        self.held &= (1 << self.have) - 1
        return found

    def gamma(self) -> int:
        size = self._size(self.unary())
        return (1 << size | self.take(size)) - 1

    def delta(self) -> int:
        size = self._size(self.gamma())
        return (1 << size | self.take(size)) - 1

    def zeta(self, k: int) -> int:
        h = self._size(self.unary() * k)
        left = 1 << h
        m = self.take(h + k - 1)
        return m + left - 1 if m < left else (m << 1) + self.take(1) - 1

    def _size(self, bits: int) -> int:
        if bits > 64:
            raise UserError(
                f"{self.name}: a number of {bits:,} bits before byte {self.at:,}. Fetch it again."
            )
        return bits

    def reader(self, code: str, zeta: int) -> Callable[[], int]:
        """What reads a number in that code."""
        if code == "ZETA":
            return lambda: self.zeta(zeta)
        return {"GAMMA": self.gamma, "DELTA": self.delta, "UNARY": self.unary}[code]


def decode(data: bytes, told: Properties, name: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """(outdegrees [n], successors [arcs]) of the stream."""
    bits = Bits(data, name)
    read = {field: bits.reader(code, told.zeta) for field, code in told.codes.items()}
    degree_of, reference_of = read["OUTDEGREES"], read["REFERENCES"]
    degrees = np.zeros(told.nodes, np.int64)
    successors = array("q")
    recent: list[list[int]] = [[] for _ in range(max(1, told.window))]

    def wrong(x: int, what: str) -> UserError:
        return UserError(f"{name}: vertex {x:,}, before byte {bits.at:,}: {what}. Fetch it again.")

    for x in range(told.nodes):
        d = degree_of()
        if d > told.nodes or len(successors) + d > told.arcs:
            raise wrong(x, f"{d:,} successors are more than the properties allow")
        row: list[int] = []
        if d:
            copied: list[int] = []
            r = reference_of() if told.window else 0
            if r:
                if r > min(told.window, x):
                    raise wrong(x, f"reference {r} goes beyond the window")
                copied = _copied(recent[(x - r) % len(recent)], read, wrong, x)
            left = d - len(copied)
            runs: list[int] = []
            if left > 0 and told.least_interval:
                runs, left = _intervals(bits, x, left, told.least_interval, wrong)
            if left < 0:
                raise wrong(x, "more successors than its outdegree")
            rest: list[int] = []
            if left:
                residual = read["RESIDUALS"]
                first = residual()
                at = x + (first >> 1 if first % 2 == 0 else -(first + 1 >> 1))
                rest.append(at)
                for _ in range(left - 1):
                    at += residual() + 1
                    rest.append(at)
            row = sorted(copied + runs + rest)
            if row[0] < 0 or row[-1] >= told.nodes:
                raise wrong(x, f"successor {row[0] if row[0] < 0 else row[-1]:,} of {told.nodes:,} vertices")
            successors.extend(row)
        degrees[x] = d
        recent[x % len(recent)] = row
    if len(successors) != told.arcs:
        raise UserError(
            f"{name}: {len(successors):,} arcs, the properties say {told.arcs:,}. Fetch it again."
        )
    return degrees, np.frombuffer(successors, np.int64) if successors else np.empty(0, np.int64)


def _copied(
    other: list[int], read: dict[str, Callable[[], int]], wrong: Callable[[int, str], UserError], x: int
) -> list[int]:
    """The blocks of another list that are taken: the first is, the second is not, and so on."""
    count, block = read["BLOCK_COUNT"](), read["BLOCKS"]
    if count > len(other) + 1:
        raise wrong(x, f"{count:,} blocks of a list of {len(other):,}")
    found: list[int] = []
    at = 0
    for number in range(count):
        size = block() + (number > 0)
        if at + size > len(other):
            raise wrong(x, f"blocks go beyond a list of {len(other):,}")
        if number % 2 == 0:
            found += other[at : at + size]
        at += size
    return found if count % 2 else found + other[at:]


def _intervals(
    bits: Bits, x: int, left: int, least: int, wrong: Callable[[int, str], UserError]
) -> tuple[list[int], int]:
    """(vertices of the runs, successors that are still to come)."""
    found: list[int] = []
    end = 0
    for number in range(_bounded(bits.gamma(), left, x, wrong)):
        given = bits.gamma()
        if number:
            first = end + given + 1
        else:
            first = x + (given >> 1 if given % 2 == 0 else -(given + 1 >> 1))
        size = _bounded(bits.gamma() + least, left, x, wrong)
        found += range(first, first + size)
        end = first + size
        left -= size
    return found, left


def _bounded(value: int, most: int, x: int, wrong: Callable[[int, str], UserError]) -> int:
    if value > most:
        raise wrong(x, f"intervals of more than the {most:,} successors that are left")
    return value

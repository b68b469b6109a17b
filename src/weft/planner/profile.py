"""What a machine is good for: seconds of kernels and messages, measured once, kept as JSON.

    links     seconds of a message by its bytes, within a host and between two; how much work hides of it
    kernels   seconds an arc (a multiply-add, a sampled arc) over width, degree and the size of x
    memory    bytes a second of a plain pass; bytes of a rank that does nothing
    ranks     how much slower all ranks of a host are together; how much of a core each then gets; how much
              faster threads make one

A profile may come from another machine, or be written by hand: every field is checked when it is read.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
import json
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError, printable

FORMAT = 1
OTHERS = ("attend", "dense", "pass")
"""Work that threads and other ranks change in its own way, beside walks over sparse matrices."""
OLD_DAYS = 90
"""From this age on, `weft train` says that a profile is old."""
_MOST_BYTES = 4 << 20
_MOST_POINTS = 10_000
_KERNELS = {
    "spmm": ("width", "degree", "bytes"), "attend": ("width", "degree", "bytes"),
    "attend_back": ("width", "degree", "bytes"), "channel": ("width", "degree", "bytes"),
    "channel_back": ("width", "degree", "bytes"), "dense": ("inputs", "outputs"),
    "outer": ("inputs", "outputs"), "sample": ("fanout",), "dropout": ("width",),
}  # fmt: skip
"""The tables, and what each is over. `channel`: attention that looks at each channel of an arc, as GATv2's;
`_back`: the walk back; `outer`: hᵀ dy, a product whose inner dim is the long one."""


@dataclass(frozen=True)
class Curve:
    """y over x, straight between points on logarithmic scales; beyond the last point as steep as before it.

    >>> Curve((1.0, 100.0), (2.0, 20.0)).at(10)
    6.324555320336759
    >>> Curve((1.0, 10.0), (1.0, 10.0)).at(1000), Curve((1.0, 10.0), (3.0, 10.0)).at(0)
    (1000.0, 3.0)
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def at(self, x: float) -> float:
        if x <= self.x[0] or len(self.x) == 1:
            return self.y[0]
        place = min(bisect.bisect_left(self.x, x), len(self.x) - 1)
        (x0, x1), (y0, y1) = self.x[place - 1 : place + 1], self.y[place - 1 : place + 1]
        if x > self.x[-1]:
            return max(y1, y1 + (y1 - y0) / (x1 - x0) * (x - x1))  # a long message goes on at its bandwidth
        return y0 * (y1 / y0) ** (math.log(x / x0) / math.log(x1 / x0))


@dataclass(frozen=True)
class Table:
    """A number over several axes, between points by logarithms; outside it that of the nearest point.

    >>> table = Table(("width", "degree"), ((1.0, 100.0), (4.0,)), (1.0, 10.0))
    >>> round(table.at(width=10, degree=7), 4), round(table.at(width=1e9, degree=1), 4)
    (3.1623, 10.0)
    """

    names: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]
    """In the order of `itertools.product(*points)`."""

    def at(self, **where: float) -> float:
        corners: list[tuple[float, list[int]]] = [(1.0, [])]
        for name, points in zip(self.names, self.points, strict=True):
            x = min(max(where[name], points[0]), points[-1])
            right = min(bisect.bisect_left(points, x), len(points) - 1)
            left = right if points[right] == x or right == 0 else right - 1
            share = (
                0.0 if left == right else math.log(x / points[left]) / math.log(points[right] / points[left])
            )
            corners = [
                (weight * part, [*at, place])
                for weight, at in corners
                for place, part in ((left, 1 - share), (right, share))
                if part > 0
            ]
        total = 0.0
        for weight, at in corners:
            index = 0
            for place, points in zip(at, self.points, strict=True):
                index = index * len(points) + place
            total += weight * math.log(self.values[index])
        return math.exp(total)


@dataclass(frozen=True)
class Link:
    """Messages between two ranks."""

    seconds: Curve
    """Of one `iswap`, over its bytes."""
    overlap: float = 0.0
    """The share of it that travels while the ranks compute."""

    @classmethod
    def of_bandwidth(cls, latency: float, bandwidth: float, overlap: float = 0.0) -> Link:
        """latency + bytes / bandwidth.

        >>> round(Link.of_bandwidth(1e-5, 1e9).seconds.at(1e8), 4)
        0.1
        """
        sizes = tuple(float(4**k) for k in range(15))
        return cls(Curve(sizes, tuple(latency + size / bandwidth for size in sizes)), overlap)


FAR = "_far"
_NEAR = ("walk", "attend", "dense", "pass")
_MESSAGES = ("short", "long")
KINDS = (*_NEAR, *(kind + FAR for kind in _NEAR), "call", *_MESSAGES, *(kind + FAR for kind in _MESSAGES))
"""Kinds of steps: walks over sparse matrices, those of attention, dense products, plain passes, each where
what all ranks of a host touch in it fits into caches and where it comes from far; what an operation costs
however small it is; of messages the part that the shortest take, and the rest, within a host and between
two."""


@dataclass(frozen=True)
class Proved:
    """The trainer's own step, foretold and measured on so many ranks."""

    ranks: int
    hosts: int
    threads: int
    factors: Mapping[str, float]
    """Kind of step → how much longer it takes than foretold."""
    error: float
    """What is left between both, as a share: the median."""

    def as_list(self) -> list[Any]:
        """What travels."""
        return [self.ranks, self.hosts, self.threads, dict(self.factors), self.error]

    @classmethod
    def of(cls, told: Sequence[Any]) -> Proved:
        return cls(*told)

    def far(self, ranks: int, hosts: int, threads: int) -> float:
        """How unlike other ranks are."""
        crowd, others = self.ranks / self.hosts, ranks / hosts
        apart = abs(math.log(crowd / others)) + abs(math.log(self.threads / threads))
        return apart + abs(math.log(self.hosts / hosts)) / 2 + 10 * ((self.hosts > 1) != (hosts > 1))


@dataclass(frozen=True)
class Profile:
    """One machine."""

    host: str
    cores: int
    isa: str
    date: str
    version: str
    memory_bytes: int
    idle_bytes: int
    """Of a rank that has loaded weft and done nothing."""
    bandwidth: float
    """Bytes a second of one rank that reads and writes alone."""
    call_seconds: float
    """What an operation costs however small it is."""
    inside: Link
    between: Link | None
    """None: one host was measured."""
    kernels: Mapping[str, Table]
    speedup: Curve
    """Over threads: how much faster than one a walk over a sparse matrix is."""
    slowdown: Curve
    """Over ranks of a host: how much more of a core's time such a walk takes while all compute."""
    partition: Mapping[str, float]
    """Seconds an arc of the partitioners."""
    share: Curve | None = None
    """Over ranks of a host: how much of a core each gets while all compute. Hosts may share cores, too."""
    crowded: Link | None = None
    """Within a host whose ranks are more than its cores: who waits there sleeps."""
    update_seconds: float = 0.0
    """What a step costs beside its operations: loops, the optimiser, Python."""
    others: Mapping[str, tuple[Curve, Curve]] = field(default_factory=dict)
    """(speedup, slowdown) of attention, dense products, passes; what is not there goes as walks do."""
    proved: tuple[Proved, ...] = ()
    seconds: float = 0.0
    """That measuring it took; 0: nobody noted it."""

    def factors(self, ranks: int, hosts: int = 1, threads: int = 1) -> Mapping[str, float]:
        """Those of the ranks most alike; none where the profile was not proved.

        >>> from dataclasses import replace
        >>> from weft.planner.default import default_profile
        >>> one = Proved(1, 1, 2, {"walk": 1.5}, 0.1)
        >>> both = replace(default_profile(), proved=(one, Proved(4, 1, 1, {"walk": 2.0}, 0.1)))
        >>> both.factors(1, 1, 2), both.factors(8), both.factors(4, 4), default_profile().factors(2)
        ({'walk': 1.5}, {'walk': 2.0}, {}, {})
        """
        alike = min(self.proved, key=lambda p: p.far(ranks, hosts, threads), default=None)
        return {} if alike is None or (alike.hosts > 1) != (hosts > 1) else alike.factors

    @property
    def days(self) -> int:
        """Its age."""
        return (datetime.datetime.now(datetime.UTC).date() - datetime.date.fromisoformat(self.date)).days

    def foreign(self) -> str:
        """Why it is not of this machine; empty where it is."""
        from ..comm.launch import host_cores

        cores = len(host_cores())
        if self.host != socket.gethostname():
            return f"of host {self.host}, this is {socket.gethostname()}"
        if self.cores != cores:
            return f"of {self.cores} cores, here are {cores}"
        return ""

    def doubts(self) -> str:
        """One line where it is old or foreign, else nothing."""
        if why := self.foreign():
            return f"the machine profile is {why}. Use: weft calibrate"
        return (
            f"the machine profile is {self.days} days old. Use: weft calibrate"
            if self.days > OLD_DAYS
            else ""
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""

        def link(found: Link | None) -> dict[str, Any] | None:
            if found is None:
                return None
            return {**curve(found.seconds, "bytes", "seconds"), "overlap": found.overlap}

        def curve(found: Curve, x: str, y: str) -> dict[str, Any]:
            return {x: list(found.x), y: list(found.y)}

        return {
            "weft_profile": FORMAT, "host": self.host, "cores": self.cores, "isa": self.isa,
            "date": self.date, "version": self.version, "memory_bytes": self.memory_bytes,
            "idle_bytes": self.idle_bytes, "bandwidth": self.bandwidth, "call_seconds": self.call_seconds,
            "inside": link(self.inside),
            "between": link(self.between),
            "kernels": {
                name: {
                    "axes": dict(zip(t.names, map(list, t.points), strict=True)), "seconds": list(t.values),
                }
                for name, t in self.kernels.items()
            },
            "speedup": curve(self.speedup, "threads", "factor"),
            "slowdown": curve(self.slowdown, "ranks", "factor"), "partition": dict(self.partition),
            "share": None if self.share is None else curve(self.share, "ranks", "cores"),
            "crowded": link(self.crowded), "update_seconds": self.update_seconds,
            "others": {
                name: {"speedup": curve(up, "threads", "factor"), "slowdown": curve(down, "ranks", "factor")}
                for name, (up, down) in self.others.items()
            },
            "proved": [
                {"ranks": p.ranks, "hosts": p.hosts, "threads": p.threads, "factors": dict(p.factors),
                 "error": p.error}
                for p in self.proved
            ],
            "seconds": self.seconds,
        }  # fmt: skip


# From and to the disk.


def folder() -> Path:
    """Where profiles lie: $XDG_CACHE_HOME/weft, or ~/.cache/weft."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def path_of(host: str | None = None) -> Path:
    """The profile of a host, by default this one."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", host or socket.gethostname()).lstrip(".") or "host"
    return folder() / f"profile-{name[:200]}.json"


def write_profile(profile: Profile, path: Path) -> Path:
    """Keep it: a newer one takes the place of an older one, in one step."""
    text = json.dumps(profile.as_dict(), indent=1) + "\n"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror}. Set XDG_CACHE_HOME to another folder."
        ) from None
    return path


def read_profile(path: Path) -> Profile:
    """A profile from a file; each damage is one line that names the field."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UserError(f"{path} is no plain file. Make a profile: weft calibrate.")
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} is too large for a profile. Make one: weft calibrate.")
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except FileNotFoundError:
        raise UserError(f"no file {path}. Make a profile: weft calibrate.") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is no profile: {_first(error)}. Make one: weft calibrate.") from None
    return parse_profile(found, str(path))


def parse_profile(found: object, name: str = "this") -> Profile:
    """A profile from what JSON holds."""
    try:
        return _profile(_Fields(found, ""))
    except _Odd as odd:
        raise UserError(f"{name} is no profile: {odd}. Make one: weft calibrate.") from None


def own_profile() -> Profile | None:
    """This host's, where it was calibrated."""
    path = path_of()
    return read_profile(path) if path.exists() else None


def _first(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return (text.splitlines() or ["it cannot be read"])[0][:100]


class _Odd(Exception):
    """What is wrong with a field."""


class _Fields:
    """An object of JSON, its fields checked one by one."""

    def __init__(self, found: object, where: str):
        if not isinstance(found, dict):
            raise _Odd(f"{where or 'its content'} is no object")
        self._found, self._where = found, where

    def _take(self, name: str) -> tuple[Any, str]:
        where = f"{self._where}.{name}" if self._where else name
        if name not in self._found:
            raise _Odd(f"{where} is missing")
        return self._found[name], where

    def text(self, name: str) -> str:
        value, where = self._take(name)
        if not isinstance(value, str) or len(value) > 1000:
            raise _Odd(f"{where} is no text")
        return printable(value)  # it is shown to people

    def number(self, name: str, least: float, most: float) -> float:
        return _number(*self._take(name), least, most)

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.number(name, least, most)
        if value != int(value):
            raise _Odd(f"{name} is no whole number")
        return int(value)

    def numbers(self, name: str, least: float, most: float, rising: bool = False) -> tuple[float, ...]:
        value, where = self._take(name)
        if not isinstance(value, list) or not 0 < len(value) <= _MOST_POINTS:
            raise _Odd(f"{where} is no list of numbers")
        found = tuple(_number(each, where, least, most) for each in value)
        if rising and any(a >= b for a, b in itertools.pairwise(found)):
            raise _Odd(f"{where} does not rise")
        return found

    def part(self, name: str) -> _Fields:
        return _Fields(*self._take(name))

    def parts(self, name: str) -> list[_Fields]:
        value, where = self._take(name)
        if not isinstance(value, list) or len(value) > _MOST_POINTS:
            raise _Odd(f"{where} is no list")
        return [_Fields(each, f"{where}[{place}]") for place, each in enumerate(value)]

    def names(self) -> Iterator[str]:
        for name in self._found:
            yield str(name)

    def absent(self, name: str) -> bool:
        return self._take(name)[0] is None

    def lacks(self, name: str) -> bool:
        """The same of a field that older profiles do not have."""
        return self._found.get(name) is None


def _number(value: object, where: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Odd(f"{where} is no number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not least <= found <= most:
        raise _Odd(f"{where} is {found:g}, not between {least:g} and {most:g}")
    return found


def _curve(found: _Fields, x: str, y: str) -> Curve:
    curve = Curve(found.numbers(x, 1e-9, 1e18, rising=True), found.numbers(y, 1e-12, 1e9))
    if len(curve.x) != len(curve.y):
        raise _Odd(f"{x} has {len(curve.x)} numbers, {y} {len(curve.y)}")
    return curve


def _link(found: _Fields) -> Link:
    return Link(_curve(found, "bytes", "seconds"), found.number("overlap", 0, 1))


def _others(found: _Fields) -> dict[str, tuple[Curve, Curve]]:
    made = {}
    for name in OTHERS:
        if found.lacks(name):
            continue
        each = found.part(name)
        made[name] = (
            _curve(each.part("speedup"), "threads", "factor"),
            _curve(each.part("slowdown"), "ranks", "factor"),
        )
    return made


def _factor(found: _Fields, kind: str) -> float:
    """Of a kind of step; profiles of before November 2026 have one for all messages, near and far."""
    near = kind.removesuffix(FAR)
    return found.number(near if near in _MESSAGES and found.lacks(kind) else kind, 1e-3, 1e3)


def _proved(found: _Fields) -> tuple[Proved, ...]:
    made = []
    for each in found.parts("proved"):
        factors = each.part("factors")
        made.append(
            Proved(
                each.whole("ranks", 1, 1 << 20), each.whole("hosts", 1, 1 << 20),
                each.whole("threads", 1, 1 << 20),
                {kind: _factor(factors, kind) for kind in KINDS}, each.number("error", 0, 1e3),
            )
        )  # fmt: skip
    return tuple(made)


def _table(found: _Fields, names: Sequence[str]) -> Table:
    axes = found.part("axes")
    points = tuple(axes.numbers(name, 1e-9, 1e18, rising=True) for name in names)
    values = found.numbers("seconds", 1e-15, 1e6)
    wanted = math.prod(map(len, points))
    if len(values) != wanted:
        raise _Odd(f"a table has {len(values)} numbers for {wanted} points")
    return Table(tuple(names), points, values)


def _profile(found: _Fields) -> Profile:
    if found.number("weft_profile", 0, 1e9) != FORMAT:
        raise _Odd(f"it is of another format than {FORMAT}")
    date = found.text("date")
    with _as_odd(f"date {date[:20]!r} is none"):
        datetime.date.fromisoformat(date)
    kernels, rates = found.part("kernels"), found.part("partition")
    return Profile(
        found.text("host"), found.whole("cores", 1, 1 << 20), found.text("isa"), date, found.text("version"),
        found.whole("memory_bytes", 1, 1 << 60), found.whole("idle_bytes", 0, 1 << 60),
        found.number("bandwidth", 1, 1e18), found.number("call_seconds", 0, 10), _link(found.part("inside")),
        None if found.absent("between") else _link(found.part("between")),
        {name: _table(kernels.part(name), axes) for name, axes in _KERNELS.items()},
        _curve(found.part("speedup"), "threads", "factor"), _curve(found.part("slowdown"), "ranks", "factor"),
        {name: rates.number(name, 0, 1e6) for name in rates.names()},
        None if found.lacks("share") else _curve(found.part("share"), "ranks", "cores"),
        None if found.lacks("crowded") else _link(found.part("crowded")),
        0.0 if found.lacks("update_seconds") else found.number("update_seconds", 0, 10),
        {} if found.lacks("others") else _others(found.part("others")),
        () if found.lacks("proved") else _proved(found),
        0.0 if found.lacks("seconds") else found.number("seconds", 0, 1e9),
    )  # fmt: skip


@contextmanager
def _as_odd(text: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise _Odd(text) from None


def tabulate(names: Sequence[str], points: Sequence[Sequence[float]], measure: Callable[..., float]) -> Table:
    """A table of `measure(*point)` at every point.

    >>> tabulate(["width"], [[1, 2]], lambda width: width / 2).values
    (0.5, 1.0)
    """
    values = tuple(measure(*point) for point in itertools.product(*points))
    return Table(tuple(names), tuple(tuple(map(float, axis)) for axis in points), values)

"""Spaces: what the rows of a tensor stand for, and which of them lie on this rank.

A tensor of a shared graph has one dim that is spread over the ranks. Its tag says which dim, and of which
space its rows are:

    vertices      [n_own]     row k belongs to vertex ids[k]
    arcs          [m_own]     an arc lies with its target
    a subset      x[mask]
    some after others         torch.cat, such as arcs and then the loops that were added
    each of them k times      [n_own, k] seen as [n_own · k]
    all of them k times       [k, n_own] seen as [k · n_own]

Tensors of two spaces are never mixed: x[mask] + x is refused here as it is in one process.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..parallel import Blocks


class Space:
    """Rows spread over the ranks: `size` of them here, `total` everywhere, each with a number of its own.

    span     a bound of the numbers, the same on every rank: ids[k] < span
    places   the rows' places in the tensor that one process would have
    family   which numbers these are: two spaces of one family number rows alike
    indices  what is known of indices into it (`places.chosen`)
    """

    def __init__(self, comm: Communicator, size: int, span: int, name: str, family: Any = None):
        self.comm, self.size, self.span, self.name = comm, size, span, name
        self.family = id(self) if family is None else family
        self._ids: Tensor | None = None
        self._total: int | None = None
        self._places: Tensor | None = None
        self._made: dict[Any, Space] = {}
        self.indices: dict[int, Any] = {}

    @property
    def ids(self) -> Tensor:
        """[size] int64: the number of each row here; no two rows of all ranks have the same one."""
        if self._ids is None:
            self._ids = self._number()
        return self._ids

    @property
    def total(self) -> int:
        """Rows on all ranks. Where nobody knows it yet, ranks tell each other, once."""
        if self._total is None:
            self._total = self._count()
        return self._total

    def _number(self) -> Tensor:
        raise NotImplementedError

    def _count(self) -> int:
        here = torch.tensor([self.size], dtype=torch.int64, device="cpu")
        return int(self.comm.all_reduce(here, phase="count"))

    @property
    def places(self) -> Tensor:
        """[size] int64: where the rows here stand in the tensor of one process. Every rank calls it."""
        if self._places is None:
            self._places = self._place()
        return self._places

    def _place(self) -> Tensor:
        raise NotImplementedError

    def subset(self, mask: Tensor) -> Space:
        """The rows where `mask` holds. One mask makes one space, so that x[mask] and y[mask] agree."""
        kept = mask.__dict__.get("_weft_subset")
        if kept is not None and kept[0] == mask._version and kept[1] is self:
            found: Space = kept[2]
            return found
        made = _Subset(self, mask)
        mask.__dict__["_weft_subset"] = (mask._version, self, made)
        return made

    def times(self, k: int) -> Space:
        """Each row k times, one after the other: rows of [size, k, …] seen as [size · k, …]."""
        if k == 1:
            return self
        return self._made.setdefault(k, Times(self, k))

    def __repr__(self) -> str:
        return f"{self.name} ({self.size} here)"


class Root(Space):
    """Vertices or arcs of a shared graph, by their numbers in the whole one.

    blocks   of vertices: who owns which, on which grid
    sparse   whether products with A send only the rows that are read
    """

    def __init__(
        self, comm: Communicator, ids: Tensor, total: int, name: str, blocks: Blocks | None = None,
        sparse: bool = True,
    ):  # fmt: skip
        super().__init__(comm, ids.numel(), total, name)
        self._ids, self._total, self.blocks, self.sparse = ids, total, blocks, sparse

    def _place(self) -> Tensor:
        return self.ids


class _Subset(Space):
    def __init__(self, of: Space, mask: Tensor):
        super().__init__(
            of.comm, int(mask.sum()), of.span, f"some {of.name.removeprefix('some ')}", of.family
        )
        self.of, self._mask = of, mask.detach().clone()

    def _number(self) -> Tensor:
        return self.of.ids[self._mask.to(self.of.ids.device)]

    def _place(self) -> Tensor:
        if self.total == self.of.total:
            return self.of.places
        own = self.of.places[self._mask.to(self.of.ids.device)]
        everybody = self.comm.all_gather(own.contiguous(), phase="plan").sort().values
        return torch.searchsorted(everybody, own)


class Times(Space):
    def __init__(self, of: Space, k: int):
        super().__init__(of.comm, of.size * k, of.span * k, f"{k} x {of.name}", (of.family, k))
        self.of, self.k = of, k

    def _number(self) -> Tensor:
        return self._each(self.of.ids)

    def _place(self) -> Tensor:
        return self._each(self.of.places)

    def _each(self, x: Tensor) -> Tensor:
        return (x[:, None] * self.k + torch.arange(self.k, device=x.device)).reshape(-1)

    def _count(self) -> int:
        return self.of.total * self.k


class Joined(Space):
    """The rows of `parts`, one after the other, on every rank."""

    def __init__(self, parts: Sequence[Space]):
        first = parts[0]
        name = " and ".join(part.name for part in parts)
        family = tuple(part.family for part in parts)
        super().__init__(first.comm, sum(p.size for p in parts), sum(p.span for p in parts), name, family)
        self.parts = list(parts)

    def _number(self) -> Tensor:
        out, begin = [], 0
        for part in self.parts:
            out.append(part.ids + begin)
            begin += part.span
        return torch.cat(out)

    def _place(self) -> Tensor:
        out, begin = [], 0
        for part in self.parts:
            out.append(part.places + begin)
            begin += part.total
        return torch.cat(out)

    def _count(self) -> int:
        return sum(part.total for part in self.parts)


def joined(parts: Sequence[Space]) -> Space:
    """The rows of one space after those of another, on every rank."""
    if len(parts) == 1:
        return parts[0]
    return parts[0]._made.setdefault(tuple(id(p) for p in parts[1:]), Joined(parts))


def cut(space: Space, start: int, stop: int) -> Space | None:
    """The rows start … stop of a joined space, where these are whole parts; None where they are not.

    Both are numbers of rows: a part begins there on this rank, and among the rows of all ranks.
    """
    if not isinstance(space, Joined):
        return None
    ends = [(0, 0)]
    for part in space.parts:
        ends.append((ends[-1][0] + part.size, ends[-1][1] + part.total))
    marks = [(here(n), everywhere(n)) for n in (start, stop)]
    if any(mark not in ends for mark in marks) or marks[0] == marks[1]:
        return None
    first, last = ends.index(marks[0]), len(ends) - 1 - ends[::-1].index(marks[1])
    return joined(space.parts[first:last]) if first < last else None


def agree(a: Space, b: Space) -> bool:
    """Whether rows of the two lie side by side: the same rows in the same order.

    The loops among arcs-and-loops, in their order, are the vertices.
    """
    if a is b:
        return True
    if a.size != b.size:
        return False
    for one, other in ((a, b), (b, a)):
        begin = _begin(one, other)
        if begin is not None:
            return torch.equal(one.ids - begin, other.ids)
    return False


def _begin(a: Space, b: Space) -> int | None:
    """Where the numbers of b's rows begin among those of a's; None where they are no rows of a."""
    if a.family == b.family:
        return 0
    begin = 0
    for part in a.of.parts if isinstance(a, _Subset) and isinstance(a.of, Joined) else ():
        if part is b:
            return begin
        begin += part.span
    return None


class Moves(Protocol):
    """How rows of others are read, and added to (`weft.parallel.Fetch`)."""

    def rows(self, x_own: Tensor) -> Tensor: ...
    def sums(self, y: Tensor, rows: int) -> Tensor: ...


class Halo:
    """The vertices of other ranks that this rank's arcs read: names n_own, n_own + 1, … after its own.

    ids [n_halo]   their numbers        plan   who sends them
    """

    def __init__(self, space: Space, ids: Tensor, plan: Moves):
        self.space, self.ids, self.plan = space, ids, plan

    @property
    def size(self) -> int:
        """Names in all: n_own + n_halo."""
        return self.space.size + self.ids.numel()


@dataclass(frozen=True, eq=False)
class Names:
    """Values that are places of rows: of `space` here, and of other ranks' where there is a halo."""

    space: Space
    halo: Halo | None = None

    def numbers(self, values: Tensor) -> Tensor:
        """The numbers, in the whole graph, of what is named."""
        known = self.space.ids if self.halo is None else torch.cat([self.space.ids, self.halo.ids])
        return known.to(values.device)[values]


class Several(Names):
    """Names of several kinds, some arcs after others, and where the rows of each kind begin among all.

    parts   (how many, which names, where what they name begins: a number of rows)

    Values stay what they were: they are brought to rows when it is known which rows are read (`resolved`).
    """

    def __init__(self, parts: Sequence[tuple[int, Names, int]]):
        nowhere = Space(parts[0][1].space.comm, 0, 0, "vertices of several kinds")  # agrees with no other
        super().__init__(nowhere, None)
        object.__setattr__(self, "parts", tuple(parts))

    parts: tuple[tuple[int, Names, int], ...]

    def numbers(self, values: Tensor) -> Tensor:
        raise UserError("vertices of several kinds have no numbers in common. Use one edge_index a relation.")


@dataclass(frozen=True, eq=False)
class Tag:
    """What a tensor's rows are: dim `dim` runs over `space`; its values may be names of other rows.

    names   a pair for an edge_index [2, m]: those of its first and of its second row
    """

    space: Space
    dim: int
    names: Names | tuple[Names, Names] | None = None

    def at(self, dim: int) -> Tag:
        return Tag(self.space, dim, self.names)


def tag_of(x: object) -> Tag | None:
    """The tag of a tensor; None where its numbers are the same on every rank."""
    found: Tag | None = x.__dict__.get("_weft_tag") if isinstance(x, Tensor) else None
    return found


def set_tag(x: Tensor, tag: Tag | None) -> Tensor:
    """x, tagged."""
    if tag is None:
        x.__dict__.pop("_weft_tag", None)
    else:
        x.__dict__["_weft_tag"] = tag
    return x


def here(count: int) -> int:
    """A number of rows as a plain number: those of this rank."""
    return int.__int__(count)


def everywhere(count: Any) -> Any:
    """The same of all ranks; what is no number of rows stays."""
    return count.world if isinstance(count, Count) else count


class Count(int):
    """A number of rows: this rank's where it is a shape, everybody's where one computes with it.

    `x.sum(0) / x.size(0)` is then the mean over all ranks' rows, and `x.view(x.size(0), -1)` what it was.
    Comparisons with a plain number are about everybody's rows too, so that all ranks go the same way.

    space  the rows that are counted, `each` numbers of them; None: a number computed from such a count
    """

    space: Space | None
    each: int
    _world: Callable[[], int]

    def __new__(cls, space: Space, each: int = 1) -> Count:
        made = super().__new__(cls, space.size * each)
        made.space, made.each, made._world = space, each, lambda: space.total * each
        return made

    @property
    def world(self) -> int:
        """The number on all ranks."""
        return self._world()

    def _with(self, other: Any, do: Callable[[Any, Any], Any]) -> Any:
        """What comes of it and another whole number: a shape here, and a number everywhere."""
        if not isinstance(other, int):
            return do(self.world, other)
        if do is operator.add and not isinstance(other, Count) and other == 0:  # as Python's sum() begins
            return self
        if do is operator.mul and self.space is not None and not isinstance(other, Count):
            return Count(self.space, self.each * other)
        made = int.__new__(Count, do(here(self), here(other)))
        made.space, made.each = None, 1
        made._world = lambda: do(self.world, other.world if isinstance(other, Count) else other)
        return made

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:  # of two numbers of rows everybody's: a rank may have none
        return self.world // other.world if isinstance(other, Count) else self._with(other, operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return self.world % other.world if isinstance(other, Count) else self._with(other, operator.mod)

    def __truediv__(self, other: Any) -> Any:
        return self.world / everywhere(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.world

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.world

    def __rmod__(self, other: Any) -> Any:
        return other % self.world

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(self.world, everywhere(other), modulo)

    def __rpow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(other, self.world, modulo)

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.world, everywhere(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.world)

    def __neg__(self) -> int:
        return -self.world

    def __abs__(self) -> int:
        return self.world

    def __round__(self, digits: Any = None) -> int:
        return round(self.world, digits)

    __pos__ = __trunc__ = __floor__ = __ceil__ = __abs__

    def __float__(self) -> float:
        return float(self.world)

    def __int__(self) -> int:
        """Everybody's: `total / int(x.size(0))` is right, and `torch.zeros(int(x.size(0)))` is not rows."""
        return self.world

    def __bool__(self) -> bool:
        return self.world != 0

    def _compare(self, other: Any, do: Callable[[Any, Any], bool]) -> bool:
        return do(here(self), here(other)) if isinstance(other, Count) else do(self.world, other)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, operator.ge)

    def __eq__(self, other: object) -> bool:
        """Shapes are compared as they are here; whether there are rows, or one, is asked of everybody."""
        if isinstance(other, int) and not isinstance(other, Count) and other in (0, 1):
            return self.world == other
        return int.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return int.__repr__(self)

    __hash__ = int.__hash__

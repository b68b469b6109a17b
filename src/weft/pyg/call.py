"""One call of a torch function on tensors of a shared graph: what it is given, and its refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch  # noqa: F401  the doctest names its functions
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from .space import Count, Names, Space, Tag, agree, set_tag, tag_of

Rule = Callable[["Call"], Any]
RULES: dict[str, Rule] = {}
"""Function → what it means where rows are spread over ranks. What is not here is refused by its name."""


class Refused(UserError):
    """Something that cannot be done on ranks, or that nobody has written yet; it would be silently wrong."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of its functions."""

    def enter(made: Rule) -> Rule:
        for name in names:
            RULES[name] = made
        return made

    return enter


_names: dict[Any, str] = {}


def named(words: str) -> list[str]:
    """The names of functions, as one writes them down."""
    return words.split()


def name_of(func: Any) -> str:
    """The plain name of a torch function: `add` of `Tensor.__add__`, `add_` and `torch.add`.

    >>> name_of(torch.Tensor.add_), name_of(torch.Tensor.__add__), name_of(torch.Tensor.shape.__get__)
    ('add', 'add', 'shape.get')
    """
    if (known := _names.get(func)) is not None:
        return known
    name = str(getattr(func, "__name__", func))
    if name in ("__get__", "__set__", "__delete__"):
        return f"{func.__self__.__name__}.{name.strip('_')}"
    _names[func] = name.strip("_")
    return _names[func]


@dataclass
class Call:
    """A function, its arguments, and where it is called from.

    home   the `Sharing` that it arrived at
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    home: Any

    @property
    def name(self) -> str:
        return name_of(self.func)

    @property
    def comm(self) -> Communicator:
        comm: Communicator = self.home.comm
        return comm

    @property
    def in_place(self) -> bool:
        name = str(getattr(self.func, "__name__", ""))
        return name in IN_PLACE_OPERATORS or (name.endswith("_") and not name.endswith("__"))

    def get(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by place or name."""
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name, default)

    def given(self, place: int, name: str, value: Any) -> Call:
        """The same call with another argument."""
        if place < len(self.args):
            args = (*self.args[:place], value, *self.args[place + 1 :])
            return Call(self.func, args, self.kwargs, self.home)
        return Call(self.func, self.args, self.kwargs | {name: value}, self.home)

    @property
    def x(self) -> Tensor:
        """The first argument, by whatever name."""
        if self.args:
            first: Tensor = self.args[0]
            return first
        for name in ("input", "self", "tensor"):
            if name in self.kwargs:
                found: Tensor = self.kwargs[name]
                return found
        raise self.refuse("is called in a way that is not known")

    def run(self) -> Any:
        """The function itself, on this rank's rows."""
        return self.func(*self.args, **self.kwargs)

    def tensors(self) -> Iterator[Tensor]:
        """The tensors among the arguments, in their order."""
        return _tensors((self.args, self.kwargs.values()))

    def tagged(self) -> list[tuple[Tensor, Tag]]:
        """Those whose rows are spread over ranks."""
        return [(t, tag) for t in self.tensors() if (tag := tag_of(t)) is not None]

    def refuse(self, why: str) -> Refused:
        """The error that names the module and the function."""
        shown = str(getattr(self.func, "__name__", self.name)) if "." not in self.name else self.name
        at = self.home.where()
        note = self.home.reason()
        return Refused(f"{at}{shown} {why}.{note}")

    def one_space(self, spaces: list[Space]) -> Space:
        """The space that all of these are."""
        for other in spaces[1:]:
            if not agree(spaces[0], other):
                raise self.refuse(f"mixes rows of {spaces[0]} with rows of {other}")
        return spaces[0]

    def no_names(self) -> None:
        """Refuse arithmetic with vertex numbers: on ranks they are names, which mean nothing elsewhere."""
        if any(tag.names is not None for _, tag in self.tagged()):
            raise self.refuse(
                "computes with the vertex numbers of edge_index, which differ from rank to rank"
            )


IN_PLACE_OPERATORS = frozenset(
    f"__i{name}__"
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
)


def _tensors(of: Any) -> Iterator[Tensor]:
    for item in of:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, (list, tuple)) or type(item) is type({}.values()):
            yield from _tensors(item)


def counts(of: Any) -> Iterator[Count]:
    """Numbers of rows among some arguments."""
    for item in of:
        if isinstance(item, Count):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from counts(item)


def put(result: Any, tag: Tag | None) -> Any:
    """The result, tagged; of several tensors each."""
    if isinstance(result, Tensor):
        if tag is not None and (tag.dim >= result.dim() or result.shape[tag.dim] != tag.space.size):
            raise AssertionError(f"a tensor {tuple(result.shape)} has no {tag.space} in dim {tag.dim}")
        return set_tag(result, tag)
    for part in result:
        if isinstance(part, Tensor):
            put(part, tag)
    return result


def names_of(tag: Tag | None) -> Names | None:
    """The names that a tensor's values are; an edge_index has two kinds, and is no single one."""
    return tag.names if tag is not None and isinstance(tag.names, Names) else None


def positive(dim: int, dims: int) -> int:
    """A dim counted from the front."""
    return dim + dims if dim < 0 else dim

"""A figure or a table of a paper: what the paper shows, how it is made here, and what it costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import UserError, unknown
from ...graph.loading import locate, parse_arguments

Row = dict[str, Any]
"""A line of the CSV. `kind` is measured (here, in this run), foretold (of ranks or sizes that are not here,
by the trainer's own step without numbers) or paper (what the authors print)."""
Parameters = dict[str, Any]
MEASURED, FORETOLD, PAPER = "measured", "foretold", "paper"


@dataclass(frozen=True)
class Compared:
    """One line beside the picture: a quantity, the paper's number and ours."""

    what: str
    paper: str
    ours: str

    def __str__(self) -> str:
        return f"{self.what}: paper {self.paper}, ours {self.ours}"


@dataclass(frozen=True)
class Outcome:
    """What a run of an item gave."""

    rows: list[Row]
    compared: list[Compared]
    draw: Callable[[str], None]
    """Draws it into the picture that is named."""
    notes: list[str] = field(default_factory=list)
    """What differs from the paper's experiment, and what was left out."""


@dataclass(frozen=True)
class Item:
    """A figure or table that can be run, or the reason why it cannot.

    scaled   parameters that fit a laptop; `--set NAME=VALUE` changes one
    full     those that differ at the paper's size
    """

    name: str
    """fig1, table2, …"""
    title: str
    seconds: int = 0
    """About how long the scaled run takes on two cores."""
    run: Callable[[Parameters], Outcome] | None = None
    scaled: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    """What the paper's size asks for."""
    why: str = ""
    """Why it cannot be run, where it cannot."""
    virtual: bool = False
    """Whether its ranks are threads that count words, or losses, and are not timed."""
    data: tuple[str, ...] = ()
    """Parameters that name graphs for which the paper has data sets: with --full these must be here."""

    def start(self, parameters: Parameters) -> Outcome:
        """Run it, if this machine can time so many ranks."""
        assert self.run is not None
        if not self.virtual and parameters.get("engine") != "threads" and "ranks" in parameters:
            ranks = parameters["ranks"]
            most = max(ranks) if isinstance(ranks, list) else ranks
            check_cores(most, self.name, parameters.get("hosts", ""))
        return self.run(parameters)

    def parameters(self, full: bool, changes: Mapping[str, str]) -> Parameters:
        """The values of a run; `changes` are texts, read as what stands there is. A graph among them must be
        here: others stand in for a default alone.

        >>> Item("fig1", "", scaled={"ranks": [1, 2], "hidden": 16}).parameters(False, {"ranks": "4,8"})
        {'ranks': [4, 8], 'hidden': 16}
        """
        found = dict(self.scaled) | (dict(self.full) if full else {})
        for name, text in changes.items():
            if name not in found:
                raise unknown(f"parameter of {self.name}", name, found)
            found[name] = _read(name, text, found[name])
            if name in self.data:
                check_here(found[name])
        return found


@dataclass(frozen=True)
class Paper:
    """A paper's figures and tables, all of them."""

    name: str
    title: str
    items: tuple[Item, ...]
    sets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Its data sets by the names that weft takes, in small letters: vertices and arcs as it prints them."""

    def find(self, name: str) -> Item:
        """The item of that name: `fig3`, `figure3` and `Fig. 3` are the same."""
        wanted = spelled(name)
        for item in self.items:
            if spelled(item.name) == wanted:
                return item
        known = ", ".join(item.name for item in self.items)  # all of them, however many: it is the list
        raise UserError(f"unknown figure or table of {self.name} {name!r}. Known: {known}.")


def check_here(graphs: str | list[str]) -> None:
    """Refuse a graph that is neither a generator's nor here, with the names that are; nothing is read.

    >>> check_here(["karate", "er:nodes=9"])
    >>> check_here("kroneker:scale=4")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown generator 'kroneker'. Did you mean 'kronecker'? Known: bter, er, ...
    """
    for graph in [graphs] if isinstance(graphs, str) else graphs:
        found = locate(graph)
        if found is None:
            kind, _, given = graph.partition(":")
            parse_arguments(kind.lower(), given)
        elif not found[0].exists():
            raise UserError(f"no file {graph}. Check the path.")


def spelled(name: str) -> str:
    """
    >>> spelled("Figure 3"), spelled("Fig. 4A"), spelled("table2")
    ('fig3', 'fig4a', 'table2')
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return plain.replace("figure", "fig")


def _read(name: str, text: str, like: Any) -> Any:
    if isinstance(like, list):
        of = like[0] if like else ""
        # A generator's arguments are parted by commas too: graphs are parted by semicolons.
        mark = ";" if isinstance(of, str) and (";" in text or ":" in text) else ","
        found = [_read(name, part.strip(), of) for part in text.split(mark) if part.strip()]
        if not found:
            raise UserError(f"--set {name}={text} names nothing. Give at least one.")
        return found
    if isinstance(like, int | float):
        sort = "whole number" if isinstance(like, int) else "number"
        try:
            value = type(like)(text)
        except ValueError:
            raise UserError(f"--set {name}={text}: {text!r} is not a {sort}. Give one.") from None
        if not 0 <= value < 2**48:
            raise UserError(f"--set {name}={text} is no such size. Give a {sort} from 0 on.")
        return value
    return text


def only(parameters: Parameters, *names: str) -> list[Any]:
    """The values of parameters that are lists elsewhere and take one value here.

    >>> only({"ranks": [2], "features": [64]}, "ranks", "features")
    [2, 64]
    """
    for name in names:
        if len(parameters[name]) != 1:
            given = ",".join(map(str, parameters[name]))
            raise UserError(f"{name}={given}: this figure takes one value. Give one.")
    return [parameters[name][0] for name in names]


def check_cores(ranks: int, what: str, hosts: str = "") -> None:
    """Refuse to time more ranks than two for each core of this machine: seconds would say nothing."""
    cores = len(os.sched_getaffinity(0))
    if not hosts and ranks > 2 * cores:
        raise UserError(
            f"{what} times {ranks} ranks, this machine has {cores} cores. Use --set ranks=…, or --set "
            "hosts=FILE where it takes hosts, or leave out --full."
        )

"""Command-line options made from the config's fields, and errors in one line."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UserError, unknown
from ..train.config import Field, RunConfig, fields, load_toml, update

_HEADING = {"data": "the graph", "model": "the model", "train": "training", "link": "link prediction"}
_METAVAR = {int: "N", float: "X", str: "TEXT"}


class _Stop(BaseException):
    """Ends a command whose parser was all that was wanted."""


class Caught:
    """Holds the parser that a command made."""

    parser: Parser | None = None


_CAUGHT: list[Caught] = []


@contextmanager
def captured() -> Iterator[Caught]:
    """A command that is called in here goes as far as its parser, which is caught.

    >>> with captured() as caught:
    ...     Parser("nap", "", "Sleep.", "").parse(["--deep"])
    >>> caught.parser.prog
    'weft nap'
    """
    _CAUGHT.append(Caught())
    try:
        yield _CAUGHT[-1]
    except _Stop:
        pass
    finally:
        _CAUGHT.pop()


class Parser(argparse.ArgumentParser):
    """argparse whose mistakes are a UserError, with the close match for an unknown option."""

    def __init__(self, command: str, usage: str, text: str, examples: str):
        super().__init__(
            prog=f"weft {command}",
            usage=f"weft {command} {usage}",
            description=f"{_wrapped(text)}\n\nexamples:\n{examples.rstrip()}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self._positionals.title, self._optionals.title = "arguments", "general"

    def error(self, message: str) -> NoReturn:
        begin, required, names = message.partition("arguments are required: ")
        if required:  # argparse names an argument of one or more words twice
            message = begin + required + ", ".join(dict.fromkeys(names.split(", ")))
        raise UserError(f"{message.replace('argument ', '', 1)}. See {self.prog} --help.")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments, all of them understood; of a list of files some may stand after an option."""
        listed = any(not a.option_strings and a.nargs in ("*", "+") for a in self._actions)
        parsed, rest = (self.parse_known_intermixed_args if listed else self.parse_known_args)(arguments)
        if rest:
            word = rest[0].split("=")[0]
            if word.startswith("-"):
                options = sorted(o for o in self._option_string_actions if o.startswith("--"))
                raise unknown(f"option of {self.prog}:", word, options, see=f"{self.prog} --help")
            raise UserError(f"{self.prog} does not know what to do with {word!r}. See {self.prog} --help.")
        return parsed

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if _CAUGHT:
            _CAUGHT[-1].parser = self
            raise _Stop
        return super().parse_known_args(args, namespace)

    def given(self, arguments: Sequence[str]) -> set[str]:
        """The names of options with a value that the user spelled out, be it the default or not."""
        stores = [a.dest for a in self._actions if a.option_strings and type(a) is argparse._StoreAction]
        absent = object()
        parsed, _ = self.parse_known_args(arguments, argparse.Namespace(**dict.fromkeys(stores, absent)))
        return {name for name in stores if getattr(parsed, name) is not absent}


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.fill(line, 96) if len(line) > 96 else line for line in text.splitlines())


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Room for our longest option, so that each stands on one line with its meaning."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=26)


def add_config(parser: argparse.ArgumentParser) -> None:
    """An option for every field of the config, grouped by section; `--set` reaches all of them."""
    parser.add_argument("graph", nargs="?", metavar="GRAPH", help=fields()["data.graph"].help)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="set any field as TOML names it: model.hidden=256, train.optimizer_options.momentum=0.9",
    )  # fmt: skip
    groups: dict[str, Any] = {}
    for path, field in fields().items():
        if field.section not in groups:
            title = f"{_HEADING.get(field.section, field.section)}, [{field.section}] in TOML"
            groups[field.section] = parser.add_argument_group(title)
        if field.flag and field.type is not dict:
            _add_option(groups[field.section], path, field)


def _add_option(group: Any, path: str, field: Field) -> None:
    default = _default(field)
    text = (field.help + (f" ({default})" if default else "")).replace("%", "%%")
    if field.type is bool:
        options: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "help": text}
    else:
        options = {"metavar": _METAVAR[field.type], "help": text}
    group.add_argument(field.flag, dest=path, **options)


def _default(field: Field) -> str:
    """The default as `--help` tells it, after the models that have the option.

    >>> _default(fields()["model.hidden"]), _default(fields()["model.heads"])
    ('64', 'gat, gatv2, transformer; 1')
    """
    if not field.defaults:
        return _shown(field.default)
    own = {model: _shown(value) for model, value in field.defaults}
    if len(set(own.values())) > 1:
        return ", ".join(f"{model} {value}" for model, value in own.items())
    return "; ".join([", ".join(own), *filter(None, [_shown(field.default)])])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def config_from(parsed: argparse.Namespace, config: RunConfig | None = None) -> RunConfig:
    """The config: defaults (or what is given), then the TOML file, then `--set`, then the options."""
    config = config or RunConfig()
    if parsed.graph and parsed.graph.endswith(".toml"):
        load_toml(config, Path(parsed.graph))
    elif parsed.graph:
        config.data.graph = parsed.graph
    for assignment in parsed.set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {assignment} has no '='. Write --set model.hidden=256.")
        update(config, path.strip(), value.strip())
    for path in fields():
        value = getattr(parsed, path, None)
        if value is not None:
            update(config, path, value)
    return config


FOLDER = ("out", "trace", "log", "log_every", "rank_logs", "checkpoint_every", "keep", "restarts")
"""Settings of [train] that are about a run's folder and its log."""


def refuse(parsed: argparse.Namespace, command: str, paths: Iterable[str], instead: str = "") -> None:
    """Options that a command has from the config and does not read: silence would be a surprise.

    `instead`: the command's own option for where to write.
    """
    for path in paths:
        if getattr(parsed, path, None) is not None:
            name, flag = path.rpartition(".")[2], fields()[path].flag
            where = f" Where to write is {instead}." if instead and name == "out" else ""
            raise UserError(f"weft {command} does not read {name}. Leave out {flag}.{where}")


def add_arc_columns(parser: argparse.ArgumentParser) -> None:
    """`--arc-columns`, for commands that read a graph and have no config."""
    parser.add_argument("--arc-columns", metavar="NAMES", help=fields()["data.arc_columns"].help)


def arc_columns(text: str | None) -> list[str] | None:
    """What `--arc-columns` names; None where it was left out.

    >>> arc_columns("weight,time"), arc_columns("")
    (['weight', 'time'], None)
    """
    from ..graph.readers.edge_list import parse_columns

    return parse_columns(text) if text else None


def whole_number(text: str, option: str, least: int = 1) -> int:
    """An option's value as a whole number.

    >>> whole_number("3", "--layers")
    3
    """
    try:
        number = int(text)
    except ValueError:
        raise UserError(f"{option} must be a whole number, not {text!r}.") from None
    if number < least:
        raise UserError(f"{option} must be at least {least}, not {number}.")
    return number


def number(text: str, option: str) -> float:
    """An option's value as a finite number.

    >>> number("0.03", "--epsilon")
    0.03
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{option} must be a number, not {text!r}.")
    return value

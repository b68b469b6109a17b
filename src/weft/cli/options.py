"""Command-line options made from the config's fields, and errors in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UserError, unknown
from ..train.config import Field, RunConfig, fields, read_toml, update

_FLAG = {"model.name": "--model", "data.graph": ""}
"""Where the flag is not the field's own name; empty: no flag, the graph is a positional argument."""


class Parser(argparse.ArgumentParser):
    """argparse whose mistakes are a UserError, with the close match for an unknown option."""

    def __init__(self, command: str, text: str, examples: str):
        super().__init__(
            prog=f"weft {command}",
            description=text,
            epilog=f"examples:\n{examples.rstrip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.replace('argument ', '', 1)}. See {self.prog} --help.")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments, all of them understood."""
        parsed, rest = self.parse_known_args(arguments)
        if rest:
            word = rest[0].split("=")[0]
            if word.startswith("-"):
                raise unknown("option", word, sorted(o for o in self._option_string_actions if o.startswith("--")))
            raise UserError(f"{self.prog} does not know what to do with {word!r}. See {self.prog} --help.")
        return parsed


def flag(field: Field) -> str:
    """The option that sets a field.

    >>> flag(fields()["train.weight_decay"]), flag(fields()["model.name"])
    ('--weight-decay', '--model')
    """
    return _FLAG.get(field.path, "--" + field.name.replace("_", "-"))


def add_config(parser: argparse.ArgumentParser) -> None:
    """An option for every field of the config, grouped by section; `--set` reaches all of them."""
    parser.add_argument("graph", nargs="?", metavar="GRAPH|RUN.toml", help=fields()["data.graph"].help)
    groups: dict[str, Any] = {}
    for path, field in fields().items():
        if not flag(field) or field.type is dict:
            continue
        group = groups.setdefault(field.section, parser.add_argument_group(f"[{field.section}]"))
        text = field.help.replace("%", "%%")
        if field.type is bool:
            group.add_argument(flag(field), dest=path, action=argparse.BooleanOptionalAction, help=text)
        else:
            default = "" if field.default == "" else f" ({field.default})"
            group.add_argument(flag(field), dest=path, metavar=field.type.__name__.upper(), help=text + default)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="set any field")


def config_from(parsed: argparse.Namespace) -> RunConfig:
    """The config: defaults, then the TOML file, then `--set`, then the options."""
    config = RunConfig()
    if parsed.graph and parsed.graph.endswith(".toml"):
        for path, value in read_toml(Path(parsed.graph)).items():
            update(config, path, value)
    elif parsed.graph:
        config.data.graph = parsed.graph
    for assignment in parsed.set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {assignment} has no '='. Write --set model.hidden=256.")
        update(config, path, value)
    for path in fields():
        value = getattr(parsed, path, None)
        if value is not None:
            update(config, path, value)
    return config


def interactive() -> bool:
    """Whether somebody watches standard error."""
    return sys.stderr.isatty()

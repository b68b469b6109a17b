"""Settings as TOML: read from a file, written as a text that is read back."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown


def literal(value: object) -> object:
    """A text read as TOML would read it: 0.9, true, [1, 2]; else the text itself."""
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return value


def read_settings(path: Path, sections: Sequence[str]) -> dict[str, Any]:
    """The settings in a TOML file as `{section.name: value}`, with `graph = ...` allowed at the top."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path} is no plain file. Name one that is.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no file {path}. Check the path.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}. Check the file.") from None
    except (ValueError, RecursionError) as error:  # also: a number of 5,000 digits, a thousand brackets
        reason = str(error).split(";")[0].rstrip(".")
        raise UserError(f"{path} is not TOML: {reason}. Correct it.") from None
    settings: dict[str, Any] = {}
    for section, table in tables.items():
        if section == "graph" and isinstance(table, str):
            settings["data.graph"] = table
        elif not isinstance(table, dict):
            where = ", ".join(f"[{name}]" for name in sections)
            raise UserError(f"{path}: {section!r} stands outside a section. Put it under one of {where}.")
        elif section not in sections:
            raise unknown(f"section in {path}:", section, sections)
        else:
            settings.update({f"{section}.{name}": value for name, value in table.items()})
    return settings


def write_tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as a TOML text.

    >>> print(write_tables({"model": {"hidden": 8, "own": {"bias": True}}}), end="")
    [model]
    hidden = 8
    [model.own]
    bias = true
    """
    lines: list[str] = []
    for section, table in tables.items():
        nested = {k: v for k, v in table.items() if isinstance(v, dict)}
        lines.append(f"[{section}]")
        lines += [f"{k} = {_toml(v)}" for k, v in table.items() if k not in nested]
        for name, inner in nested.items():
            if inner:
                lines.append(f"[{section}.{name}]")
                lines += [f"{k} = {_toml(v)}" for k, v in inner.items()]
        lines.append("")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UserError(f"{value} is not UTF-8, which TOML is written in. Rename it.") from None
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)

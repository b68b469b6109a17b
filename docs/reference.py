"""docs/reference.md from the docstrings of what weft's rooms export: `./dev docs`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOMS = ("", "graph", "partition", "parallel", "nn", "kernels", "minibatch", "train", "report", "comm", "pyg")
HEAD = """# Reference

Every public name with its docstring. Made by `./dev docs`; change the docstrings, not this page.
"""


def names() -> dict[str, list[str]]:
    """Room → its public names; a name of weft itself is told there, and not again in its room."""
    front = set(importlib.import_module("weft").__all__)
    out = {}
    for room in ROOMS:
        module = importlib.import_module(f"weft.{room}" if room else "weft")
        out[room] = sorted(n for n in module.__all__ if not room or n not in front)
    return out


def signature(thing: Any) -> str:
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)  # else the page would differ each time
    return text.replace("'", "").replace("NoneType", "None")


def entry(room: str, name: str) -> str:
    thing = getattr(importlib.import_module(f"weft.{room}" if room else "weft"), name)
    title = f"### weft.{room + '.' if room else ''}{name}"
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):  # a table, or an alias of a type
        return f"{title}\n\n```\n{name} = {_short(thing)}\n```\n"
    text = [title, "", f"```python\n{name}{signature(thing)}\n```", "", _indented(thing)]
    for field, words in fields(thing).items() if inspect.isclass(thing) else ():
        text += [f"**{field}**", "", "\n".join(f"    {line}".rstrip() for line in words.splitlines()) + "\n"]
    for method in _methods(thing) if inspect.isclass(thing) else ():
        found = inspect.getattr_static(thing, method)
        bare = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        text += [f"**{method}**`{signature(bare)}`", "", _indented(bare)]
    return "\n".join(text)


def fields(kind: type) -> dict[str, str]:
    """Fields of a class that are followed by a string, and the string."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: inspect.cleandoc(after.value.value)
        for field, after in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }


def _methods(kind: type) -> list[str]:
    """Public methods of a class that have a docstring of their own."""
    ways = (classmethod, staticmethod)
    return [
        name
        for name, found in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isfunction(found) or isinstance(found, ways))
        and (found.__func__ if isinstance(found, ways) else found).__doc__
    ]


def _indented(thing: Any) -> str:
    doc = inspect.getdoc(thing) or "(no docstring)"
    return "\n".join(f"    {line}".rstrip() for line in doc.splitlines()) + "\n"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, dict | list | tuple | set) else repr(value)
    return text if len(text) < 400 else text[:400] + " …"


def page() -> str:
    parts = [HEAD]
    for room, found in names().items():
        module = importlib.import_module(f"weft.{room}" if room else "weft")
        about = (inspect.getdoc(module) or "").splitlines()
        parts.append(f"## weft{'.' + room if room else ''}\n\n{about[0] if about else ''}\n")
        parts += [entry(room, name) for name in found]
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("reference.md").write_text(page())

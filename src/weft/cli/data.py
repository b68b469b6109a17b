"""weft data: public data sets that weft knows, which of them are here, and how to get the others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..graph.known import KNOWN, LAYOUTS, UNREAD, Known, known
from ..tables import columns
from ..units import spell_bytes
from .options import Parser

_EXAMPLES = """  weft data                      all of them, and where they were looked for
  weft data cora                 one: its licence, its files, where they come from and go to
  weft data --data ~/graphs      in another folder than $WEFT_DATA
  weft data --json"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "data", "[NAME] [OPTIONS]",
        "Public data sets that weft knows by name: which of them are here, and how to get the others.",
        _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME", help="a data set; by default all")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    folder = parsed.data or os.environ.get("WEFT_DATA") or ""
    here = _here(folder)
    if parsed.name:
        some = {parsed.name.lower(): known(parsed.name)} if parsed.name.lower() not in here else {}
        some = {name: KNOWN[name] for name in [parsed.name.lower()] if name in KNOWN} or some
    else:
        some = KNOWN
    if parsed.json:
        rows = [_facts(name, entry, here) for name, entry in some.items()]
        own = [{"name": name, "path": str(path)} for name, path in here.items() if name not in KNOWN]
        print(json.dumps({"folder": folder or None, "known": rows, "others": [] if parsed.name else own}))
        return 0
    lines = _one(parsed.name.lower(), some, here, folder) if parsed.name else _all(here, folder)
    for line in lines:
        print(line)
    return 0


def _here(folder: str) -> dict[str, Path]:
    """The data sets under a folder; a folder that somebody named must be there."""
    from ..graph.loading import data_sets

    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise UserError(f"the data folder {folder} does not exist. Correct WEFT_DATA or --data.")
    return data_sets(folder)


def _facts(name: str, entry: Known, here: dict[str, Path]) -> dict[str, Any]:
    return {
        "name": name, "what": entry.what, "vertices": entry.vertices, "arcs": entry.arcs,
        "bytes": entry.size, "licence": entry.licence, "layout": entry.layout,
        "readable": entry.layout not in UNREAD, "folder": entry.folder, "page": entry.page,
        "urls": [file.url for file in entry.files], "path": str(here[name]) if name in here else None,
    }  # fmt: skip


def _all(here: dict[str, Path], folder: str) -> Iterator[str]:
    def state(name: str, entry: Known) -> str:
        if name in here:
            return "here"
        return "no reader yet" if entry.layout in UNREAD else "-"

    yield columns(
        ["name", "state", "what", "vertices", "arcs", "download"],
        [
            [name, state(name, entry), entry.what, f"{entry.vertices:,}", f"{entry.arcs:,}",
             spell_bytes(entry.size)]
            for name, entry in KNOWN.items()
        ],
        left=3,
    )  # fmt: skip
    yield ""
    yield _looked(folder)
    own = [name for name in here if name not in KNOWN]
    if own:
        yield f"also there: {', '.join(own)}"
    yield "weft data NAME says how to get one; weft train NAME trains on it."


def _looked(folder: str) -> str:
    if not folder:
        return "looked for nowhere: WEFT_DATA is not set. Set it to a folder, or pass --data."
    return f"looked for in {folder}"


def _one(name: str, some: dict[str, Known], here: dict[str, Path], folder: str) -> Iterator[str]:
    from . import COMMANDS

    entry = some.get(name)
    if entry is None:
        yield f"{name:<9} {here[name]}, not one of those that weft knows. weft info {name} describes it."
        return
    yield f"{name:<9} {entry.what}: {entry.vertices:,} vertices, {entry.arcs:,} arcs"
    yield f"licence   {entry.licence}; see {entry.page}"
    yield f"files     {LAYOUTS[entry.layout]}"
    if name in here:
        yield f"here      {here[name]}. Train on it: weft train {name}"
        return
    goal = f"{folder or '$WEFT_DATA'}/{entry.folder}"
    if entry.layout in UNREAD:
        yield "reader    none yet: convert it to an edge list, .npz or .mtx (weft convert --help)"
    if "fetch" in COMMANDS and entry.files:
        yield f"get it    weft fetch {name}   ({spell_bytes(entry.size)})"
    for at, file in enumerate(entry.files):
        yield f"{'' if at else 'from':<9} {file.url}"
    if not entry.files:
        yield f"{'from':<9} {entry.page}"
    yield f"into      {goal}   ({spell_bytes(entry.size)})"
    if not folder:
        yield "          WEFT_DATA is not set: export WEFT_DATA=DIR first, or pass --data DIR"

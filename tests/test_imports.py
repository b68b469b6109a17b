"""The rooms' arrows point one way (DESIGN section 3)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import weft

ROOMS = {
    "errors": 0, "place": 0, "deferred": 0, "meter": 0, "signals": 0, "units": 0, "tables": 0, "paged": 1,
    "memory": 2, "kernels": 3, "comm": 3, "graph": 3, "partition": 4, "parallel": 5, "nn": 6, "minibatch": 7,
    "train": 8, "planner": 9, "report": 9, "integrations": 9, "pyg": 9, "bench": 10, "cli": 11,
}  # fmt: skip
"""A room may import from itself and from rooms with a lower number."""
ROOT = Path(weft.__file__).parent


def imports(path: Path) -> set[str]:
    """The rooms that a file imports, inside functions too."""
    package = ("weft", *path.relative_to(ROOT).parts[:-1])
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = [[*full, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        rooms |= {name[1] for name in names if name[0] == "weft" and len(name) > 1 and name[1] in ROOMS}
    return rooms


def test_rooms_import_only_from_rooms_before_them():
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in imports(path) if room in ROOMS else ():
            assert other == room or ROOMS[other] < ROOMS[room], f"{path.name} of {room} imports {other}"


def test_every_room_has_its_number():
    found = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert found <= ROOMS.keys()


def test_the_models_know_no_ranks():
    for path in (ROOT / "nn").rglob("*.py"):
        assert not imports(path) & {"comm", "parallel", "partition"}, path


def rooms() -> list[Path]:
    return sorted(p for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists())


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_s_readme_has_a_line_for_each_file_and_names_what_it_may_import(room):
    text = (room / "README.md").read_text()
    files = [p.name for p in room.glob("*.py") if not p.name.startswith("_")]
    folders = [p.parent.name + "/" for p in room.glob("*/__init__.py")]
    missing = [name for name in [*files, *folders] if name not in text]
    if "`bench_*.py`" in text:
        missing = [name for name in missing if not name.startswith("bench_")]
    assert not missing, f"{room.name}/README.md says nothing of {', '.join(sorted(missing))}"
    allowed = next((p for p in text.split("\n\n") if "May import" in p or "imports `weft" in p), "")
    needed = {other for path in room.rglob("*.py") for other in imports(path)} - {room.name}
    told = set(re.findall(r"`(?:weft\.)?(\w+)`", allowed))
    if re.search("(every|all) rooms? (before it|but)|everything", allowed):
        told |= {other for other in ROOMS if ROOMS[other] < ROOMS[room.name]}
    assert needed <= told, f"{room.name}/README.md does not say that it imports {sorted(needed - told)}"


def test_every_file_at_the_top_has_its_number():
    files = {p.stem for p in ROOT.glob("*.py") if not p.stem.startswith("_")}
    assert files <= ROOMS.keys()

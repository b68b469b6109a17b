"""The rooms' arrows point one way (DESIGN section 3)."""

from __future__ import annotations

import ast
from pathlib import Path

import weft

ROOMS = {
    "errors": 0, "place": 0, "memory": 0, "meter": 0, "signals": 0, "units": 0, "tables": 0, "kernels": 1,
    "comm": 1, "graph": 1, "partition": 2, "parallel": 3, "nn": 4, "minibatch": 5, "train": 6, "planner": 7,
    "report": 7, "integrations": 7, "pyg": 7, "bench": 8, "cli": 9,
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

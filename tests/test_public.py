from __future__ import annotations

import subprocess
import sys

import pytest

import weft


def test_every_public_name_is_there():
    for name in weft.__all__:
        assert getattr(weft, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        weft.Grpah  # noqa: B018
    assert set(weft.__all__) <= set(dir(weft))


def test_rooms_are_there_after_import_weft_alone_and_dir_names_them():
    """In a process of its own: here other tests have imported them."""
    code = """
import pkgutil, sys, weft
rooms = {m.name for m in pkgutil.iter_modules(weft.__path__) if m.ispkg} - {"bench"}
assert dir(weft) == sorted({*weft.__all__, *rooms, "__version__"}), dir(weft)
assert "torch" not in sys.modules  # a Tab loads nothing
assert weft.graph.from_pyg and weft.nn.register
assert [getattr(weft, room).__name__ for room in sorted(rooms)] == [f"weft.{room}" for room in sorted(rooms)]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_weft_does_not_load_torch():
    code = "import sys, weft, weft.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

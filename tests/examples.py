"""The files of examples/ and lab/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from weft.nn import MODELS
from weft.train import TASKS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples"


def load_example(name: str) -> ModuleType:
    """The example; what it registers stays."""
    return _load(name, FOLDER / f"{name}.py")


def load_lab(name: str) -> ModuleType:
    """A file of lab/."""
    return _load(f"lab_{name}", ROOT / "lab" / f"{name}.py")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example; what it registers is gone again after the test."""
    for registry in (MODELS, TASKS):
        for key in ("shy", "generous", "number", "listing1", "widest"):
            monkeypatch.setitem(registry, key, next(iter(registry.values())))
            monkeypatch.delitem(registry, key)
    monkeypatch.setitem(sys.modules, name, sys)  # whatever: it goes again
    return load_example(name)

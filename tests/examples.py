"""The files of examples/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from weft.nn import MODELS
from weft.train import TASKS

FOLDER = Path(__file__).parent.parent / "examples"


def load_example(name: str) -> ModuleType:
    """The example; what it registers stays."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example; what it registers is gone again after the test."""
    for registry in (MODELS, TASKS):
        for key in ("shy", "generous", "number"):
            monkeypatch.setitem(registry, key, next(iter(registry.values())))
            monkeypatch.delitem(registry, key)
    monkeypatch.setitem(sys.modules, name, sys)  # whatever: it goes again
    return load_example(name)

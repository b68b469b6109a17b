"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from weft.comm import run_ranks
from weft.minibatch import tags

FOLDER = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_fifth_layer_gives_the_same_losses_by_both_feeds(monkeypatch, capsys):
    monkeypatch.setattr(tags, "_TAGS", dict(tags._TAGS))  # the others go without it
    fifth = example("fifth_layer")
    alone = run_ranks(fifth.losses, 1, "threads", "pull")[0]
    assert alone[-1] < alone[0]
    for feed in ("pull", "push-pull"):
        for ours in run_ranks(fifth.losses, 3, "threads", feed):
            assert ours == pytest.approx(alone, rel=1e-9)
    fifth.main()
    assert "push-pull" in capsys.readouterr().out

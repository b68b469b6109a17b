"""How a rank on another host says how it ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from weft.comm import remote


def test_ranks_that_end_at_the_same_moment_all_say_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 writes and renames its file between rank 0's two steps."""
    monkeypatch.setenv("WEFT_ENDS", str(tmp_path))
    replace = os.replace

    def slow(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setenv("WEFT_RANK", "1")
        remote.tell({"line": "lost its disk"})
        replace(source, target)

    monkeypatch.setattr(os, "replace", slow)
    monkeypatch.setenv("WEFT_RANK", "0")
    remote.tell(None)
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == {
        "end.0": None, "end.1": {"line": "lost its disk"},
    }  # fmt: skip


def test_the_first_word_of_a_rank_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ENDS", str(tmp_path))
    monkeypatch.setenv("WEFT_RANK", "3")
    remote.tell({"line": "first"})
    remote.tell(None)
    assert json.loads((tmp_path / "end.3").read_text()) == {"line": "first"}

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_profile(tmp_path, monkeypatch):
    """Nobody has calibrated, whatever this machine's user did."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

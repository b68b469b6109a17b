"""Shared by all tests: a deterministic hypothesis, one thread by default, the data folder."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("weft", derandomize=True, deadline=None, database=None, print_blob=False)
hypothesis.settings.load_profile("weft")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run folders and the like go to a temporary place, and no test's seed leaks into another."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


@pytest.fixture
def data() -> Path:
    """The folder of real graphs; the test is skipped where WEFT_DATA does not name it."""
    if not os.environ.get("WEFT_DATA"):
        pytest.skip("WEFT_DATA is not set: no real graphs here")
    return Path(os.environ["WEFT_DATA"])

"""`./dev` as a newcomer meets it: help first, nothing installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DEV = Path(__file__).parent.parent / "dev"


@pytest.mark.parametrize(("words", "status"), [((), 0), (("--help",), 0), (("tets",), 2)])
def test_help_and_mistakes_come_before_anything_is_installed(tmp_path, words, status):
    shutil.copy(DEV, tmp_path / "dev")
    done = subprocess.run([tmp_path / "dev", *words], capture_output=True, text=True)
    assert done.returncode == status
    assert [path.name for path in tmp_path.iterdir()] == ["dev"]
    if status:
        assert done.stderr.startswith("dev: unknown command 'tets'. Known: train, test,")
    else:
        assert "./dev test" in done.stdout
        assert done.stderr == ""

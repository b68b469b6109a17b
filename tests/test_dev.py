"""`./dev` as a newcomer meets it: help first, nothing installed."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

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


def test_every_pinned_version_runs_on_the_oldest_python_that_we_promise():
    """Debian's Python is 3.11.2: a pin that needs a later one would end `./dev train` there."""
    text = (DEV.parent / "pyproject.toml").read_text()
    oldest = tomllib.loads(text)["project"]["requires-python"].removeprefix(">=")
    pins = re.findall(r"^([\w.-]+)==", (DEV.parent / "constraints.txt").read_text(), re.MULTILINE)
    assert len(pins) > 15
    too_new = {}
    for name in pins:
        with contextlib.suppress(metadata.PackageNotFoundError):
            asked = metadata.metadata(name)["Requires-Python"]
            if asked and not SpecifierSet(asked).contains(f"{oldest}.0"):
                too_new[name] = asked
    assert not too_new

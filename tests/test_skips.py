"""A test that is skipped for want of a program must not let CI pass as if it had run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_browser():
    pytest.skip("chromium is not installed: Debian's package chromium")

def test_package():
    pytest.importorskip("no_such_package", reason="no_such_package is not installed")

def test_data():
    pytest.skip("WEFT_DATA is not set: no real graphs here")
"""


@pytest.mark.parametrize(("everything", "said"), [("1", "2 failed, 1 skipped"), ("", "3 skipped")])
def test_a_skip_for_want_of_a_program_is_a_failure_where_ci_has_installed_everything(everything, said):
    Path("conftest.py").write_text((Path(__file__).parent / "skips.py").read_text())
    Path("test_some.py").write_text(TESTS)
    Path("pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_some.py"],
        capture_output=True, text=True, env=os.environ | {"WEFT_ALL_INSTALLED": everything},
    )  # fmt: skip
    assert said in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert done.returncode == (1 if everything else 0)

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

@pytest.mark.skipif(True, reason="fish is not installed")
def test_shell():
    pass

def test_package():
    pytest.importorskip("no_such_package", reason="no_such_package is not installed")

def test_data():
    pytest.skip("WEFT_DATA is not set: no real graphs here")
"""


@pytest.mark.parametrize(
    ("all_but", "said"),
    [("", "2 failed, 1 skipped, 1 error"), ("fish chromium", "1 failed, 3 skipped"), (None, "4 skipped")],
)
def test_a_skip_for_want_of_a_program_is_a_failure_where_ci_has_installed_everything(all_but, said):
    Path("conftest.py").write_text((Path(__file__).parent / "skips.py").read_text())
    Path("test_some.py").write_text(TESTS)
    Path("pytest.ini").write_text("[pytest]\n")
    inner = {key: value for key, value in os.environ.items() if key != "WEFT_ALL_BUT"}
    inner |= {} if all_but is None else {"WEFT_ALL_BUT": all_but}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_some.py"],
        capture_output=True, text=True, env=inner,
    )  # fmt: skip
    assert said in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert done.returncode == (0 if all_but is None else 1)

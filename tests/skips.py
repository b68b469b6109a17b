"""Where CI has installed everything, a test that says that something is not installed has found a gap.

WEFT_ALL_BUT names what may be missing, perhaps nothing; where it is not set, anything may.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    what, missing, _ = reason.removeprefix("Skipped: ").partition(" is not installed")
    excused = os.environ.get("WEFT_ALL_BUT")
    if missing and excused is not None and what not in excused.split():
        report.outcome = "failed"
        report.longrepr = f"{reason}. But WEFT_ALL_BUT={excused!r} says that it is."
    return report

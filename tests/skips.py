"""Where CI has installed everything, a test that says that something is not installed has found a gap."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("WEFT_ALL_INSTALLED") and "is not installed" in reason:
        report.outcome = "failed"
        report.longrepr = f"{reason}. But WEFT_ALL_INSTALLED says that everything is."
    return report

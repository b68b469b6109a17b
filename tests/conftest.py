"""Shared by all tests: a deterministic hypothesis, one thread by default, the data folder."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from pathlib import Path

# Workers share the cores already, and so do ranks: a second thread in each would spin for its turn. Processes
# that tests start inherit it; a test of threads asks for its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WEFT_CROWDED", "1")

import hypothesis
import pytest
import torch

from weft.kernels import native

from .ranks import Ranks
from .skips import pytest_runtest_makereport as pytest_runtest_makereport

hypothesis.settings.register_profile("weft", derandomize=True, deadline=None, database=None, print_blob=False)
hypothesis.settings.load_profile("weft")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels", choices=["auto", "torch"], default="auto",
        help="torch: everything without the C++ kernels, as on a GPU; what asks for them by name is left out",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--kernels") == "torch":
        native.extension = None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The long tail first: begun last, it would keep one core busy while the others are done.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if config.getoption("--kernels") == "torch":
        chosen = [getattr(item, "callspec", None) for item in items]
        by_name = {item for item, c in zip(items, chosen, strict=True) if c and "native" in c.params.values()}
        # Ranks that are processes have the C++ kernels: nothing would be new there.
        by_name |= {item for item in items if "mpi_ranks" in getattr(item, "fixturenames", ())}
        config.hook.pytest_deselected(items=list(by_name))
        items[:] = [item for item in items if item not in by_name]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What ran, room by room, and the seconds that the workers were busy with it."""
    tests: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport):
            room = "/".join(report.nodeid.split("::")[0].split("/")[:-1][:3]) or "."
            tests[room] += report.when == "call"
            seconds[room] += report.duration
    if len(tests) > 1:
        terminalreporter.section("what ran")
        for room, busy in seconds.most_common():
            terminalreporter.line(f"{busy:8.1f} s  {tests[room]:5d} tests  {room}")
        terminalreporter.line(f"{seconds.total():8.1f} s  {tests.total():5d} tests  in all")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run folders and the like go to a temporary place; no test's seed or threads leak into another."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mpi_ranks() -> Iterator[Ranks]:
    """Up to four MPI ranks, for calls of all tests that this worker runs."""
    ranks = Ranks()
    yield ranks
    ranks.end()


@pytest.fixture
def data() -> Path:
    """The folder of real graphs; the test is skipped where WEFT_DATA does not name it."""
    if not os.environ.get("WEFT_DATA"):
        pytest.skip("WEFT_DATA is not set: no real graphs here")
    return Path(os.environ["WEFT_DATA"])

"""The command line, called in process: fast, and its three outputs at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from weft.cli import main
from weft.train.config import fields


@dataclasses.dataclass
class Answer:
    """What a command gave back."""

    status: int
    out: str
    err: str


Weft = Callable[..., Answer]
ONE_RANK = ["--ranks", "1"] if "parallel.ranks" in fields() else []
"""`weft train` in this very process."""


@pytest.fixture
def weft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Weft:
    """`weft("info", "karate")`: exit status, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: str) -> Answer:
        capsys.readouterr()
        try:
            status = main([*words, *(ONE_RANK if words[:1] == ("train",) else [])])
        except SystemExit as ended:  # argparse, after --help
            status = int(ended.code or 0)
        return Answer(status, *capsys.readouterr())

    return call

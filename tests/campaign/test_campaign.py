"""A slice of the campaigns; all of them by `./dev kill`, `./dev damage` and `./dev fuzz`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.campaign import damage, kill


def test_damaged_checkpoints_are_found_and_the_last_good_one_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    counts, wrong = damage.campaign(24, tmp_path)
    assert (dict(counts), wrong) == (dict.fromkeys(damage.HOW, 8), [])


def test_damage_that_nobody_finds_is_told(tmp_path, monkeypatch):
    """The campaign itself can fail."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr("weft.train.checkpoint.Checkpoint.verify", lambda *_: None)
    monkeypatch.setattr(damage, "KINDS", damage.KINDS[:1])
    _, wrong = damage.campaign(12, tmp_path)
    assert wrong


def test_cases_cover_every_engine_work_moment_and_way():
    drawn = [kill.Case.drawn(number) for number in range(72)]
    for names, key in (
        (kill.ENGINES, "engine"),
        (kill.WORKS, "work"),
        (kill.MOMENTS, "moment"),
        (kill.WAYS, "way"),
    ):
        for name in names:
            assert sum(getattr(case, key) == name for case in drawn) == 72 // len(names)
    assert len({dataclasses.astuple(case)[1:5] for case in drawn}) == 72


@pytest.mark.slow
@pytest.mark.parametrize("number", [6, 31, 51], ids=["evaluating", "writing", "writing, mpi, other ranks"])
def test_a_rank_is_killed_and_the_run_goes_on(number, tmp_path, monkeypatch):
    """By a process of its own, which forks: this one may have threads."""
    import subprocess
    import sys

    command = [
        sys.executable,
        kill.__file__,
        "--cases",
        "1",
        "--first",
        str(number),
        "--folder",
        str(tmp_path),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.startswith("1 kills ("), answer.stdout
    assert not list(Path(tmp_path).glob("case-*"))

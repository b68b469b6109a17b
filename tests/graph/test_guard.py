"""Guards: a request that no machine can hold is refused, and errors name their file once."""

from __future__ import annotations

import pytest

from weft.errors import UserError
from weft.graph import guard
from weft.graph.cgroup import Limit


def test_the_bound_is_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "free_bytes", lambda: 1000)
    guard.check_fits(1000, "x")
    with pytest.raises(UserError, match=r"x: .* needed"):
        guard.check_fits(1001, "x")


def test_a_system_that_does_not_tell_its_memory_gets_a_generous_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(_: str) -> int:
        raise ValueError

    monkeypatch.setattr(guard.os, "sysconf", silent)
    monkeypatch.setattr(guard, "own_limits", list)
    assert guard.machine_bytes() == 1 << 38


def test_the_file_is_named_once() -> None:
    with pytest.raises(UserError, match=r"^a\.txt: no$"), guard.about("a.txt"), guard.about("a.txt"):
        raise UserError("no")


def test_the_limit_of_a_job_is_below_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "own_limits", lambda: [Limit(5000, 900), Limit(4000, 1000)])
    assert (guard.machine_bytes(), guard.free_bytes()) == (4000, 900)
    with pytest.raises(UserError, match=r"x: .* needed, more than the 0\.0 GB"):
        guard.check_fits(901, "x")
    monkeypatch.setattr(guard, "own_limits", lambda: [Limit(1 << 62, 1 << 62)])  # one that is none
    assert guard.free_bytes() <= guard.machine_bytes() < 1 << 62

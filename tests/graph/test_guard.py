"""Guards: a request that no machine can hold is refused, and errors name their file once."""

from __future__ import annotations

import pytest

from weft.errors import UserError
from weft.graph import guard


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
    assert guard.machine_bytes() == 1 << 38


def test_the_file_is_named_once() -> None:
    with pytest.raises(UserError, match=r"^a\.txt: no$"), guard.about("a.txt"), guard.about("a.txt"):
        raise UserError("no")

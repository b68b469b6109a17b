"""A short run of the fuzzer, and everything that it has found so far."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.harness import CORPUS, damage, read, sound
from tests.fuzz.targets import TARGETS

CASES = {"config": 25, "checkpoint": 15, "run": 25}
_SOUND: dict[str, dict[str, bytes]] = {}


def sample(name: str) -> dict[str, bytes]:
    if name not in _SOUND:
        _SOUND[name] = sound(name)
    return _SOUND[name]


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_sound_is_read(name, tmp_path):
    assert read(name, sample(name), tmp_path / "case") == ""


@pytest.mark.parametrize("name", TARGETS)
def test_damage_is_harmless_or_one_line(name, tmp_path):
    @settings(max_examples=CASES.get(name, 60), suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**48))
    def try_one(seed: int) -> None:
        path, files = damage(sample(name), seed)
        assert read(name, files, tmp_path / "case") == "", f"{path}, seed {seed}"

    try_one()


@pytest.mark.parametrize("kept", sorted(p.name for p in CORPUS.glob("*.*.*")))
def test_what_was_found_once_stays_mended(kept, tmp_path):
    """`TARGET.FILE.NUMBER`: the damaged file in the place of the sound one."""
    name, _, rest = kept.partition(".")
    file = rest.rpartition(".")[0].replace("+", "/")
    files = sample(name)
    assert file in files
    assert read(name, files | {file: Path(CORPUS, kept).read_bytes()}, tmp_path / "case") == ""

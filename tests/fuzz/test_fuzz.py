"""A short run of the fuzzer, and everything that it has found so far."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import harness
from tests.fuzz.harness import CORPUS, damage, read, sound
from tests.fuzz.targets import TARGETS, Target

CASES = {"config": 25, "checkpoint": 15, "sealed-checkpoint": 15, "run": 25}
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
        path, changed = damage(name, sample(name), seed)
        assert read(name, sample(name) | changed, tmp_path / "case") == "", f"{path}, seed {seed}"

    try_one()


@pytest.mark.parametrize("kept", sorted(p.name for p in CORPUS.glob("*.*.*")))
def test_what_was_found_once_stays_mended(kept, tmp_path):
    """`TARGET.FILE.NUMBER`: the damaged file in the place of the sound one."""
    name, _, rest = kept.partition(".")
    file = rest.rpartition(".")[0].replace("+", "/")
    files, data, mend = sample(name), Path(CORPUS, kept).read_bytes(), TARGETS[name].mend
    assert file in files
    changed = {file: data} if mend is None else mend(files, file, data)
    assert read(name, files | changed, tmp_path / "case") == ""


def test_a_process_that_crashes_hangs_or_grows_is_a_finding(tmp_path, monkeypatch):
    """The case is named, and those before it count."""
    kept: list[bytearray] = []

    def read_badly(path: str) -> None:
        how = Path("how").read_bytes()
        if how == b"crash":
            os.kill(os.getpid(), signal.SIGUSR2)  # as SIGSEGV would, but faulthandler is silent
        elif how == b"hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
            time.sleep(3600)  # until it is killed
        elif how == b"grow":
            kept.append(bytearray(1 << 16))
        elif how == b"raise":
            raise RuntimeError("no")

    def change(files: dict[str, bytes], path: str, data: bytes) -> dict[str, bytes]:
        return {"how": ways.pop(0) if ways else b""}

    monkeypatch.setitem(TARGETS, "bad", Target(lambda: None, read_badly, change))

    def run(count: int = 40) -> tuple[int, list[tuple[int, str, str]], int]:
        return harness.Block("bad", {"how": b""}, range(7, 7 + count), tmp_path / "case").wait()

    warm = [b""] * 20
    ways = [*warm, b"", b"crash"]
    assert run() == (2, [(8, "", "the process ended with status -12")], 0)
    ways = [*warm, b"", b"", b"hang"]
    with monkeypatch.context() as patch:
        patch.setattr(harness, "HANG_SECONDS", 3)
        assert run() == (3, [(9, "", "the process hung")], 0)
    ways = [*warm, b"raise"]
    done, found, _ = run()
    assert (done, [(seed, path) for seed, path, _ in found]) == (40, [(7, "how")])
    assert "RuntimeError: no" in found[0][2]
    ways = [b"grow"] * 400
    assert run(380)[2] > 15 << 20


def test_what_python_prints_and_nobody_catches_is_a_finding(tmp_path, monkeypatch):
    class Loud:
        def __del__(self) -> None:
            raise RuntimeError("in a finaliser")

    def fail() -> None:
        raise RuntimeError("in a thread")

    def read_loudly(path: str) -> None:
        if Path("how").read_bytes() == b"finaliser":
            Loud()
        else:
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()

    monkeypatch.setitem(TARGETS, "loud", Target(lambda: None, read_loudly))
    for how in ("finaliser", "thread"):
        assert f"RuntimeError: in a {how}" in read("loud", {"how": how.encode()}, tmp_path / "case")


def test_a_campaign_adds_up_over_calls(tmp_path):
    path = tmp_path / "tally.json"
    first = harness.Tally(path, 3)
    first.add("npz", 40, ["npz: no"], 5 << 20)
    first.save(2.0)
    again = harness.Tally(path, 4)
    assert (again.cases, again.next_seed("npz"), again.next_seed("ogb")) == (40, 3 * 10**9 + 40, 3 * 10**9)
    assert again.line(1.0).startswith("40 cases over 1 readers in 3 s, 1 kinds of failure, most growth")

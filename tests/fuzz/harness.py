"""Fuzz every reader: `./dev fuzz [--seconds 3600] [--only store,npz]`; a short run is part of the suite.

A case is (target, seed): sound files, of which one is damaged. It must be read, or refused in one line,
within seconds and a bounded memory. What is not is kept in `corpus/`, as the damaged file, and stays a test.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS
from weft.errors import UserError

CORPUS = Path(__file__).with_name("corpus")
CASE_SECONDS = 20
MEMORY = 3 << 30


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A case that takes long, or gigabytes, is an exception."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {CASE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    signal.alarm(CASE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def sound(name: str) -> dict[str, bytes]:
    """The files of a target that nothing has happened to."""
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as folder, contextlib.chdir(folder):
        TARGETS[name].make()
        return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def read(name: str, files: dict[str, bytes], folder: Path) -> str:
    """What is wrong with how these files are read; empty: nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    try:
        with contextlib.chdir(folder), limits():
            TARGETS[name].read()
    except UserError as error:
        line = str(error)
        if "\n" in line or not line.isprintable():
            return f"a mistake in more than a line, or with raw bytes: {line[:300]!r}"
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return "".join(traceback.format_exception(error)[-6:])
    return ""


def damage(files: dict[str, bytes], seed: int) -> tuple[str, dict[str, bytes]]:
    """(which file, the files with it damaged); it follows from the seed."""
    draw = random.Random(seed)
    path = draw.choice(sorted(files))
    return path, files | {path: mutate(files[path], draw)}


def fuzz(
    name: str, files: dict[str, bytes], seeds: Iterator[int], folder: Path
) -> Iterator[tuple[int, str, str]]:
    """(seed, file, what is wrong) of the cases that go wrong."""
    for seed in seeds:
        path, damaged = damage(files, seed)
        wrong = read(name, damaged, folder)
        if wrong:
            yield seed, path, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, by commas")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="put what is found into the corpus")
    asked = parser.parse_args()
    deadline, cases, found, seed = time.monotonic() + asked.seconds, 0, 0, asked.seed * 1000
    os.environ["WEFT_DATA"] = ""
    samples = {name: sound(name) for name in asked.only.split(",")}
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as scratch:
        seen: set[str] = set()
        while time.monotonic() < deadline:
            for name, files in samples.items():
                for at, path, wrong in fuzz(name, files, iter(range(seed, seed + 50)), Path(scratch, "case")):
                    last = wrong.strip().splitlines()
                    mark = f"{name}: {last[-1][:100]} {[x for x in last if 'File' in x][-1:]}"
                    if mark in seen:
                        continue
                    seen.add(mark)
                    found += 1
                    print(f"--- {name} {path} seed {at}\n{wrong}", flush=True)
                    if asked.keep:
                        kept = CORPUS / f"{name}.{path.replace('/', '+')}.{at}"
                        kept.write_bytes(damage(files, at)[1][path])
                cases += 50
            seed += 50
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{cases:,} cases, {found} kinds of failure, peak {peak:,.0f} MB")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

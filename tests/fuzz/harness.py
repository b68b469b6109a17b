"""Fuzz every reader: `./dev fuzz [--seconds 3600] [--cases 1000000] [--only store,npz]`.

A case is (target, seed): sound files, of which one is damaged. It must be read, or refused in one line,
within seconds and a bounded memory. What is not is kept in `corpus/`, as the damaged file, and stays a test.

Cases run many to a process. The process is a fork, so that one that crashes, hangs or grows is a finding
and not the end. `--tally FILE` adds up over several calls: a campaign of hours may be run in pieces.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import mmap
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS
from weft.errors import UserError

CORPUS = Path(__file__).with_name("corpus")
CASE_SECONDS = 20
"""Of CPU time: a busy or suspended machine is no hang."""
HANG_SECONDS = 6 * CASE_SECONDS
"""What waits takes no CPU time, and native code does not hear the alarm: then the whole process goes."""
MEMORY = 3 << 30
GROWTH = 128 << 20
"""More than this after a block of cases is a leak: what is freed comes back to the pool of the process."""
BLOCK = 1000


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A case that takes long, or gigabytes, is an exception."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {CASE_SECONDS} s")

    before = signal.signal(signal.SIGPROF, late)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_pages(0) + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def hearing(unheard: list[str]) -> Iterator[None]:
    """What Python prints and nobody catches: exceptions in callbacks, finalisers and threads."""

    def note(told: Any) -> None:
        unheard.extend(traceback.format_exception(told.exc_type, told.exc_value, told.exc_traceback)[-6:])

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = threading.excepthook = note
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before


def _pages(field: int) -> int:
    """Bytes of address space (0), or resident ones (1), of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[field]) * resource.getpagesize()


def sound(name: str) -> dict[str, bytes]:
    """The files of a target that nothing has happened to."""
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as folder, contextlib.chdir(folder):
        TARGETS[name].make()
        return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def write(files: dict[str, bytes], folder: Path) -> None:
    """These files and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def read(name: str, files: dict[str, bytes], folder: Path) -> str:
    """What is wrong with how these files are read; empty: nothing."""
    write(files, folder)
    return look(name, folder)


def look(name: str, folder: Path, path: str = "") -> str:
    """What is wrong with how the files that are there are read, or the one that is named."""
    unheard: list[str] = []
    try:
        with contextlib.chdir(folder), limits(), warnings.catch_warnings(), hearing(unheard):
            warnings.simplefilter("error")  # users see them, in two lines
            TARGETS[name].read(path)
    except UserError as error:
        line = str(error)
        if "\n" in line or not line.isprintable():
            return f"a mistake in more than a line, or with raw bytes: {line[:300]!r}"
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return "".join(traceback.format_exception(error)[-6:])
    return "".join(unheard)


def damage(name: str, files: dict[str, bytes], seed: int) -> tuple[str, dict[str, bytes]]:
    """(which file, those that differ afterwards); it follows from the seed."""
    draw = random.Random(seed)
    path = draw.choice(sorted(files))
    changed = {path: mutate(files[path], draw)}
    mend = TARGETS[name].mend
    return path, changed if mend is None else mend(files, path, changed[path])


def fuzz(
    name: str, files: dict[str, bytes], seeds: Iterable[int], folder: Path
) -> Iterator[tuple[int, str, str]]:
    """(seed, file, what is wrong) of the cases that go wrong."""
    write(files, folder)
    for seed in seeds:
        path, changed = damage(name, files, seed)
        for file, data in changed.items():
            (folder / file).write_bytes(data)
        wrong = look(name, folder, path)
        for file in changed:
            (folder / file).write_bytes(files[file])
        if wrong:
            yield seed, path, wrong


# A campaign


class Block:
    """Cases of one target in a process of their own."""

    def __init__(self, name: str, files: dict[str, bytes], seeds: range, folder: Path):
        self.name, self.seeds = name, seeds
        self._now = mmap.mmap(-1, 8)
        self._read, write_end = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._read)
            with contextlib.suppress(BaseException):
                self._work(files, folder, write_end)
            os._exit(0)
        os.close(write_end)

    def _work(self, files: dict[str, bytes], folder: Path, out: int) -> None:
        def told() -> Iterator[int]:
            for seed in self.seeds:
                struct.pack_into("<q", self._now, 0, seed)
                yield seed

        warm = list(fuzz(self.name, files, itertools.islice(self.seeds, 20), folder))
        before = _pages(1)
        found = list(fuzz(self.name, files, told(), folder))
        grown = _pages(1) - before
        del warm
        with os.fdopen(out, "w") as file:
            json.dump({"found": found, "grown": grown}, file)

    def wait(self) -> tuple[int, list[tuple[int, str, str]], int]:
        """(cases done, what went wrong, bytes grown)."""
        text, last, looks = b"", -1, 0
        while True:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            if ready:
                part = os.read(self._read, 1 << 16)
                if not part:
                    break
                text += part
            at, looks = self.at, looks + 1
            if at != last:
                last, looks = at, 0
            elif not text and looks > HANG_SECONDS:
                os.kill(self._process, signal.SIGKILL)
        os.close(self._read)
        _, status = os.waitpid(self._process, 0)
        if text:
            told = json.loads(text)
            return len(self.seeds), [tuple(entry) for entry in told["found"]], int(told["grown"])
        code = os.waitstatus_to_exitcode(status)
        how = "hung" if code == -signal.SIGKILL else f"ended with status {code}"
        return self.at - self.seeds.start + 1, [(self.at, "", f"the process {how}")], 0

    @property
    def at(self) -> int:
        """The seed of the case under way."""
        return int(struct.unpack_from("<q", self._now, 0)[0]) or self.seeds.start


class Tally:
    """Cases and findings so far; kept in a file, so that a campaign may be run in pieces."""

    def __init__(self, path: Path | None, seed: int):
        self.path = path
        self.facts: dict[str, Any] = {
            "seed": seed, "cases": {}, "found": [], "seconds": 0.0, "grown": 0, "peak": 0,
        }  # fmt: skip
        if path is not None and path.exists():
            self.facts = json.loads(path.read_text())

    @property
    def cases(self) -> int:
        return sum(self.facts["cases"].values())

    def next_seed(self, name: str) -> int:
        return int(self.facts["seed"]) * 10**9 + int(self.facts["cases"].get(name, 0))

    def add(self, name: str, done: int, marks: list[str], grown: int) -> None:
        facts = self.facts
        facts["cases"][name] = facts["cases"].get(name, 0) + done
        facts["found"] += [mark for mark in marks if mark not in facts["found"]]
        facts["grown"] = max(facts["grown"], grown)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        facts["peak"] = max(facts["peak"], usage.ru_maxrss * 1024)

    def save(self, seconds: float) -> None:
        if self.path is not None:
            scratch = self.path.with_name(self.path.name + ".tmp")
            scratch.write_text(json.dumps(self.facts | {"seconds": self.facts["seconds"] + seconds}))
            scratch.replace(self.path)

    def line(self, seconds: float) -> str:
        facts = self.facts
        seconds += facts["seconds"]
        return (
            f"{self.cases:,} cases over {len(facts['cases'])} readers in {seconds:,.0f} s, "
            f"{len(facts['found'])} kinds of failure, most growth in {BLOCK:,} cases "
            f"{facts['grown'] / 2**20:,.0f} MB, peak {facts['peak'] / 2**20:,.0f} MB"
        )


def _mark(name: str, wrong: str) -> str:
    """What tells one kind of failure from another."""
    lines = wrong.strip().splitlines()
    return f"{name}: {lines[-1][:100]} {[x.strip() for x in lines if 'File' in x][-1:]}"


def _next(tally: Tally, names: list[str]) -> str:
    """The reader with the fewest cases, by its share."""
    return min(names, key=lambda name: tally.facts["cases"].get(name, 0) / TARGETS[name].share)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--cases", type=int, default=10**9, help="end after so many, those of the tally too")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, by commas")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--tally", type=Path, help="go on with what this file counts")
    parser.add_argument("--keep", action="store_true", help="put what is found into the corpus")
    asked = parser.parse_args()
    os.environ["WEFT_DATA"] = ""
    names = asked.only.split(",")
    samples = {name: sound(name) for name in names}
    tally, started = Tally(asked.tally, asked.seed), time.monotonic()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-", dir=shared) as scratch:
        for name in names:  # what readers load late is loaded once, and forks have it
            if wrong := read(name, samples[name], Path(scratch, "c")):
                raise SystemExit(f"{name}: sound files are not read: {wrong}")
        while tally.cases < asked.cases and time.monotonic() - started < asked.seconds:
            name = _next(tally, names)
            first = tally.next_seed(name)
            count = max(20, min(BLOCK, int(BLOCK * TARGETS[name].share), asked.cases - tally.cases))
            done, found, grown = Block(
                name, samples[name], range(first, first + count), Path(scratch, "c")
            ).wait()
            if grown > GROWTH:
                found.append((first, "", f"grew by {grown / 2**20:.0f} MB in {done} cases"))
            for seed, path, wrong in found:
                if _mark(name, wrong) in tally.facts["found"]:
                    continue
                print(f"--- {name} {path} seed {seed}\n{wrong}", flush=True)
                if asked.keep and path:
                    kept = CORPUS / f"{name}.{path.replace('/', '+')}.{seed}"
                    kept.write_bytes(damage(name, samples[name], seed)[1][path])
                tally.add(name, 0, [_mark(name, wrong)], 0)
            tally.add(name, done, [], grown)
            tally.save(time.monotonic() - started)
    print(tally.line(time.monotonic() - started))
    return 1 if tally.facts["found"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""A local job: N ranks, their output, and how it ends.

The launcher listens on a socket in a private directory (mode 0700). Every rank's supervisor (`child.py`)
reports there when the rank starts and how it ended. Rank 0 gets the launcher's own output and error, so
that a terminal stays a terminal; what other ranks write comes here through pipes and is shown with the rank
in front. When a rank fails, all others are killed, and the first failure is what the user sees first.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.comm import watchdog
from weft.comm.child import die_with_parent
from weft.signals import Asked, told

_CHILD = str(Path(__file__).with_name("child.py"))
_GATHER_SECONDS = 0.3  # after the first failure: time for the cause to arrive where a consequence came first
_INTERRUPT_SECONDS = 5.0  # after a rank was broken off by Ctrl-C: time for the others to follow
_WORD_SECONDS = 2.0  # after Ctrl-C: how long the ranks are waited for without a word
_END_SECONDS = 3.0  # after the ranks are gone: time for mpirun to clean up


@dataclass
class Failure:
    """How a rank ended that should not have."""

    rank: int | None
    kind: str
    """user, error, exit, signal, stall, start; or peer: it stopped because another one did."""
    line: str
    trace: str
    status: int
    type: str = ""
    text: str = ""


@dataclass
class Outcome:
    """How the job ended; the first failure is the cause."""

    status: int
    failures: list[Failure] = field(default_factory=list)

    @property
    def by_chance(self) -> bool:
        """Whether a rank died or stalled that might not the next time.

        >>> Outcome(137, [Failure(1, "signal", "was killed", "", 137)]).by_chance, Outcome(0).by_chance
        (True, False)
        """
        return bool(self.failures) and self.failures[0].kind in ("signal", "stall", "peer")

    def report(self) -> str:
        """What the user reads: the first error with its rank, then where it happened.

        >>> failure = Failure(3, "error", "ValueError: no", "Traceback\\n  f()\\nValueError: no", 1)
        >>> print(Outcome(1, [failure]).report())
        [rank 3] ValueError: no
        [rank 3] Traceback
        [rank 3]   f()
        [rank 3] ValueError: no
        """
        if not self.failures:
            return ""
        first = self.failures[0]
        if first.kind == "user":
            return first.line
        if first.rank is None:
            return first.line
        mark = f"[rank {first.rank}] "
        lines = [mark + first.line, *(mark + line for line in first.trace.rstrip().splitlines())]
        for other in self.failures[1:]:
            if other.kind not in ("peer", "interrupt") and other.rank is not None:
                lines.append(f"[rank {other.rank}] {other.line}")
        return "\n".join(lines)


@dataclass
class _Rank:
    pid: int
    supervisor: int
    ended: bool = False


class _Lines:
    """Output of a rank, passed on line by line with the rank in front."""

    def __init__(self, rank: int, target: int) -> None:
        self.mark = f"[rank {rank}] ".encode()
        self.target = target
        self.rest = b""

    def add(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if lines:
            _write(self.target, b"".join(self.mark + line + b"\n" for line in lines))

    def close(self) -> None:
        if self.rest:
            self.add(b"\n")


class Job:
    """Run one job and watch it to its end."""

    def __init__(
        self,
        starters: Callable[[Path, Path, list[str]], list[tuple[list[str], dict[str, str]]]],
        argv: list[str],
        ranks: int,
        stall_seconds: float,
    ) -> None:
        self.ranks = ranks
        self.stall_seconds = stall_seconds
        self._starters = starters
        self._argv = argv
        self._selector = selectors.DefaultSelector()
        self._known: dict[int, _Rank] = {}
        self._failures: list[Failure] = []
        self._pipes: dict[int, _Lines] = {}
        self._noise = b""
        self._asked = Asked()
        self._forwarded = 0.0
        self._said = False

    def run(self) -> Outcome:
        """Start the ranks, wait for their end; nothing is left behind."""
        folder = _private_folder()
        memory = _memory_folder(folder)
        try:
            slots = watchdog.create(folder / "slots", self.ranks)
            with _listen(folder / "wire") as listener, self._asked.noting():
                self._selector.register(listener, selectors.EVENT_READ, self._welcome)
                processes = self._start(folder, memory)
                try:
                    self._watch(processes, slots)
                finally:
                    self._end(processes)
                return self._outcome(processes)
        finally:
            self._selector.close()
            for place in {folder, memory}:
                shutil.rmtree(place, ignore_errors=True)

    @property
    def started(self) -> bool:
        """Whether any rank came up."""
        return bool(self._known)

    # --- start ----------------------------------------------------------------------------------------------

    def _start(self, folder: Path, memory: Path) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, _CHILD, str(folder), "--", *self._argv]
        read, write = os.pipe()
        processes = []
        try:
            for line, environment in self._starters(folder, memory, command):
                processes.append(
                    subprocess.Popen(
                        line,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=write,
                        stderr=write,
                        start_new_session=True,  # Ctrl-C comes to the launcher, which passes it on
                        # SIGTERM: mpirun cleans up after itself; supervisors look after their ranks.
                        preexec_fn=functools.partial(die_with_parent, signal.SIGTERM),
                    )
                )
        except OSError as error:
            self._fail(Failure(None, "start", f"cannot start {line[0]}: {error.strerror}.", "", 1))
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self._selector.register(read, selectors.EVENT_READ, self._hear_noise)
        return processes

    def _welcome(self, listener: Any) -> None:
        wire, _ = listener.accept()
        self._selector.register(wire, selectors.EVENT_READ, _Wire(self))

    def introduce(self, wire: socket.socket, message: dict[str, Any]) -> None:
        """A supervisor says hello: give its rank somewhere to write."""
        rank = int(message["rank"])
        self._known[rank] = _Rank(int(message["pid"]), int(message["supervisor"]))
        if rank == 0:
            socket.send_fds(wire, [b"0"], [1, 2])
            return
        ends = []
        for target in (1, 2):
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._pipes[read] = _Lines(rank, target)
            self._selector.register(read, selectors.EVENT_READ, self._hear_rank)
            ends.append(write)
        socket.send_fds(wire, [b"0"], ends)
        for end in ends:
            os.close(end)

    # --- watch ----------------------------------------------------------------------------------------------

    def _watch(self, processes: list[subprocess.Popen[bytes]], slots: list[watchdog.MappedSlot]) -> None:
        deadline: float | None = None
        next_look, watch = 0.0, watchdog.Awake()
        while True:
            self._listen_once(0.1)
            awake = watch.look()
            now = time.monotonic()
            if self._failures and deadline is None:
                deadline = now + (_INTERRUPT_SECONDS if self._forwarded else _GATHER_SECONDS)
            if self._asked.number and not self._forwarded:
                # No deadline: the ranks save after their present step, which may take long.
                self._forward(self._asked.number)
                self._forwarded = now
            self._say_that_it_waits(now)
            ended = frozenset(rank for rank, known in self._known.items() if known.ended)
            if len(ended) == self.ranks or self._asked.at_once:
                return
            if deadline is not None and now > deadline:
                return
            if deadline is None and all(process.poll() is not None for process in processes):
                # All are gone, so all that they had to say is there: hear it before judging.
                while self._listen_once(0):
                    pass
                if not self._failures and not all(rank in self._known for rank in range(self.ranks)):
                    self._fail(Failure(None, "start", "", "", 1))
            if deadline is None and now > next_look:
                next_look = now + min(1.0, self.stall_seconds / 4)
                stall = watchdog.stalled(slots, self.stall_seconds, ended, self._halted(), awake)
                if stall is not None:
                    self._fail(Failure(None, "stall", stall, "", 1))
                    return

    def _say_that_it_waits(self, now: float) -> None:
        if self._forwarded and not self._said and now - self._forwarded > _WORD_SECONDS:
            self._said = True
            what = told(self._asked.number)
            _write(2, f"weft: {what} was passed on to the ranks; once more ends them at once.\n".encode())

    def _halted(self) -> frozenset[int]:
        """Ranks that somebody stopped, as Ctrl-Z does: they wait for nobody, others wait for them."""
        return frozenset(rank for rank, known in self._known.items() if _is_stopped(known.pid))

    def _listen_once(self, seconds: float) -> bool:
        events = self._selector.select(seconds)
        for key, _ in events:
            key.data(key.fileobj)
        return bool(events)

    def _hear_rank(self, read: Any) -> None:
        data = _read(read)
        if data:
            self._pipes[read].add(data)
        elif data == b"":
            self._pipes[read].close()
            self._selector.unregister(read)
            os.close(read)

    def _hear_noise(self, read: Any) -> None:
        data = _read(read)
        if data:
            self._noise = (self._noise + data)[-20000:]
        elif data == b"":
            self._selector.unregister(read)
            os.close(read)

    def hear_end(self, message: dict[str, Any]) -> None:
        """A supervisor says how its rank ended."""
        rank, code = int(message["rank"]), int(message["code"])
        self._known[rank].ended = True
        failure = message["failure"]
        asked = 128 + self._asked.number if self._forwarded else 0
        if code == 0 or (code == asked and (failure is None or failure["kind"] == "exit")):
            return  # it ended well, or did as it was asked
        if failure is not None:
            self._fail(Failure(rank, **failure))
        elif code < 0:
            name = signal.Signals(-code).name
            self._fail(Failure(rank, "signal", f"was killed by {name}", "", 128 - code))
        else:
            self._fail(Failure(rank, "exit", f"exited with status {code}", "", code))

    def hear_silence(self, rank: int | None) -> None:
        """A supervisor is gone."""
        if rank is not None and not self._known[rank].ended:
            self._known[rank].ended = True
            # Mpirun kills the other ranks when one has ended; then it is a consequence.
            kind = "peer" if self._failures else "signal"
            self._fail(Failure(rank, kind, "was killed", "", 137))

    def _fail(self, failure: Failure) -> None:
        self._failures.append(failure)

    # --- end ------------------------------------------------------------------------------------------------

    def _forward(self, number: int) -> None:
        for known in self._known.values():
            if not known.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(known.pid, number)

    def _end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Kill what still runs, then let mpirun clean up, then kill that too."""
        failures = list(self._failures)
        for known in self._known.values():
            # The group: a rank may have started workers.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(known.pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        for process in processes:
            while process.poll() is None and time.monotonic() < deadline:
                self._listen_once(0.02)
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        while self._listen_once(0):
            pass
        for lines in self._pipes.values():
            lines.close()
        if failures:
            self._failures = failures  # those that came later are our own doing

    def _outcome(self, processes: list[subprocess.Popen[bytes]]) -> Outcome:
        if self._asked.number:
            return Outcome(128 + self._asked.number)
        order = {"start": 2, "peer": 1, "interrupt": 1}
        failures = sorted(self._failures, key=lambda failure: order.get(failure.kind, 0))
        if failures and failures[0].kind == "start":
            noise = self._noise.decode(errors="replace").strip()
            useful = [line for line in noise.splitlines() if line.strip(" -=")]
            first = failures[0].line or "the ranks could not be started"
            failures[0].line = "\n".join([first, *useful])
        if not failures:
            return Outcome(0)
        return Outcome(failures[0].status, failures)


class _Wire:
    """The conversation with one supervisor: a hello, then how its rank ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rest = b""
        self.rank: int | None = None

    def __call__(self, wire: Any) -> None:
        try:
            data = wire.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.job._selector.unregister(wire)
            wire.close()
            self.job.hear_silence(self.rank)
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if self.rank is None:
                self.rank = int(message["rank"])
                self.job.introduce(wire, message)
            else:
                self.job.hear_end(message)


def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="weft-")
    if len(folder) > 90:  # the address of a socket has room for 107 characters
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="weft-", dir="/tmp")
    return Path(folder)


def _memory_folder(folder: Path) -> Path:
    """Where MPI keeps its shared memory: ours, so that it goes with the job when ranks are killed."""
    if os.access("/dev/shm", os.W_OK):
        return Path(tempfile.mkdtemp(prefix="weft-", dir="/dev/shm"))
    return folder


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1024)
    return listener


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal; false where the system does not tell."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _read(file: int) -> bytes | None:
    """What is there; b"" at the end; None where there is nothing now."""
    try:
        return os.read(file, 65536)
    except BlockingIOError:
        return None


def _write(file: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the reader is gone: nothing to be shown to anybody
        while data:
            data = data[os.write(file, data) :]

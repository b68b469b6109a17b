"""Ranks on several hosts, by mpirun and a host file; and on those that are left when a host is gone.

    # one host a line, as mpirun reads it
    node1 slots=4
    node2 slots=4

Hosts are reached by `ssh`, or by the agent that Open MPI is told of (`PRTE_MCA_plm_ssh_agent`). They share
the present folder: the store that ranks read lies in it, and every rank writes there how it ended. That is
what counts: mpirun's own status is 0 where a host was lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.comm.child import die_with_parent
from weft.comm.job import Failure, Outcome
from weft.errors import UserError, printable
from weft.signals import Asked

_LINE = re.compile(r"(\S+?)(?::(\d+))?(?:\s+(?:slots|max_slots)\s*=\s*(\d+))*\s*")
_ANSWER_SECONDS = 10.0
_END_SECONDS = 10.0
"""After the first rank has failed: time for mpirun to end the others."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Host:
    """A host and how many ranks it takes."""

    name: str
    slots: int


def read_hosts(path: Path) -> list[Host]:
    """The hosts of a host file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("# ours\\nnode1 slots=4\\nnode2\\n")
    ...     file.flush()
    ...     read_hosts(Path(file.name))
    [Host(name='node1', slots=4), Host(name='node2', slots=1)]
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}. Give one host a line, as node1 slots=4.") from None
    if lines is None:
        raise UserError(f"no file {path}. Give one host a line, as node1 slots=4.")
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        slots = int(match[3] or match[2] or 1) if match and len(text) < 1000 else 0
        if match is None or not 0 < slots <= 4096 or match[1].startswith("-"):
            raise UserError(
                f"{path}, line {number}: {printable(text)[:60]!r} is no host. Write node1 slots=4."
            )
        found[match[1]] = found.get(match[1], 0) + slots
    if not found:
        raise UserError(f"{path} names no host. Give one host a line, as node1 slots=4.")
    return [Host(name, slots) for name, slots in found.items()]


def filled(hosts: Sequence[Host], ranks: int) -> list[int]:
    """The host of each rank: mpirun fills the slots of one before it goes to the next; those without a slot
    are refused elsewhere, and stand on the last.

    >>> filled([Host("a", 4), Host("b", 4)], 4), filled([Host("a", 2), Host("b", 1)], 3)
    ([0, 0, 0, 0], [0, 0, 1])
    """
    slots = [at for at, host in enumerate(hosts) for _ in range(min(host.slots, ranks))]
    return (slots + [len(hosts) - 1] * ranks)[:ranks]


def agent() -> list[str]:
    """How a command is run on a host: `AGENT HOST COMMAND`, the one that mpirun uses."""
    told = os.environ.get("PRTE_MCA_plm_ssh_agent")  # noqa: SIM112
    return shlex.split(told) if told else ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]


def silent(hosts: Sequence[Host], seconds: float = _ANSWER_SECONDS) -> list[Host]:
    """Those that do not answer in time, asked all at once."""
    here = {"localhost", "127.0.0.1", socket.gethostname()}
    asked: dict[Host, subprocess.Popen[bytes]] = {}
    for host in hosts:
        if host.name in here:
            continue
        try:
            asked[host] = subprocess.Popen(
                [*agent(), host.name, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"cannot run {agent()[0]} to reach {host.name}: {error.strerror}. Install ssh, or name an "
                "agent in PRTE_MCA_plm_ssh_agent."
            ) from None
    deadline, lost = time.monotonic() + seconds, []
    for host, process in asked.items():
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait() or 1
        if status:
            lost.append(host)
    return lost


def names(hosts: Sequence[Host]) -> str:
    """
    >>> names([Host("a", 1), Host("b", 2)])
    'a, b'
    """
    return ", ".join(printable(host.name) for host in hosts)


def launch_on_hosts(
    prepare: Callable[[int], Sequence[str]],
    path: Path,
    ranks: int,
    threads: int,
    stall_seconds: float,
    scratch: Path,
    restarts: int = 0,
) -> int:
    """Run a program on the hosts of a file; the exit status.

        prepare   ranks → what follows `python`; called before each start
        scratch   a folder that all hosts see

    With `restarts`, where a rank or a host is lost: again, so many times, on the hosts that answer then, with
    fewer ranks where these have fewer slots. The file is read anew each time.
    """
    hosts = read_hosts(path)
    lost = silent(hosts)
    if lost:
        raise UserError(f"{names(lost)} of {path} does not answer. Start it, or take it out of the file.")
    if ranks > sum(host.slots for host in hosts):
        raise UserError(
            f"{path} has {sum(host.slots for host in hosts)} slots, {ranks} ranks were asked for. "
            "Use fewer --ranks, or more slots."
        )
    for again in range(restarts + 1):
        outcome = _Run(prepare(ranks), hosts, ranks, threads, stall_seconds, scratch).run()
        report = outcome.report()
        if report:
            print(report, file=sys.stderr, flush=True)
        if again == restarts or not outcome.by_chance:
            break
        hosts = read_hosts(path)
        lost = silent(hosts)
        hosts = [host for host in hosts if host not in lost]
        ranks = min(ranks, sum(host.slots for host in hosts))
        if not ranks:
            print(f"weft: no host of {path} answers any more.", file=sys.stderr, flush=True)
            break
        gone = f"{names(lost)} does not answer; " if lost else ""
        print(
            f"weft: {gone}started again, {again + 1} of {restarts}, {ranks} ranks on {names(hosts)}.",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return outcome.status


class _Run:
    """One start of the ranks, to its end."""

    def __init__(
        self, argv: Sequence[str], hosts: Sequence[Host], ranks: int, threads: int, stall_seconds: float,
        scratch: Path,
    ):  # fmt: skip
        self.argv, self.hosts, self.ranks, self.threads = list(argv), hosts, ranks, threads
        self.stall_seconds, self.folder = stall_seconds, scratch / "ranks"
        self._asked = Asked()

    def run(self) -> Outcome:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        file = self.folder / "hosts"
        file.write_text("".join(f"{host.name} slots={host.slots}\n" for host in self.hosts))
        with self._asked.noting():
            process = subprocess.Popen(
                self._command(file), env=os.environ | self._environment(), stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent_softly,
            )  # fmt: skip
            self._watch(process)
        if self._asked.number:
            return Outcome(128 + self._asked.number)
        return self.outcome()

    def _command(self, hosts: Path) -> list[str]:
        from weft.comm.launch import find_mpirun

        mpirun = find_mpirun()
        if mpirun is None:
            raise UserError("mpirun was not found, which hosts need. Install weft[mpi].")
        told = [
            word
            for name in self._environment()
            if name.startswith(("WEFT_", "OMP_", "TERM"))
            for word in ("-x", name)
        ]
        return [
            mpirun, "--hostfile", str(hosts), "-n", str(self.ranks), "--bind-to", "none", *told,
            sys.executable, "-m", "weft.comm.remote", str(self.folder), "--", *self.argv,
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        from weft.comm.launch import open_mpi

        return open_mpi("self,sm,tcp") | {
            "WEFT_ENGINE": "mpi", "WEFT_RANKS": str(self.ranks), "WEFT_THREADS": str(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
            # mpirun gives ranks a terminal of their own, whatever ours is.
            "TERM": os.environ.get("TERM", "dumb") if sys.stdout.isatty() else "dumb",
        }  # fmt: skip

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Until mpirun ends; or a while after a rank has failed, for a host that is gone may hold it up."""
        deadline, forwarded = float("inf"), False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
                break
            if self._asked.number and not forwarded:
                forwarded = True
                process.send_signal(signal.SIGUSR1)  # mpirun passes it on to the ranks, which save and leave
            if deadline == float("inf") and any(failure for failure in self._told().values()):
                deadline = time.monotonic() + _END_SECONDS
            if self._asked.at_once or time.monotonic() > deadline:
                process.terminate()
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                break

    def _told(self) -> dict[int, dict[str, object] | None]:
        """How ranks ended, of those that told; None: well."""
        found: dict[int, dict[str, object] | None] = {}
        for rank in range(self.ranks):
            with contextlib.suppress(OSError, ValueError):
                found[rank] = json.loads((self.folder / f"end.{rank}").read_text())
        return found

    def outcome(self) -> Outcome:
        """How the ranks ended; one that told nothing was lost, with its host or alone."""
        told, failures = self._told(), []
        for rank in range(self.ranks):
            if rank not in told:
                failures.append(Failure(rank, "signal", "was lost", "", 137))
            elif told[rank] is not None:
                failures.append(Failure(rank, **told[rank]))  # type: ignore[arg-type]
        order = {"signal": 1, "peer": 2, "interrupt": 2}
        failures.sort(key=lambda failure: order.get(failure.kind, 0))
        return Outcome(failures[0].status, failures) if failures else Outcome(0)


def die_with_parent_softly() -> None:
    """mpirun cleans up after itself, where it is asked to."""
    die_with_parent(signal.SIGTERM)

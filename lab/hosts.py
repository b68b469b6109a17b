#!/usr/bin/env python3
"""Several hosts on one machine: network namespaces with names of their own, links of a given bandwidth.

    python lab/hosts.py --hosts 4 --link 100mbit -- weft train g.weft --hosts {hosts} --ranks 4
    python lab/hosts.py --hosts 2 --slots 2 -- mpirun --hostfile {hosts} -n 4 weft calibrate --out lab.json

    host k   a namespace, a veth pair into one bridge, an address of a private net, a host name of its own
    link     `tc tbf` on both ends of the pair: the bandwidth of a host, each way

`{hosts}` stands for a host file. `mpirun` reaches a host by a launch agent, which enters its namespace. All
of it goes when the command ends, fails or is stopped; and when this process is killed, by a shell that waits
for that. It needs root on Linux, and `ip`, `tc` and `unshare`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

MOST = 64
"""Hosts of a lab."""
_RATE = re.compile(r"\d+(\.\d+)?(k|m|g|t)?bit")
_TOOLS = ("ip", "tc", "unshare", "sh")
_MPI = {
    "PRTE_MCA_hwloc_default_binding_policy": "none", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp",
    "OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_plm": "^slurm", "PRTE_MCA_ras": "^slurm",
    **dict.fromkeys(
        (f"{mpi}_ALLOW_RUN_AS_ROOT{sure}" for mpi in ("OMPI", "PRTE") for sure in ("", "_CONFIRM")), "1"
    ),
}  # fmt: skip
_SWEEP = """cat > /dev/null
for end in {ends}; do ip link del "$end" 2>/dev/null; done  # those of a namespace that goes stay for a while
for host in {hosts}; do
  for process in $(ip netns pids "$host" 2>/dev/null); do kill -9 "$process"; done
  ip netns del "$host" 2>/dev/null
done
ip link del {bridge} 2>/dev/null
rm -rf -- {folder}
"""
_AGENT = """#!/bin/sh
host=$1; shift
{crowded}exec ip netns exec "$host" unshare -u sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
"""


class LabError(RuntimeError):
    """Why there is no lab: one line."""


def missing(link: str = "") -> str:
    """Why this machine can make no lab; empty where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a lab of hosts needs root on Linux, to make network namespaces"
    gone = [tool for tool in _TOOLS if shutil.which(tool, path=_path()) is None]
    if gone:
        return f"a lab of hosts needs {', '.join(gone)}: install iproute2 and util-linux"
    asked = subprocess.run(["ip", "netns", "list"], capture_output=True, check=False, env=_environment())
    return (
        "" if asked.returncode == 0 else "a lab of hosts needs network namespaces, which this kernel refuses"
    )


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": _path()}


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, check=False, text=True, env=_environment())
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise LabError(f"{' '.join(words)}: {why}")


def _end_with_us() -> None:
    """The command, which is on no host, gets SIGTERM when this process ends, however that is."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def bucket(link: str) -> int:
    """Bytes that may pass at once after a pause: 2 ms of the rate, and at least 32 kB.

    Less, and a fast link waits for the timer; more, and the messages of a small graph pass at full speed,
    for the bucket fills again while ranks compute. No delay is added.

    >>> bucket("1gbit"), bucket("100mbit")
    (250000, 32000)
    """
    number, scale = re.fullmatch(r"([\d.]+)(k|m|g|t)?bit", link).groups()  # type: ignore[union-attr]
    bits = float(number) * 1000 ** ("kmgt".index(scale) + 1 if scale else 0)
    return max(32_000, round(bits * 0.002 / 8))


class Lab:
    """k hosts, named; open it with `with`.

        link   the bandwidth of each host, as `tc` spells it (100mbit), or one a host with commas between;
               empty: as fast as memory
        slots  ranks of each host, for the host file

    While it is open, `agent` is the launch agent and `hostfile` the host file; `environment` has the first
    for mpirun. `turn_off(name)` is a host that dies.
    """

    def __init__(self, hosts: int, link: str = "", slots: int = 1):
        if not 1 <= hosts <= MOST:
            raise LabError(f"{hosts} hosts are not from 1 to {MOST}")
        links = link.split(",") if link else []
        for each in links:
            if not _RATE.fullmatch(each):
                raise LabError(f"link {each!r} is no bandwidth. Write 100mbit or 1gbit")
        if len(links) not in (0, 1, hosts):
            raise LabError(f"{len(links)} links are not one, nor one for each of {hosts} hosts")
        if not 1 <= slots <= 4096:
            raise LabError(f"{slots} slots are not from 1 to 4096")
        mark = os.getpid() % 50_000
        self.names = [f"wft{mark}n{k}" for k in range(1, hosts + 1)]
        self.links, self.slots = links * hosts if len(links) == 1 else links, slots
        self._bridge, self._ends = f"wftb{mark}", [f"wftv{mark}n{k}" for k in range(1, hosts + 1)]
        self._net = f"10.{200 + mark // 250 % 50}.{mark % 250}"
        self.folder = Path()
        self._sweeper: subprocess.Popen[bytes] | None = None

    @property
    def agent(self) -> Path:
        return self.folder / "reach"

    @property
    def hostfile(self) -> Path:
        return self.folder / "hosts"

    @property
    def environment(self) -> dict[str, str]:
        """What `mpirun` is told. Each host counts its cores from 0, and all have those of this machine: ranks
        that it binds to one core each would all sit on the first. The rest is what `weft train` tells it."""
        return _MPI | {"PRTE_MCA_plm_ssh_agent": str(self.agent)}

    def __enter__(self) -> Lab:
        why = missing()
        if why:
            raise LabError(why)
        self.folder = Path(tempfile.mkdtemp(prefix="weft-lab-"))
        self._sweeper = self._wait_for_our_end()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wait_for_our_end(self) -> subprocess.Popen[bytes]:
        """A shell that clears up when a pipe of ours ends: with `close`, or with this process, however."""
        text = _SWEEP.format(
            ends=" ".join(self._ends), hosts=" ".join(self.names), bridge=self._bridge, folder=self.folder
        )
        return subprocess.Popen(
            ["sh", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=_environment(), start_new_session=True,
        )  # fmt: skip

    def _build(self) -> None:
        # All hosts share the cores of this machine, which their ranks cannot know: who waits is to sleep.
        shared = len(self.names) * self.slots > len(os.sched_getaffinity(0))
        self.agent.write_text(_AGENT.format(crowded="export WEFT_CROWDED=1\n" if shared else ""))
        self.agent.chmod(0o755)
        self.hostfile.write_text("".join(f"{name} slots={self.slots}\n" for name in self.names))
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self._net}.254/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for at, (name, end) in enumerate(zip(self.names, self._ends, strict=True), 1):
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", end, "master", self._bridge, "up")
            _run("ip", "-n", name, "addr", "add", f"{self._net}.{at}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", name, "link", "set", device, "up")
            if self.links:
                rate = self.links[at - 1]
                limit = ("root", "tbf", "rate", rate, "burst", str(bucket(rate)), "latency", "50ms")
                _run("tc", "qdisc", "add", "dev", end, *limit)
                _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *limit)

    def turn_off(self, name: str) -> None:
        """A host that is gone: its processes, its link, its name."""
        found = subprocess.run(
            ["ip", "netns", "pids", name], check=False, capture_output=True, text=True, env=_environment()
        )
        for process in found.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, env=_environment())

    def close(self) -> None:
        """Everything goes; once more does no harm."""
        if self._sweeper is not None:
            assert self._sweeper.stdin is not None
            self._sweeper.stdin.close()
            self._sweeper.wait()
            self._sweeper = None

    def run(self, command: Sequence[str]) -> int:
        """A command with `{hosts}` for the host file; its exit status."""
        words = [word.replace("{hosts}", str(self.hostfile)) for word in command]
        try:
            process = subprocess.Popen(words, env=_environment() | self.environment, preexec_fn=_end_with_us)
        except OSError as error:
            raise LabError(f"cannot run {words[0]}: {error.strerror}") from None
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as Ctrl-C does: what is open is closed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2, help="how many (2)")
    parser.add_argument("--slots", type=int, default=1, help="ranks of each (1)")
    parser.add_argument(
        "--link",
        default="",
        help="bandwidth of a host, such as 100mbit or 1gbit; or one a host: 1gbit,100mbit (no limit)",
    )
    parser.add_argument("command", nargs="+", help="what to run, after --")
    parsed = parser.parse_args(arguments)
    try:
        with stoppable(), Lab(parsed.hosts, parsed.link, parsed.slots) as lab:
            return lab.run(parsed.command)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""Ranks on hosts: the file, who answers, how ranks ended, and fewer of them where a host is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.comm import hosts
from weft.comm.hosts import Host, _Run, launch_on_hosts, read_hosts, silent
from weft.comm.job import Outcome
from weft.errors import UserError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no host"),
        ("# a\n\n", "names no host"),
        ("a slots=0", "line 1: 'a slots=0' is no host"),
        ("a\nb slots=9999", "line 2: 'b slots=9999' is no host"),
        ("-oProxyCommand=x", "line 1: '-oProxyCommand=x' is no host"),
        ("a b c", "line 1: 'a b c' is no host"),
        ("\x1b[31m slots=x", r"line 1: '\\\\x1b\[31m slots=x' is no host"),
    ],
)
def test_a_file_that_names_no_hosts_is_refused(text, message):
    Path("hosts").write_text(text)
    with pytest.raises(UserError, match=message):
        read_hosts(Path("hosts"))


def test_hosts_are_read_as_mpirun_reads_them():
    Path("hosts").write_text("a slots=2 # big\nb:3\na\nc max_slots=9 slots = 4\n")
    assert read_hosts(Path("hosts")) == [Host("a", 3), Host("b", 3), Host("c", 4)]
    with pytest.raises(UserError, match=r"^no file nowhere\. Give one host a line"):
        read_hosts(Path("nowhere"))


@pytest.fixture
def agent(monkeypatch) -> None:
    """Reaches every host but `gone`, which never answers, and `off`, which refuses."""
    script = Path("agent").resolve()
    script.write_text(
        '#!/bin/sh\ncase $1 in gone) exec sleep 600;; off) exit 255;; esac\nshift; exec sh -c "$*"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(script))


def test_who_does_not_answer_is_found_within_the_limit(agent, monkeypatch):
    asked = [Host(name, 1) for name in ("a", "gone", "off", "localhost")]
    assert [host.name for host in silent(asked, seconds=5)] == ["gone", "off"]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "no-such-agent")
    with pytest.raises(UserError, match="cannot run no-such-agent to reach a: No such file"):
        silent(asked)


def outcome_of(ends: dict[int, object], ranks: int) -> Outcome:
    run = _Run([], [], ranks, 1, 60, Path())
    run.folder.mkdir(exist_ok=True)
    for old in run.folder.iterdir():
        old.unlink()
    for rank, end in ends.items():
        (run.folder / f"end.{rank}").write_text(json.dumps(end))
    return run.outcome()


def test_a_rank_that_told_nothing_was_lost_and_an_error_comes_before_it():
    peer = {"kind": "peer", "line": "lost", "trace": "", "status": 1}
    error = {"kind": "error", "line": "ValueError: no", "trace": "", "status": 1}
    assert outcome_of({0: None, 1: None}, 2) == Outcome(0)
    lost = outcome_of({0: peer}, 2)
    assert (lost.status, lost.by_chance, lost.report()) == (137, True, "[rank 1] was lost")
    wrong = outcome_of({1: error}, 2)
    assert (wrong.status, wrong.by_chance, wrong.report()) == (
        1,
        False,
        "[rank 1] ValueError: no\n[rank 0] was lost",
    )


def test_it_goes_on_with_fewer_ranks_on_the_hosts_that_answer(agent, monkeypatch, capsys):
    Path("hosts").write_text("a slots=2\nb slots=2\nc slots=1\n")
    starts: list[tuple[str, int, list[str]]] = []

    def run(self: _Run) -> Outcome:
        starts.append((hosts.names(self.hosts), self.ranks, self.argv))
        Path("hosts").write_text("a slots=2\noff slots=2\nc slots=1\n" if len(starts) == 1 else "a slots=1\n")
        return outcome_of({0: None}, 2) if len(starts) < 3 else outcome_of({0: None}, 1)

    monkeypatch.setattr(_Run, "run", run)
    status = launch_on_hosts(lambda ranks: [f"p{ranks}"], Path("hosts"), 5, 1, 60, Path(), restarts=3)
    assert status == 0
    assert starts == [("a, b, c", 5, ["p5"]), ("a, c", 3, ["p3"]), ("a", 1, ["p1"])]
    err = capsys.readouterr().err
    assert "weft: off does not answer; started again, 1 of 3, 3 ranks on a, c.\n" in err
    assert "weft: started again, 2 of 3, 1 ranks on a.\n" in err


def test_a_host_that_does_not_answer_at_first_is_named(agent):
    Path("hosts").write_text("a slots=2\noff slots=2\n")
    with pytest.raises(UserError, match=r"^off of hosts does not answer\. Start it, or take it out"):
        launch_on_hosts(lambda ranks: [], Path("hosts"), 2, 1, 60, Path())
    Path("hosts").write_text("a slots=2\n")
    with pytest.raises(UserError, match=r"^hosts has 2 slots, 3 ranks were asked for\. Use fewer --ranks"):
        launch_on_hosts(lambda ranks: [], Path("hosts"), 3, 1, 60, Path())


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--engine", "torch"], "hosts are reached by mpirun, not by torch. Use --engine mpi."),
     (["--hosts", "nowhere"], "no file nowhere. Give one host a line")],
)  # fmt: skip
def test_hosts_that_cannot_be_are_one_line(words, message, capsys):
    from weft.cli import main

    assert main(["train", "karate", "--hosts", "hosts", *words]) == 2
    assert message in capsys.readouterr().err


# A lab of two hosts: network namespaces with names of their own, on one bridge


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _can_make_hosts() -> bool:
    return (
        os.geteuid() == 0
        and sys.platform == "linux"
        and Path("/usr/bin/unshare").exists()
        and (
            subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode == 0
            if any(Path(folder, "ip").exists() for folder in ("/usr/sbin", "/sbin", "/usr/bin"))
            else False
        )
    )


@pytest.fixture
def lab(monkeypatch) -> Iterator[list[str]]:
    mark = os.getpid() % 50_000
    names, bridge, net = (
        [f"wft{mark}a", f"wft{mark}b"],
        f"wftb{mark}",
        f"10.{200 + mark // 250 % 50}.{mark % 250}",
    )
    script = Path("reach").resolve()
    script.write_text(
        "#!/bin/sh\nhost=$1; shift\n"
        'exec ip netns exec "$host" unshare -u sh -c \'hostname "$0"; exec sh -c "$*"\' "$host" "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(script))
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for at, name in enumerate(names, 1):
            _ip("netns", "add", name)
            _ip("link", "add", f"wftv{mark}{at}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"wftv{mark}{at}", "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{net}.{at}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            _turn_off(name)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _turn_off(name: str) -> None:
    """A host that is gone: its processes, its link, its name."""
    found = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
    for process in found.stdout.split():
        os.kill(int(process), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(not _can_make_hosts(), reason="needs root on Linux, to make network namespaces")
def test_a_lost_host_costs_its_ranks_and_not_the_run(lab, capfd):
    from weft.cli import main

    Path("hosts").write_text("".join(f"{name} slots=1\n" for name in lab))
    words = ["train", "sbm:nodes=300,features=5", "--hidden", "8", "--dtype", "float64", "--epochs", "300"]
    command = [
        sys.executable, "-m", "weft", *words, "--hosts", "hosts", "--ranks", "2", "--strategy", "2d",
        "--grid", "2x1", "--restarts", "2", "--checkpoint-every", "5", "--out", "run",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics, deadline = Path("run/metrics.jsonl"), time.monotonic() + 120
    try:
        while not (metrics.exists() and metrics.read_text().count("\n") >= 12):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no metrics in two minutes"
            time.sleep(0.01)  # between two looks
        _turn_off(lab[1])
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert f"weft: {lab[1]} does not answer; started again, 1 of 2, 1 ranks on {lab[0]}.\n" in err
    assert "resumed   run in epoch" in out
    assert main([*words, "--ranks", "1", "--out", "whole"]) == 0
    ours, theirs = ([json.loads(line)["loss"] for line in Path(run, "metrics.jsonl").read_text().splitlines()]
                    for run in ("run", "whole"))  # fmt: skip
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert not list(Path().glob(".weft-*"))

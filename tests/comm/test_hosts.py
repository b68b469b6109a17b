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
from tests.examples import load_lab

from weft.comm import hosts
from weft.comm.hosts import Host, _Run, launch_on_hosts, read_hosts, silent
from weft.comm.job import Outcome
from weft.comm.launch import open_mpi
from weft.errors import UserError

hosts_of_a_lab = load_lab("hosts")


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


# A lab of two hosts: lab/hosts.py


@pytest.fixture
def lab(monkeypatch) -> Iterator[hosts_of_a_lab.Lab]:
    with hosts_of_a_lab.Lab(2) as made:
        monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", made.environment["PRTE_MCA_plm_ssh_agent"])
        yield made


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout


no_lab = pytest.mark.skipif(bool(hosts_of_a_lab.missing()), reason=hosts_of_a_lab.missing() or "-")


@no_lab
def test_a_lab_reaches_its_hosts_by_name_and_leaves_nothing(capfd):
    with hosts_of_a_lab.Lab(2, "100mbit") as lab:
        for name in lab.names:
            assert lab.run([str(lab.agent), name, "hostname"]) == 0
        shown = lab.run(["tc", "-n", lab.names[0], "qdisc", "show", "dev", "eth0"])
        assert (shown, [host.name for host in read_hosts(lab.hostfile)]) == (0, lab.names)
        folder = lab.folder
    out = capfd.readouterr().out
    assert out.splitlines()[:2] == lab.names
    assert "rate 100Mbit" in out
    assert not any(name in _namespaces() for name in lab.names)
    assert not folder.exists()


def test_mpirun_of_a_lab_is_the_one_that_weft_starts():
    told = hosts_of_a_lab.Lab(2).environment
    assert told.items() >= open_mpi("self,sm,tcp").items()


@no_lab
@pytest.mark.slow
def test_ranks_of_a_lab_may_use_all_cores_and_not_the_first_alone(capfd):
    show = "import os, sys; sys.stdout.write(f'cores {sorted(os.sched_getaffinity(0))}\\n')"
    with hosts_of_a_lab.Lab(2) as lab:
        assert lab.run(["mpirun", "--hostfile", "{hosts}", "-n", "2", sys.executable, "-c", show]) == 0
    assert capfd.readouterr().out.splitlines() == [f"cores {sorted(os.sched_getaffinity(0))}"] * 2


@no_lab
def test_links_of_a_lab_may_differ_and_hosts_that_share_cores_know_it(capfd):
    with hosts_of_a_lab.Lab(2, "1gbit,50mbit", slots=2048) as lab:
        for name in lab.names:
            assert lab.run(["tc", "-n", name, "qdisc", "show", "dev", "eth0"]) == 0
        assert lab.run([str(lab.agent), lab.names[0], "echo crowded: $WEFT_CROWDED"]) == 0
    first, second, crowded = capfd.readouterr().out.splitlines()
    assert "rate 1Gbit" in first
    assert "rate 50Mbit" in second
    assert crowded == "crowded: 1"


@no_lab
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_lab_that_is_stopped_or_killed_leaves_nothing(number):
    script = Path(hosts_of_a_lab.__file__)
    process = subprocess.Popen(
        [sys.executable, script, "--hosts", "2", "--", "sh", "-c", "cat {hosts}; exec sleep 600"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as lines:
        names = [lines.readline().split()[0] for _ in range(2)]
        assert all(name in _namespaces() for name in names)
        process.send_signal(number)
        assert process.wait(60) == (143 if number == signal.SIGTERM else -9)
        assert lines.read() == ""  # the command has ended too
    deadline = time.monotonic() + 60
    while any(name in _namespaces() for name in names):
        assert time.monotonic() < deadline, "the namespaces stay"
        time.sleep(0.01)  # between two looks


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--hosts", "0"], "0 hosts are not from 1 to 64"), (["--link", "fast"], "link 'fast' is no bandwidth"),
     (["--slots", "0"], "0 slots are not from 1 to 4096"),
     (["--hosts", "3", "--link", "1gbit,1gbit"], "2 links are not one, nor one for each of 3 hosts")],
)  # fmt: skip
def test_a_lab_that_cannot_be_is_one_line(words, message, capsys):
    assert hosts_of_a_lab.main([*words, "--", "true"]) == 2
    assert message in capsys.readouterr().err


def test_a_lab_without_root_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert hosts_of_a_lab.main(["--", "true"]) == 2
    assert "lab: a lab of hosts needs root on Linux" in capsys.readouterr().err


@pytest.mark.slow
@no_lab
def test_a_lost_host_costs_its_ranks_and_not_the_run(lab, capfd):
    from weft.cli import main

    Path("hosts").write_text(lab.hostfile.read_text())
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
        lab.turn_off(lab.names[1])
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert f"weft: {lab.names[1]} does not answer; started again, 1 of 2, 1 ranks on {lab.names[0]}.\n" in err
    assert "resumed   run in epoch" in out
    assert main([*words, "--ranks", "1", "--out", "whole"]) == 0
    ours, theirs = ([json.loads(line)["loss"] for line in Path(run, "metrics.jsonl").read_text().splitlines()]
                    for run in ("run", "whole"))  # fmt: skip
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert not list(Path().glob(".weft-*"))
